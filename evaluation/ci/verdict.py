"""The verdict on a build, and the findings it rests on: each is data for `--json` and rows for people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, model_serializer

from evaluation.change.change import Change
from evaluation.change.comparison import NONE_IN_COMMON
from evaluation.change.position import PositionProfile
from evaluation.ci.measure import AgentResult, Coverage
from evaluation.models import COUNTED, EvaluationRun
from evaluation.runs.summary import TOO_LITTLE, RunSummary, Share, ShareShown, with_share, worst_judgement
from evaluation.simulation.conversations import Simulation
from evaluation.statistics.difference import ALPHA, MARGIN
from evaluation.wording import counted, interval_text, number, signed

EVERY = ""  # the threshold of every dimension that is scored 0 to 9
OVERALL = "overall"
HIGHEST = 9.0
REGRESSION_DELTA = 0.5
MAX_UNSCORED = 0.2
EXCERPT = 240
LARGE_FALL = 1.0  # points of 0 to 9
MOST_PROPOSITIONS = 3  # named where of none of them it is sure that it fell

Verdict = Literal[
    "pass", "regression", "below threshold", "could not judge enough", "not enough data", "cannot tell yet"
]
EXIT_CODES: dict[Verdict, int] = {
    "pass": 0,
    "regression": 1,
    "below threshold": 1,
    "could not judge enough": 2,
    "not enough data": 2,  # with `Limits.strict`, else 0
    "cannot tell yet": 2,
}


# -- what a build is held to
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What makes a build fail.

    Attributes:
        thresholds: Least score by dimension id; `OVERALL` for the overall score, `EVERY` for each dimension without one of its own.
        regression_delta: A fall of this many points, if it is sure, is a regression.
        margin: A change within ± this many points is none.
        max_unscored: Share of what the judge could have judged that may stay unjudged, per agent and dimension, 0 to 1.
        strict: Whether "cannot tell yet" and a missing baseline end with 2.
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


# -- findings
class WorstMessage(BaseModel):
    """The judgement that scored lowest, with where its message is.

    Attributes:
        score: 0 to 9.
        external_id, position, channel, sent_at: Of the message; empty where a window was judged.
    """

    text: str
    score: int | None
    reasoning: str
    external_id: str = ""
    position: int | None = None
    channel: str = ""
    sent_at: str = ""

    @property
    def place(self) -> str:
        """For people, e.g. ``#general 41``; empty for a window."""
        return f"#{self.channel} {self.position}" if self.position is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A finding as a line of a report; every text may hold words of agents and judges.

    Attributes:
        level: ``unjudged``, ``fails`` (the build), ``lacks`` (data), ``open`` (not decided).
        verdict: E.g. ``worse``, ``below 5``.
        before, now: Scores with their shares; empty where there are none. `change`: difference and interval.
    """

    level: Literal["unjudged", "fails", "lacks", "open"]
    verdict: str
    agent: str
    dimension: str
    proposition: str = ""
    before: str = ""
    now: str = ""
    change: str = ""
    why: str = ""
    worst: WorstMessage | None = None

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


class Finding(BaseModel):
    """What a verdict rests on; its fields are those of `--json`, `rows` are its lines for people."""

    model_config = ConfigDict(frozen=True)

    agent: str
    dimension: str
    rows: Annotated[tuple[Row, ...], SkipValidation] = Field((), exclude=True)


class Regression(Finding):
    """A fall that is sure and large enough to matter: of a dimension, or of one proposition in it.

    Attributes:
        scope: ``dimension``: the dimension fell; ``proposition``: only this one.
        change: What surely fell: a proposition; where of none of them that is sure, the dimension.
        worst_message: The lowest judgement of the proposition now (of the one that fell most).
        fell_most: Where no proposition surely fell, those that fell most: of none of them alone it is sure.
    """

    proposition: str | None
    scope: Literal["dimension", "proposition"]
    baseline: float | None
    candidate: float | None
    delta: float | None
    interval: list[float] | None
    fell_most: list[Change] = Field(exclude_if=lambda changes: not changes)
    dimension_change: Change
    worst_message: WorstMessage | None
    change: Change = Field(exclude=True)

    @property
    def size(self) -> float:
        return (self.dimension_change if self.scope == "dimension" else self.change).delta or 0.0


class Fading(Finding):
    """A fall within long conversations that is sure (drift by position)."""

    first: str
    last: str
    delta: float
    interval: tuple[float, float]


class BelowThreshold(Finding):
    """A score below what was asked for, with its lowest proposition and the share of judgements scored."""

    score: float
    threshold: float
    proposition: str
    coverage: ShareShown
    worst_message: WorstMessage | None


class Unjudged(Finding):
    """What could not be judged enough. `dimension` is empty for the agent (or build) itself."""

    why: str
    share: float | None = None


class Lack(Finding):
    """Where too little was scored to say anything: a dimension without a score, or a proposition scored much less than before.

    Attributes:
        proposition: None for the dimension.
        coverage, baseline_coverage: Share scored of what the judge can score; null where that is not known.
    """

    proposition: str | None
    why: str
    coverage: ShareShown
    baseline_coverage: ShareShown


class Undecided(Finding):
    """A comparison that does not decide.

    Attributes:
        hint: What would fail a build, where a fall has no interval; empty otherwise.
    """

    change: Change
    suspected: bool = False
    hint: str = ""

    @model_serializer
    def _dump(self) -> dict[str, Any]:
        row = {"agent": self.agent, "dimension": self.dimension, "suspected_regression": self.suspected}
        return {**row, **self.change.model_dump(), **({"hint": self.hint} if self.hint else {})}


class Findings(BaseModel):
    """The verdict and everything it rests on."""

    verdict: Verdict = Field(exclude=True)
    exit_code: int = Field(exclude=True)
    regressions: list[Regression] = []
    fading: list[Fading] = []
    below_threshold: list[BelowThreshold] = []
    could_not_judge: list[Unjudged] = []
    not_enough_data: list[Lack] = []
    cannot_tell_yet: list[Undecided] = []
    without_baseline: list[tuple[str, str]] = Field([], exclude=True)  # agent, why

    @property
    def fell_unsure(self) -> int:
        """Falls of `LARGE_FALL` or more of which no interval says how sure they are: they alone fail nothing."""
        changes = [one.change for one in self.cannot_tell_yet]
        return sum(c.interval is None and c.delta is not None and c.delta <= -LARGE_FALL for c in changes)

    def rows(self) -> list[Row]:
        """All findings but the undecided, what weighs most first, each once."""
        kinds = (self.could_not_judge, self.regressions, self.fading, self.below_threshold, self.not_enough_data)
        rows = (row for findings in kinds for finding in findings for row in finding.rows)
        return list({(row.agent, row.dimension, row.proposition, row.verdict): row for row in rows}.values())

    def open_rows(self) -> list[Row]:
        return [row for finding in self.cannot_tell_yet for row in finding.rows]

    @property
    def sign(self) -> str:
        """What is seen first: a tick only for a pass in which nothing fell unexplained."""
        if self.verdict == "pass":
            return "⚠️" if self.fell_unsure else "✅"
        return "❌" if EXIT_CODES[self.verdict] == 1 else "⚠️"

    @property
    def outcome(self) -> str:
        """The verdict, and beside a pass the falls without an interval, which it does not cover."""
        if self.verdict != "pass" or not self.fell_unsure:
            return self.verdict
        fell = counted(self.fell_unsure, "score")
        return f"pass, but {fell} fell by a point or more without an interval to say how sure that is"

    @property
    def headline(self) -> str:
        """What is wrong, counted in a sentence."""
        dimensions = {(r.agent, r.dimension) for r in self.regressions if r.scope == "dimension"}
        propositions = [r for r in self.regressions if r.proposition is not None]
        empty = sum(lack.proposition is None for lack in self.not_enough_data)
        suspected = sum(one.suspected for one in self.cannot_tell_yet)
        counts = [
            (len(dimensions), "dimension{s} surely worse"),
            (len(propositions), "proposition{s} surely worse"),
            (len(self.fading), "score{s} fade{v} within conversations"),
            (len(self.below_threshold), "score{s} below {its} threshold"),
            (len(self.could_not_judge), "part{s} could not be judged enough"),
            (empty, "score{s} empty for too little data"),
            (len(self.not_enough_data) - empty, "proposition{s} scored much less than before"),
            (len(self.cannot_tell_yet), "comparison{s} {is} not decided"),
            (suspected, "of them {a}suspected regression{s}"),
            (len(self.without_baseline), "agent{s} without a baseline"),
        ]
        one = {"s": "", "v": "s", "its": "its", "is": "is", "a": "a "}
        many = {"s": "s", "v": "", "its": "their", "is": "are", "a": ""}
        words = [f"{n:,} {text.format(**(one if n == 1 else many))}" for n, text in counts if n]
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
    That and "cannot tell yet" fail nothing unless `Limits.strict` asks for it. Of `simulations` some may be missing among the results.
    """
    unjudged = [*_unsimulated(simulations, limits)]
    if not any(result.summary.measured for result in results):
        unjudged.append(_unjudged("", "", "nothing was scored for any agent"))
    unjudged += [one for result in results for one in _not_judged(result, limits)]
    named = {(one.agent, one.dimension) for one in unjudged}
    regressions = sorted((r for result in results for r in _regressions(result, limits)), key=lambda r: r.size)
    fading = [fall for profile in profiles for fall in _fading(profile, limits)]
    below = [one for result in results for one in _below(result, limits)]
    undecided = [one for result in results for one in _undecided(result, limits)]
    lacking = [
        one
        for result in results
        for one in _lacking(result)
        if not {(one.agent, ""), (one.agent, one.dimension)} & named
    ]
    without = [(r.agent, r.no_baseline) for r in results if r.no_baseline and r.summary.measured]
    reached: dict[Verdict, bool] = {
        "could not judge enough": bool(unjudged),
        "regression": bool(regressions or fading),
        "below threshold": bool(below),
        "not enough data": bool(lacking),
        "cannot tell yet": limits.strict and bool(undecided or without),
        "pass": True,
    }
    verdict = next(name for name, holds in reached.items() if holds)
    return Findings(
        verdict=verdict,
        exit_code=0 if verdict == "not enough data" and not limits.strict else EXIT_CODES[verdict],
        regressions=regressions,
        fading=fading,
        below_threshold=below,
        could_not_judge=unjudged,
        not_enough_data=lacking,
        cannot_tell_yet=sorted(undecided, key=lambda one: one.change.delta or 0.0),
        without_baseline=without,
    )


def _unjudged(agent: str, dimension: str, why: str, share: float | None = None) -> Unjudged:
    row = Row(level="unjudged", verdict="not judged", agent=agent, dimension=dimension, why=why)
    return Unjudged(agent=agent, dimension=dimension, why=why, share=share, rows=(row,))


def _unsimulated(simulations: Sequence[Simulation], limits: Limits) -> Iterator[Unjudged]:
    for one in simulations:
        share = len(one.unfinished) / len(one.conversations) if one.conversations else 1.0
        if not one.usable or share > limits.max_unscored:
            yield _unjudged(one.agent.slug, "", f"simulation: {one.problem}", share)


def _not_judged(result: AgentResult, limits: Limits) -> Iterator[Unjudged]:
    run, agent, summary = result.run, result.agent, result.summary
    if run.status != EvaluationRun.Status.COMPLETED:
        why = f"the run is {run.status}{f': {run.error}' if run.error else ''}"
        if result.captured.held_elsewhere and run.status == EvaluationRun.Status.RUNNING:
            why = f"run {run.pk} is being judged by another process ({run.lease_owner}); try again when it ended"
        yield _unjudged(agent, "", why)
    elif result.expected and not summary.measured:
        yield _unjudged(agent, "", run.error or "nothing scored")
    no_score = "there is a threshold, but no score: "
    for dimension, coverage in result.coverage.items():
        of = summary.dimensions.get(dimension)
        fell_short = of is not None and of.fell_short and limits.threshold(dimension) is not None
        if coverage.failed_share > limits.max_unscored:
            why = f"{coverage.failed} of {coverage.could} judgements failed, e.g. {coverage.example}"
            yield _unjudged(agent, dimension, why, coverage.failed_share)
        elif (
            (dimension in limits.thresholds or fell_short)
            and result.score(dimension) is None
            and (result.expected or summary.measured)
        ):
            yield _unjudged(agent, dimension, no_score + why_no_score(result, dimension))
    if limits.threshold(OVERALL) is not None and summary.overall_score is None and summary.measured:
        why = "; ".join(f"{name}: {d.reason}" for name, d in summary.dimensions.items() if d.fell_short)
        yield _unjudged(agent, OVERALL, no_score + (why or "no dimension is scored"))


def why_no_score(result: AgentResult, dimension: str) -> str:
    """Return why a dimension of an agent has no score, for people."""
    summary = result.summary.dimensions.get(dimension)
    if summary is not None and summary.reason and summary.scored:
        return summary.reason
    coverage = result.coverage.get(dimension, Coverage())
    if coverage.needs_llm_judge:
        return counted(coverage.needs_llm_judge, "proposition needs an LLM judge", "propositions need an LLM judge")
    if coverage.not_evaluable:
        return f"{counted(coverage.not_evaluable, 'judgement')} not evaluable"
    return result.run.error or "nothing to judge"


def _lacking(result: AgentResult) -> Iterator[Lack]:
    """Dimensions without a score that had judgements enough, or have one in the baseline, or share no proposition with it; then
    propositions that are scored much less."""

    def lack(dimension: str, proposition: str | None, why: str, now: Share | None, before: Share | None) -> Lack:
        row = Row(
            level="lacks",
            verdict=TOO_LITTLE,
            agent=result.agent,
            dimension=dimension,
            proposition=proposition or "",
            before=with_share("", before),
            now=with_share("", now) if before else "",
            why=why.removeprefix(f"{TOO_LITTLE}: "),
        )
        about: dict[str, Any] = {"agent": result.agent, "dimension": dimension, "proposition": proposition}
        return Lack(**about, why=why, coverage=now, baseline_coverage=before, rows=(row,))

    for name, summary in result.summary.dimensions.items():
        change = result.change(name)
        before = change is not None and change.baseline is not None
        nothing_shared = change is not None and change.reason == NONE_IN_COMMON
        if (summary.reason and (summary.fell_short or before)) or nothing_shared:
            was = change.baseline_share if change is not None else None
            yield lack(name, None, summary.reason or NONE_IN_COMMON, summary.share, was)
    for lost in result.comparison.lost if result.comparison else ():
        why = str(lost).removeprefix(f"{lost.proposition}: ")
        yield lack(lost.dimension, lost.proposition, why, lost.now, lost.before)


def _regressions(result: AgentResult, limits: Limits) -> Iterator[Regression]:
    """Dimensions that fell and what surely fell in them, or without that what fell most; then propositions that fell in the others."""
    for dimension in result.comparison.dimensions if result.comparison else ():
        propositions = result.comparison.propositions.get(dimension.dimension, ()) if result.comparison else ()
        lower = sorted((c for c in propositions if c.delta is not None and c.delta < 0), key=lambda c: c.delta or 0.0)
        sure = [c for c in lower if c.worse and _falls(c, limits)]
        fell = dimension.worse and _falls(dimension, limits)
        most = lower[:MOST_PROPOSITIONS] if fell and not sure else []
        for change in sure or ([dimension] if fell else []):
            proposition = change.proposition
            lowest = proposition or (most[0].proposition if most else "")
            worst = _worst(result.summary, dimension.dimension, lowest)
            rows = []
            if fell:
                rows.append(_row(result, dimension, "fails", "worse", worst=None if proposition else worst))
            if proposition:
                rows.append(_row(result, change, "fails", "worse", worst=worst))
            rows += [_row(result, one, "fails", "fell most, not surely") for one in most]
            data = change.model_dump()
            yield Regression(
                agent=result.agent,
                dimension=dimension.dimension,
                proposition=proposition or None,
                scope="dimension" if fell else "proposition",
                **{name: data[name] for name in ("baseline", "candidate", "delta", "interval")},
                fell_most=most,
                dimension_change=dimension,
                worst_message=worst,
                change=change,
                rows=tuple(rows),
            )


def _row(result: AgentResult, change: Change, level: Any, verdict: str, **more: Any) -> Row:
    reach = f" (95 %: {interval_text(change.interval)})" if change.interval else ""
    return Row(
        level=level,
        verdict=verdict,
        agent=result.agent,
        dimension=change.dimension,
        proposition=change.proposition,
        before=with_share(number(change.baseline), change.baseline_share),
        now=with_share(number(change.candidate), change.share),
        change="" if change.delta is None else f"{signed(change.delta)}{reach}",
        **more,
    )


def _falls(change: Change, limits: Limits) -> bool:
    return change.delta is not None and change.delta <= -limits.regression_delta


def _fading(profile: PositionProfile, limits: Limits) -> Iterator[Fading]:
    """Falls between the first and the last stretch, inside the same conversations, that are sure and large enough to matter."""
    for name, within in ((dimension.dimension, dimension.within) for dimension in profile.dimensions.values()):
        delta, interval = within.delta, within.interval
        if delta is None or interval is None or within.verdict != "drifted" or delta > -limits.regression_delta:
            continue
        about: dict[str, Any] = {"agent": profile.agent, "dimension": name}
        change = f"{signed(delta)} (95 %: {signed(interval.low)} to {signed(interval.high)})"
        before = f"positions {within.first}"
        yield Fading(
            **about,
            first=within.first,
            last=within.last,
            delta=round(delta, 4),
            interval=(round(interval.low, 4), round(interval.high, 4)),
            rows=(Row(level="fails", verdict="fades", **about, before=before, now=within.last, change=change),),
        )


def _below(result: AgentResult, limits: Limits) -> Iterator[BelowThreshold]:
    summary = result.summary
    scores: list[tuple[str, float | None, Share | None, str]] = [
        (name, result.score(name), d.share, d.weakest.id if d.weakest else "") for name, d in summary.dimensions.items()
    ]
    for name, score, share, weakest in (*scores, (OVERALL, summary.overall_score, summary.share, "")):
        threshold = limits.threshold(name)
        if score is None or threshold is None or score >= threshold:
            continue
        worst = None if name == OVERALL else _worst(summary, name, weakest)
        row = Row(
            level="fails",
            verdict=f"below {threshold:g}",
            agent=result.agent,
            dimension=name,
            now=with_share(f"{score:.1f}", share),
            why=f"lowest: {weakest}" if weakest else "",
            worst=worst,
        )
        yield BelowThreshold(
            agent=result.agent,
            dimension=name,
            score=score,
            threshold=threshold,
            proposition=weakest,
            coverage=share,
            worst_message=worst,
            rows=(row,),
        )


def _undecided(result: AgentResult, limits: Limits) -> Iterator[Undecided]:
    for change in result.comparison.dimensions if result.comparison else ():
        measured = change.baseline is not None or change.candidate is not None
        if not change.undecided or not measured or change.counted:
            continue
        falls = _falls(change, limits)
        suspected = falls and change.p_value is not None and change.p_value <= ALPHA
        hint = ""
        if falls and change.interval is None and limits.threshold(change.dimension) is None:
            hint = f"a fall without an interval fails no build: --threshold {change.dimension}=N would"
        why = "; ".join(filter(None, (change.reason, hint)))
        row = _row(result, change, "open", "suspected regression" if suspected else change.verdict, why=why)
        about: dict[str, Any] = {"agent": result.agent, "dimension": change.dimension}
        yield Undecided(**about, change=change, suspected=suspected, hint=hint, rows=(row,))


def _worst(summary: RunSummary, dimension: str, proposition: str) -> WorstMessage | None:
    """The lowest judgement of a proposition; for a channel's dimension the lowest of the agent's channels."""
    if dimension in COUNTED:
        return None
    channels = summary.dimensions[dimension].channels if dimension in summary.dimensions else ()
    runs = [channel.run for channel in channels] or [summary.run]
    rows = [row for row in (worst_judgement(run, dimension, proposition) for run in runs) if row is not None]
    if not rows:
        return None
    row = min(rows, key=lambda row: (row.score or 0, row.pk))
    message = row.message
    place: dict[str, Any] = {}
    if message is not None:
        place = {
            "external_id": message.external_id,
            "position": message.position,
            "channel": message.channel.slug,
            "sent_at": message.sent_at.isoformat() if message.sent_at else "",
        }
    elif row.evaluation_run.channel is not None:
        place = {"channel": row.evaluation_run.channel.slug}
    text = " ".join((row.context_snippet or (message.text if message else "")).split())
    return WorstMessage(
        text=text if len(text) <= EXCERPT else text[: EXCERPT - 1] + "…",
        score=row.score,
        reasoning=row.reasoning or row.justification,
        **place,
    )
