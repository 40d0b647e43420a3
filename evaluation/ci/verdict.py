"""The verdict on a build. It rests on findings: each is a line of every report and, with `data`, an entry of ``--json``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_serializer

from agents.kit.text.wording import counted, interval_text, number, signed
from evaluation.change.change import ChangeResult
from evaluation.change.comparison import MORE_HITS, NONE_IN_COMMON, ONLY_BEFORE, Comparison, shown_by
from evaluation.change.examples import WorstMessage, lowest_messages, worst_message
from evaluation.models import COUNTED, EvaluationRun
from evaluation.runs.summary import (
    TOO_LITTLE,
    RunSummary,
    Share,
    window_statistics,
    with_share,
    words_or_share,
)
from evaluation.statistics.difference import ALPHA, MARGIN

if TYPE_CHECKING:
    from evaluation.change.position import PositionProfile
    from evaluation.runs.execute import Captured
    from evaluation.simulation.conversations import Simulation

EVERY = ""  # the threshold of every dimension that is scored 0 to 9
OVERALL = "overall"
HIGHEST = 9.0
REGRESSION_DELTA = 0.5
MAX_UNSCORED = 0.2
LARGE_FALL = 1.0  # points of 0 to 9
FIGURES = ("baseline", "candidate", "delta", "interval", "baseline_hits", "hits")  # of a regression, in ``--json``
MOST_PROPOSITIONS = 3  # named where of none of them it is sure that it fell

Verdict = Literal[
    "pass", "regression", "below threshold", "could not judge enough", "not enough data", "cannot tell yet"
]
EXIT_CODES: dict[Verdict, int] = {
    "pass": 0,
    "regression": 1,
    "below threshold": 1,
    "could not judge enough": 2,
    "not enough data": 2,  # where a dimension lost its score, or with `Limits.strict`, else 0
    "cannot tell yet": 2,
}
# What is found, what weighs most first; the lists of `--json`.
Kind = Literal[
    "could_not_judge",
    "regressions",
    "fading",
    "below_threshold",
    "not_enough_data",
    "one_sided",
    "cannot_tell_yet",
    "hits",
]
KINDS: tuple[Kind, ...] = Kind.__args__  # type: ignore[attr-defined]
FAILS: tuple[Kind, ...] = ("regressions", "fading", "below_threshold")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What makes a build fail.

    Attributes:
        thresholds: Least score by dimension id; `OVERALL` for the overall score, `EVERY` for each dimension without one of its own.
        regression_delta: A fall of this many points, if it is sure, is a regression.
        margin: A change within ± this many points is none.
        max_unscored: Share of what the judge could have judged that may stay unjudged, per agent and dimension, 0 to 1.
        strict: Whether "cannot tell yet", a score on one side only and a missing baseline end with 2.
    """

    thresholds: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    regression_delta: float = REGRESSION_DELTA
    margin: float = MARGIN
    max_unscored: float = MAX_UNSCORED
    strict: bool = False

    def __post_init__(self) -> None:
        for name in ("regression_delta", "margin"):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0 < value <= HIGHEST):
                raise ValueError(f"--{name.replace('_', '-')} {value:g}: allowed: above 0, at most 9")
        if not 0 <= self.max_unscored <= 1:
            raise ValueError(f"--max-unscored {self.max_unscored:g}: allowed: 0 to 1, e.g. 0.2 or 20%")

    def threshold(self, dimension: str) -> float | None:
        """The least score a dimension must have; a bare number says nothing about counts."""
        if dimension in self.thresholds or dimension in COUNTED or dimension == OVERALL:
            return self.thresholds.get(dimension)
        return self.thresholds.get(EVERY)

    def check_dimensions(self, measured: Sequence[str]) -> None:
        """Refuse a threshold for what is not measured: it would never fail.

        Raises:
            ValueError: Names the dimension and those measured.
        """
        for name in self.thresholds:
            if name not in (*measured, OVERALL, EVERY):
                raise ValueError(f"--threshold {name}: not among the dimensions measured: {', '.join(measured)}")

    def __str__(self) -> str:
        """The thresholds, e.g. ``5, fluency 4``; empty without any."""
        named = sorted(self.thresholds.items(), key=lambda item: item[0] != EVERY)
        return ", ".join(f"{name} {value:g}".strip() for name, value in named)


class Coverage(BaseModel):
    """The judgements of one dimension.

    Attributes:
        failed: Could have been judged and was not: timeout, rate limit, refusal, malformed reply, never asked. `example` says why.
        not_evaluable: Nothing to judge: one message, no history, an empty text.
    """

    model_config = ConfigDict(frozen=True)

    scored: int = 0
    trivial: int = 0
    failed: int = 0
    needs_llm_judge: int = 0
    not_evaluable: int = 0
    example: str = Field("", exclude=True)

    @property
    def could(self) -> int:
        """What this judge could have judged."""
        return self.scored + self.trivial + self.failed

    @property
    def failed_share(self) -> float:
        """Of what this judge could have judged the share it did not, 0 to 1; 0 when there was nothing."""
        return self.failed / self.could if self.could else 0.0

    @property
    def unscored(self) -> int:
        return self.failed + self.needs_llm_judge + self.not_evaluable

    def __add__(self, other: Coverage) -> Coverage:
        summed = {name: n + getattr(other, name) for name, n in self.model_dump().items()}
        return Coverage(**summed, example=self.example or other.example)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """One agent of the build.

    Attributes:
        comparison: With its baseline; None, and then `no_baseline` says why.
        expected: Whether it must have a score: it was named, or it has a baseline.
    """

    captured: Captured
    coverage: Mapping[str, Coverage] = field(default_factory=dict)
    comparison: Comparison | None = None
    no_baseline: str = ""
    expected: bool = False

    @property
    def summary(self) -> RunSummary:
        return self.captured.summary

    @property
    def run(self) -> EvaluationRun:
        return self.summary.run

    @property
    def agent(self) -> str:
        return self.run.agent.slug if self.run.agent else str(self.run.channel)

    @property
    def changes(self) -> Sequence[ChangeResult]:
        """Of its dimensions since the baseline; none without one."""
        return self.comparison.dimensions if self.comparison else ()

    @property
    def lost_dimensions(self) -> set[str]:
        """Those of which so much less is scored than in the baseline that what is left is no score."""
        return self.comparison.lost_dimensions if self.comparison else set()

    @property
    def overall_score(self) -> float | None:
        """The mean of its dimensions; None where one of them has no score any more."""
        return None if self.lost_dimensions else self.summary.overall_score

    def score(self, dimension: str) -> float | None:
        """The score of a dimension, its count where it is counted; None when there is none."""
        if dimension in self.lost_dimensions:
            return None
        summary = self.summary.dimensions.get(dimension)
        return None if summary is None else summary.score if summary.count is None else float(summary.count)

    def share(self, dimension: str) -> Share | None:
        """How much of a dimension was scored."""
        summary = self.summary.dimensions.get(dimension)
        return None if summary is None else summary.share

    def change(self, dimension: str) -> ChangeResult | None:
        """How the dimension changed since the baseline; None without one."""
        return next((change for change in self.changes if change.dimension == dimension), None)

    def missing(self, dimension: str) -> str:
        """Return what is missing to compare a dimension, and the next step; empty where it is compared."""
        return self.comparison.missing.get(dimension, "") if self.comparison else ""

    def why_no_score(self, dimension: str) -> str:
        """Return why a dimension has no score, for people."""
        summary = self.summary.dimensions.get(dimension)
        if summary is not None and summary.reason and summary.scored:
            return summary.reason
        change = self.change(dimension)
        if dimension in self.lost_dimensions and change is not None:
            return change.reason
        coverage = self.coverage.get(dimension, Coverage())
        if coverage.needs_llm_judge:
            return counted(coverage.needs_llm_judge, "proposition needs an LLM judge", "propositions need an LLM judge")
        if coverage.not_evaluable:
            return f"{counted(coverage.not_evaluable, 'judgement')} not evaluable"
        return self.run.error or "nothing to judge"


# -- findings
class Finding(BaseModel):
    """One thing that was found; every text may hold words of agents and judges.

    Attributes:
        verdict: E.g. ``worse``, ``below 5``.
        agent: Empty for the build itself. `dimension`: empty for the agent itself.
        before, now: Scores with their shares; empty where there are none. `change`: difference and interval.
        messages: Further messages that show it.
        data: Further fields of its entry in ``--json``; None where another finding has the entry.
        of: The change that does not decide.
    """

    model_config = ConfigDict(frozen=True)

    kind: Kind
    verdict: str
    agent: str
    dimension: str
    proposition: str = ""
    before: str = ""
    now: str = ""
    change: str = ""
    why: str = ""
    worst: WorstMessage | None = None
    messages: tuple[WorstMessage, ...] = ()
    data: dict[str, Any] | None = None
    of: ChangeResult | None = None

    @property
    def name(self) -> str:
        """E.g. ``ada adherence, dry-wit``."""
        of = " ".join(filter(None, (self.agent or "all agents", self.dimension)))
        return f"{of}, {self.proposition}" if self.proposition else of

    @property
    def figures(self) -> str:
        """E.g. ``8.0 · 100 % → 2.9 · 90 %, −5.1 (95 %: −6.0 to −4.2): why``; empty without any."""
        scores = " → ".join(filter(None, (self.before, self.now)))
        return ": ".join(filter(None, (", ".join(filter(None, (scores, self.change))), self.why)))

    @property
    def suspected(self) -> bool:
        """Whether an undecided fall would be sure if nothing else had been compared."""
        return self.verdict == "suspected regression"


class Findings(BaseModel):
    """The verdict and everything it rests on, what weighs most first. Dumped it is the lists of ``--json``, by kind."""

    verdict: Verdict
    exit_code: int
    findings: list[Finding] = []
    without_baseline: list[tuple[str, str]] = []  # agent, why

    @model_serializer
    def _dump(self) -> dict[str, list[dict[str, Any]]]:
        lists: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
        for one in self.findings:
            if one.data is not None:
                lists[one.kind].append({"agent": one.agent, "dimension": one.dimension, **one.data})
        return lists

    def of(self, *kinds: Kind) -> list[Finding]:
        """Those of some kinds, each line once."""
        rows = (one for one in self.findings if one.kind in kinds)
        return list({(one.agent, one.dimension, one.proposition, one.verdict): one for one in rows}.values())

    @property
    def fell_unsure(self) -> int:
        """Falls of `LARGE_FALL` or more of which no interval says how sure they are: they alone fail nothing."""
        changes = [one.of for one in self.findings if one.of is not None]
        return sum(c.interval is None and c.delta is not None and c.delta <= -LARGE_FALL for c in changes)

    @property
    def sign(self) -> str:
        """What is seen first: a tick only for a pass in which nothing fell unexplained."""
        if self.verdict == "pass":
            return "⚠️" if self.fell_unsure or self.of("one_sided") else "✅"
        return "❌" if EXIT_CODES[self.verdict] == 1 else "⚠️"

    @property
    def outcome(self) -> str:
        """The verdict, and beside a pass what it does not cover: scores on one side only, and falls without an interval."""
        if self.verdict != "pass":
            return self.verdict
        uncovered = []
        if one_sided := len(self.of("one_sided")):
            uncovered.append(f"{counted(one_sided, 'score')} {'is' if one_sided == 1 else 'are'} on one side only")
        if self.fell_unsure:
            fell = counted(self.fell_unsure, "score")
            uncovered.append(f"{fell} fell by a point or more without an interval to say how sure that is")
        return f"pass, but {' and '.join(uncovered)}" if uncovered else "pass"

    @property
    def headline(self) -> str:
        """What is wrong, counted in a sentence."""
        by_kind = {kind: [one for one in self.findings if one.kind == kind] for kind in KINDS}
        worse = [one for one in by_kind["regressions"] if one.verdict == "worse"]
        lacking = by_kind["not_enough_data"]
        empty = sum(not one.proposition for one in lacking)
        counts = [
            (sum(not one.proposition for one in worse), "dimension", "significantly worse"),
            (sum(bool(one.proposition) for one in worse), "proposition", "significantly worse"),
            (len(by_kind["fading"]), "score", "fading within conversations"),
            (len(by_kind["below_threshold"]), "score", "below threshold"),
            (len(by_kind["could_not_judge"]), "part", "not judged enough"),
            (empty, "score", "empty for too little data"),
            (len(lacking) - empty, "proposition", "scored much less than before"),
            (len(by_kind["one_sided"]), "score", "on one side only"),
            (len(by_kind["cannot_tell_yet"]), "comparison", "not decided"),
            (sum(one.suspected for one in self.findings), "suspected regression", "among them"),
            (sum(one.verdict == MORE_HITS for one in by_kind["hits"]), "proposition", "with more hits, not surely"),
            (len(self.without_baseline), "agent", "without a baseline"),
        ]
        words = [f"{counted(n, thing)} {state}" for n, thing, state in counts if n]
        return f"{', '.join(words)}." if words else "Nothing got worse."


# -- deciding
def decide(
    results: Sequence[AgentResult],
    limits: Limits,
    *,
    profiles: Sequence[PositionProfile] = (),
    simulations: Sequence[Simulation] = (),
) -> Findings:
    """Return the verdict on a build.

    What could not be judged enough comes first: where a part is missing, neither a pass nor a fall says what it seems to say. Then a
    regression, then a threshold. Where too little was scored to say that an agent is still itself, the verdict is "not enough data".
    It fails where a dimension lost its score, see `lost_dimensions`. Otherwise that and "cannot tell yet" fail nothing unless
    `Limits.strict` asks for it. Of `simulations` some may be missing among the results.
    """
    findings = [*_not_simulated(simulations, limits)]
    if not any(map(_says_something, results)):
        findings.append(_unjudged("", "", "nothing was scored for any agent"))
    findings += [one for result in results for one in _not_judged(result, limits)]
    unjudged = {(one.agent, one.dimension) for one in findings}
    regressions = sorted((r for result in results for r in _regressions(result, limits)), key=lambda r: r[0])
    findings += [one for _, together in regressions for one in together]
    findings += [one for profile in profiles for one in _fading(profile, limits)]
    findings += [one for result in results for one in _below(result, limits)]
    findings += [
        one
        for result in results
        for one in _lacking(result)
        if not {(one.agent, ""), (one.agent, one.dimension)} & unjudged
    ]
    one_sided = [one for result in results for one in _one_sided(result)]
    findings += one_sided
    undecided = [one for result in results for one in _undecided(result, limits)]
    findings += sorted(undecided, key=lambda one: (one.of and one.of.delta) or 0.0)
    findings += [one for result in results for one in _hits(result, limits)]
    without = [(r.agent, r.no_baseline) for r in results if r.no_baseline and r.summary.measured]
    kinds = {one.kind for one in findings}
    reached: dict[Verdict, bool] = {
        "could not judge enough": "could_not_judge" in kinds,
        "regression": bool(kinds & {"regressions", "fading"}),
        "below threshold": "below_threshold" in kinds,
        "not enough data": "not_enough_data" in kinds,
        "cannot tell yet": limits.strict and bool(one_sided or undecided or without),
        "pass": True,
    }
    verdict = next(name for name, holds in reached.items() if holds)
    code = EXIT_CODES[verdict]
    if verdict == "not enough data" and not limits.strict and not any(result.lost_dimensions for result in results):
        code = 0
    return Findings(verdict=verdict, exit_code=code, findings=findings, without_baseline=without)


def _says_something(result: AgentResult) -> bool:
    """Whether there is a number, a statistic and something to compare it with, or hits."""
    if result.comparison is None:
        return result.summary.measured
    return result.summary.comparable or any(one.proposition for one in result.comparison.shown)


def _unjudged(agent: str, dimension: str, why: str, share: float | None = None) -> Finding:
    about: dict[str, Any] = {"agent": agent, "dimension": dimension, "why": why}
    return Finding(kind="could_not_judge", verdict="not judged", **about, data={"why": why, "share": share})


def _not_simulated(simulations: Sequence[Simulation], limits: Limits) -> Iterator[Finding]:
    for one in simulations:
        share = len(one.unfinished) / len(one.conversations) if one.conversations else 1.0
        if not one.usable or share > limits.max_unscored:
            yield _unjudged(one.agent.slug, "", f"simulation: {one.problem}", share)


def _not_judged(result: AgentResult, limits: Limits) -> Iterator[Finding]:
    run, agent, summary = result.run, result.agent, result.summary
    if run.status != EvaluationRun.Status.COMPLETED:
        why = f"the run is {run.status}{f': {run.error}' if run.error else ''}"
        if result.captured.held_elsewhere and run.status == EvaluationRun.Status.RUNNING:
            why = f"run {run.pk} is being judged by another process ({run.lease_owner}); try again when it ended"
        yield _unjudged(agent, "", why)
    elif result.expected and not _says_something(result):
        yield _unjudged(agent, "", run.error or "nothing scored")
    no_score = "there is a threshold, but no score: "
    # They prove what is wrong, or nothing: such a dimension can only fall below its threshold.
    exact = window_statistics(run.figures)
    for dimension, coverage in result.coverage.items():
        of = summary.dimensions.get(dimension)
        needed = (dimension in limits.thresholds and dimension not in exact) or (
            of is not None
            and (of.fell_short or dimension in result.lost_dimensions)
            and limits.threshold(dimension) is not None
        )
        if coverage.failed_share > limits.max_unscored:
            why = f"{coverage.failed} of {coverage.could} judgements failed, e.g. {coverage.example}"
            yield _unjudged(agent, dimension, why, coverage.failed_share)
        elif needed and result.score(dimension) is None and (result.expected or summary.measured):
            yield _unjudged(agent, dimension, no_score + result.why_no_score(dimension))
    if limits.threshold(OVERALL) is not None and result.overall_score is None and summary.measured:
        lost = result.lost_dimensions
        short = [name for name, d in summary.dimensions.items() if d.fell_short or name in lost]
        why = "; ".join(f"{name}: {summary.dimensions[name].reason or result.why_no_score(name)}" for name in short)
        yield _unjudged(agent, OVERALL, no_score + (why or "no dimension is scored"))


def _lacking(result: AgentResult) -> Iterator[Finding]:
    """Yield the dimensions without a score where something was scored, where the baseline has one, or where no proposition is shared;
    then propositions that are scored much less.

    An agent that was not named and has no baseline may have few judgements: it lacks a score only where there were enough of them."""
    lacks: list[tuple[str, str, str, Share | None, Share | None]] = []
    for name, summary in result.summary.dimensions.items():
        change = result.change(name)
        before = change is not None and change.baseline is not None
        nothing_shared = change is not None and change.reason == NONE_IN_COMMON
        some = result.expected and summary.scored > 0
        if name in result.lost_dimensions:
            continue
        if (summary.reason and (summary.fell_short or before or some)) or nothing_shared:
            was = change.baseline_share if change is not None else None
            lacks.append((name, "", summary.reason or NONE_IN_COMMON, summary.share, was))
    for lost in result.comparison.lost if result.comparison else ():
        why = str(lost).removeprefix(f"{lost.proposition}: ")
        lacks.append((lost.dimension, lost.proposition, why, lost.now, lost.before))
    for dimension, proposition, why, now, was in lacks:
        shares = {"coverage": now and now.rounded, "baseline_coverage": was and was.rounded}
        missing = result.missing(dimension) if not proposition else ""
        yield Finding(
            kind="not_enough_data",
            verdict=TOO_LITTLE,
            agent=result.agent,
            dimension=dimension,
            proposition=proposition,
            before=with_share("", was),
            now=with_share("", now) if was else "",
            why="; ".join(filter(None, (why.removeprefix(f"{TOO_LITTLE}: "), missing))),
            data={"proposition": proposition or None, "why": why, "missing": missing, **shares},
        )


def _one_sided(result: AgentResult) -> Iterator[Finding]:
    """Yield the dimensions that are scored now or in the baseline only, each with the messages that scored lowest now.

    Those that have too little for a score now are in `_lacking`."""
    for shown in result.comparison.shown if result.comparison else ():
        summary = result.summary.dimensions.get(shown.dimension)
        if shown.proposition or (summary is not None and summary.reason):
            continue
        before = shown.verdict == ONLY_BEFORE
        lowest = [] if before else lowest_messages(result.run.pk, shown.dimension)
        missing = result.missing(shown.dimension)
        yield Finding(
            kind="one_sided",
            verdict=shown.verdict,
            agent=result.agent,
            dimension=shown.dimension,
            before=shown.figures if before else "",
            now="" if before else shown.figures,
            why=missing,
            worst=lowest[0] if lowest else None,
            messages=tuple(lowest[1:]),
            data={
                **shown.model_dump(exclude={"dimension"}),
                "missing": missing,
                "messages": [m.model_dump() for m in lowest],
            },
        )


def _regressions(result: AgentResult, limits: Limits) -> Iterator[tuple[float, list[Finding]]]:
    """Dimensions that fell, each with what surely fell in it or without that what fell most; and propositions that fell in the others.

    Yields:
        The points it fell, and its lines. The lowest message is that of the proposition, or of the one that fell most.
    """
    for dimension in result.changes:
        name = dimension.dimension
        propositions = result.comparison.of(name) if result.comparison else ()
        lower = sorted((c for c in propositions if (c.points or 0.0) < 0), key=lambda c: c.points or 0.0)
        sure = [c for c in lower if c.worse and _falls(c, limits)]
        fell = dimension.worse and _falls(dimension, limits)
        most = [c for c in lower if c.delta][:MOST_PROPOSITIONS] if fell and not sure else []
        rows = []
        for change in sure or ([dimension] if fell else []):
            lowest = change.proposition or (most[0].proposition if most else "")
            worst, shown = _worst(result.summary, name, lowest), change.model_dump()
            messages = lowest_messages(result.run.pk, name, change.proposition) if change.hits is not None else []
            data = {
                "proposition": change.proposition or None,
                "scope": "dimension" if fell else "proposition",
                **{figure: shown[figure] for figure in FIGURES if figure in shown},
                **({"fell_most": [c.model_dump() for c in most]} if most else {}),
                "dimension_change": dimension.model_dump(),
                "worst_message": worst and worst.model_dump(),
            }
            further = tuple(messages[1:])
            rows.append(_compared(result, change, "regressions", "worse", worst=worst, messages=further, data=data))
        if not fell:
            yield from ((change.points or 0.0, [row]) for change, row in zip(sure, rows, strict=True))
            continue
        if sure:
            rows.insert(0, _compared(result, dimension, "regressions", "worse"))
        rows += [_compared(result, one, "regressions", "fell most, not surely") for one in most]
        yield dimension.delta or 0.0, rows


def _compared(result: AgentResult, change: ChangeResult, kind: Kind, verdict: str, **more: Any) -> Finding:
    reach = f" (95 %: {interval_text(change.interval)})" if change.interval else ""
    return Finding(
        kind=kind,
        verdict=verdict,
        agent=result.agent,
        dimension=change.dimension,
        proposition=change.proposition,
        before=_figure(change, change.baseline, change.baseline_share, change.baseline_hits),
        now=_figure(change, change.candidate, change.share, change.hits),
        change="" if change.points is None else f"{signed(change.points)}{reach}",
        **more,
    )


def _figure(change: ChangeResult, score: float | None, share: Share | None, hits: Share | None) -> str:
    if hits is not None:
        return f"hits in {hits} messages"
    return words_or_share(number(score), share, of_words=change.of_words)


def _falls(change: ChangeResult, limits: Limits) -> bool:
    return change.points is not None and change.points <= -limits.regression_delta


def _fading(profile: PositionProfile, limits: Limits) -> Iterator[Finding]:
    """Falls between the first and the last stretch, inside the same conversations, that are sure and large enough to matter."""
    for name, within in ((dimension.dimension, dimension.within) for dimension in profile.dimensions.values()):
        if within.verdict != "drifted" or within.interval is None or not _falls(within, limits):
            continue
        shown = within.model_dump()
        yield Finding(
            kind="fading",
            verdict="fades",
            agent=profile.agent,
            dimension=name,
            before=f"positions {within.first}",
            now=within.last,
            change=f"{signed(within.delta)} (95 %: {interval_text(within.interval)})",
            data={figure: shown[figure] for figure in ("first", "last", "delta", "interval")},
        )


def _below(result: AgentResult, limits: Limits) -> Iterator[Finding]:
    summary = result.summary
    scores: list[tuple[str, float | None, Share | None, str]] = [
        (name, result.score(name), d.share, d.weakest.id if d.weakest else "") for name, d in summary.dimensions.items()
    ]
    for name, score, share, weakest in (*scores, (OVERALL, result.overall_score, summary.share, "")):
        threshold = limits.threshold(name)
        if score is None or threshold is None or score >= threshold:
            continue
        worst = None if name == OVERALL else _worst(summary, name, weakest)
        figures = {"score": score, "threshold": threshold, "proposition": weakest, "coverage": share and share.rounded}
        yield Finding(
            kind="below_threshold",
            verdict=f"below {threshold:g}",
            agent=result.agent,
            dimension=name,
            now=with_share(f"{score:.1f}", share),
            why=f"lowest: {weakest}" if weakest else "",
            worst=worst,
            data={**figures, "worst_message": worst and worst.model_dump()},
        )


def _undecided(result: AgentResult, limits: Limits) -> Iterator[Finding]:
    for change in result.changes:
        measured = change.baseline is not None or change.candidate is not None
        one_sided = (change.baseline is None) != (change.candidate is None)
        if not change.undecided or not measured or one_sided or change.counted:
            continue
        falls = _falls(change, limits)
        suspected = falls and change.p_value is not None and change.p_value <= ALPHA
        yield _compared(
            result,
            change,
            "cannot_tell_yet",
            "suspected regression" if suspected else change.verdict,
            why=change.reason,
            of=change,
            data={"suspected_regression": suspected, **change.model_dump()},
        )


def _hits(result: AgentResult, limits: Limits) -> Iterator[Finding]:
    """Yield the propositions compared by hits that are no regression: more hits, not surely; no more; surely fewer. They fail nothing."""
    for dimension in result.changes:
        for change in result.comparison.of(dimension.dimension) if result.comparison else ():
            shown = shown_by(change)
            if change.hits is None or shown is None or (change.worse and _falls(change, limits)):
                continue
            data = {"proposition": change.proposition, "verdict": shown.verdict, "figures": shown.figures}
            yield _compared(result, change, "hits", shown.verdict, data=data)


def _worst(summary: RunSummary, dimension: str, proposition: str) -> WorstMessage | None:
    """The lowest judgement of a proposition; for a channel's dimension the lowest of the agent's channels."""
    if dimension in COUNTED:
        return None
    channels = summary.dimensions[dimension].channels if dimension in summary.dimensions else ()
    return worst_message([channel.run for channel in channels] or [summary.run], dimension, proposition)
