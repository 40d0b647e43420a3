"""The verdict on a build, and the findings it rests on: each is data for `--json` and a row for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_serializer

from evaluation.change.change import Change
from evaluation.change.comparison import NONE_IN_COMMON
from evaluation.change.position import PositionProfile
from evaluation.ci.measure import AgentResult, Coverage
from evaluation.ci.options import OVERALL, Limits
from evaluation.models import COUNTED, EvaluationRun
from evaluation.runs.summary import TOO_LITTLE, RunSummary, ShareShown, with_share, worst_judgement
from evaluation.simulation.conversations import Simulation
from evaluation.statistics.difference import ALPHA
from evaluation.wording import counted, interval_text, number, signed

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
Unserialized = Field(exclude=True)


# -- findings
class WorstMessage(BaseModel):
    """The judgement that scored lowest, with where its message is.

    Attributes:
        text: The start of what was judged, on one line.
        score: 0 to 9.
        external_id, position, channel, sent_at: Of the message; empty where a whole window was judged.
        reasoning: The judge's.
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
        """For people, e.g. ``#general 41``; empty for a whole window."""
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
    """What a verdict rests on; its fields are those of `--json`."""

    model_config = ConfigDict(frozen=True)

    def rows(self) -> Iterator[Row]:
        raise NotImplementedError


class Regression(Finding):
    """A fall that is sure and large enough to matter: of a whole dimension, or of one proposition in it.

    Attributes:
        scope: ``dimension``: the dimension as a whole fell; ``proposition``: only this one.
        change: What surely fell: a proposition; where of none of them that is sure, the dimension.
        dimension_change: Of the dimension as a whole.
        worst_message: The lowest judgement of the proposition now (of the one that fell most).
        fell_most: Where no proposition surely fell, those that fell most: of none of them alone it is sure.
    """

    agent: str
    dimension: str
    proposition: str | None
    scope: Literal["dimension", "proposition"]
    baseline: float | None
    candidate: float | None
    delta: float | None
    interval: list[float] | None
    fell_most: list[Change] = Field(exclude_if=lambda rows: not rows)
    dimension_change: Change
    worst_message: WorstMessage | None
    change: Change = Unserialized

    @property
    def size(self) -> float:
        return (self.dimension_change if self.scope == "dimension" else self.change).delta or 0.0

    def rows(self) -> Iterator[Row]:
        """The dimension as a whole first (the caller drops repeats), then the proposition, then what fell most."""
        if self.scope == "dimension":
            worst = None if self.proposition else self.worst_message
            yield _change_row(self.agent, self.dimension_change, "fails", "worse", worst=worst)
        if self.proposition:
            yield _change_row(self.agent, self.change, "fails", "worse", worst=self.worst_message)
        for change in self.fell_most:
            yield _change_row(self.agent, change, "fails", "fell most, not surely")


class Fading(Finding):
    """A fall within long conversations that is sure (drift by turn)."""

    agent: str
    dimension: str
    first: str
    last: str
    delta: float
    interval: tuple[float, float]

    def rows(self) -> Iterator[Row]:
        low, high = map(signed, self.interval)
        yield Row(
            level="fails",
            verdict="fades",
            agent=self.agent,
            dimension=self.dimension,
            before=f"positions {self.first}",
            now=self.last,
            change=f"{signed(self.delta)} (95 %: {low} to {high})",
        )


class BelowThreshold(Finding):
    """A score below what was asked for, with its lowest proposition and the share of judgements scored."""

    agent: str
    dimension: str
    score: float
    threshold: float
    proposition: str
    coverage: ShareShown
    worst_message: WorstMessage | None

    def rows(self) -> Iterator[Row]:
        yield Row(
            level="fails",
            verdict=f"below {self.threshold:g}",
            agent=self.agent,
            dimension=self.dimension,
            now=with_share(f"{self.score:.1f}", self.coverage),
            why=f"lowest: {self.proposition}" if self.proposition else "",
            worst=self.worst_message,
        )


class Unjudged(Finding):
    """What could not be judged enough. `dimension` is empty for the agent (or build) as a whole."""

    agent: str
    dimension: str
    why: str
    share: float | None = None

    def rows(self) -> Iterator[Row]:
        yield Row(level="unjudged", verdict="not judged", agent=self.agent, dimension=self.dimension, why=self.why)


class Lack(Finding):
    """Where too little was scored to say anything: a dimension without a score, or a proposition scored much less than before.

    Attributes:
        proposition: None for the dimension.
        coverage, baseline_coverage: Share scored of what the judge can score; null where that is not known.
    """

    agent: str
    dimension: str
    proposition: str | None
    why: str
    coverage: ShareShown
    baseline_coverage: ShareShown

    def rows(self) -> Iterator[Row]:
        yield Row(
            level="lacks",
            verdict=TOO_LITTLE,
            agent=self.agent,
            dimension=self.dimension,
            proposition=self.proposition or "",
            before=with_share("", self.baseline_coverage),
            now=with_share("", self.coverage) if self.baseline_coverage else "",
            why=self.why.removeprefix(f"{TOO_LITTLE}: "),
        )


class Undecided(Finding):
    """A comparison that does not decide.

    Attributes:
        suspected: It fell enough and alone would be sure, but not among so many.
        hint: What would fail a build, where a fall has no interval; empty otherwise.
    """

    agent: str
    change: Change
    suspected: bool = False
    hint: str = ""

    @model_serializer
    def _dump(self) -> dict[str, Any]:
        row = {"agent": self.agent, "dimension": self.change.dimension, "suspected_regression": self.suspected}
        return {**row, **self.change.model_dump(), **({"hint": self.hint} if self.hint else {})}

    def rows(self) -> Iterator[Row]:
        why = "; ".join(filter(None, (self.change.reason, self.hint)))
        verdict = "suspected regression" if self.suspected else self.change.verdict
        yield _change_row(self.agent, self.change, "open", verdict, why=why)


def _change_row(agent: str, change: Change, level: Any, verdict: str, **more: Any) -> Row:
    reach = f" (95 %: {interval_text(change.interval)})" if change.interval else ""
    return Row(
        level=level,
        verdict=verdict,
        agent=agent,
        dimension=change.dimension,
        proposition=change.proposition,
        before=with_share(number(change.baseline), change.baseline_share),
        now=with_share(number(change.candidate), change.share),
        change="" if change.delta is None else f"{signed(change.delta)}{reach}",
        **more,
    )


class Findings(BaseModel):
    """The verdict and everything it rests on."""

    verdict: Verdict = Unserialized
    exit_code: int = Unserialized
    regressions: list[Regression] = []
    fading: list[Fading] = []
    below_threshold: list[BelowThreshold] = []
    could_not_judge: list[Unjudged] = []
    not_enough_data: list[Lack] = []
    cannot_tell_yet: list[Undecided] = []
    without_baseline: list[tuple[str, str]] = Field([], exclude=True)  # agent, why

    @property
    def fell_unsure(self) -> list[Undecided]:
        """Falls of `LARGE_FALL` or more of which no interval says how sure they are: they fail nothing by themselves."""
        return [
            one
            for one in self.cannot_tell_yet
            if one.change.interval is None and one.change.delta is not None and one.change.delta <= -LARGE_FALL
        ]

    def rows(self) -> list[Row]:
        """All findings but the undecided, what weighs most first."""
        findings: list[Finding] = [
            *self.could_not_judge,
            *self.regressions,
            *self.fading,
            *self.below_threshold,
            *self.not_enough_data,
        ]
        return list({(r.agent, r.dimension, r.proposition, r.verdict): r for f in findings for r in f.rows()}.values())

    def open_rows(self) -> list[Row]:
        return [row for finding in self.cannot_tell_yet for row in finding.rows()]

    @property
    def sign(self) -> str:
        """What is seen first: a tick only for a pass in which nothing fell unexplained."""
        if self.verdict == "pass":
            return "⚠️" if self.fell_unsure else "✅"
        return "❌" if EXIT_CODES[self.verdict] == 1 else "⚠️"

    @property
    def outcome(self) -> str:
        """The verdict, and beside a pass the falls without an interval, which it does not cover."""
        fell = len(self.fell_unsure)
        if self.verdict != "pass" or not fell:
            return self.verdict
        scores = counted(fell, "score", "scores")
        return f"pass, but {scores} fell by a point or more without an interval to say how sure that is"

    @property
    def headline(self) -> str:
        """What was found, in a sentence."""
        whole = {(r.agent, r.dimension) for r in self.regressions if r.scope == "dimension"}
        empty = sum(lack.proposition is None for lack in self.not_enough_data)
        counts = [
            (len(whole), "dimension surely worse", "dimensions surely worse"),
            (
                sum(r.proposition is not None for r in self.regressions),
                "proposition surely worse",
                "propositions surely worse",
            ),
            (len(self.fading), "score fades within conversations", "scores fade within conversations"),
            (len(self.below_threshold), "score below its threshold", "scores below their threshold"),
            (len(self.could_not_judge), "part could not be judged enough", "parts could not be judged enough"),
            (empty, "score empty for too little data", "scores empty for too little data"),
            (
                len(self.not_enough_data) - empty,
                "proposition scored much less than before",
                "propositions scored much less than before",
            ),
            (len(self.cannot_tell_yet), "comparison is not decided", "comparisons are not decided"),
            (
                sum(one.suspected for one in self.cannot_tell_yet),
                "of them a suspected regression",
                "of them suspected regressions",
            ),
            (len(self.without_baseline), "agent without a baseline", "agents without a baseline"),
        ]
        words = [counted(n, one, many) for n, one, many in counts if n]
        return f"{', '.join(words)}." if words else "Nothing got worse."


# -- deciding
def decide(
    results: Sequence[AgentResult],
    limits: Limits,
    *,
    profiles: Sequence[PositionProfile] = (),
    simulations: Sequence[Simulation] = (),
) -> Findings:
    """The verdict on a build.

    What could not be judged enough comes first: where a part is missing, neither a pass nor a fall says what it seems to say. Then a
    regression, then a threshold. Where too little was scored to say that an agent is still itself, the verdict is "not enough data".
    That and "cannot tell yet" fail nothing unless `Limits.strict` asks for it. Of `simulations` some may be missing among the results.
    """
    unjudged: list[Unjudged] = []
    for one in simulations:
        share = len(one.unfinished) / len(one.conversations) if one.conversations else 1.0
        if not one.usable or share > limits.max_unscored:
            unjudged.append(Unjudged(agent=one.agent.slug, dimension="", why=f"simulation: {one.problem}", share=share))
    if not any(result.summary.measured for result in results):
        unjudged.append(Unjudged(agent="", dimension="", why="nothing was scored for any agent"))
    for result in results:
        unjudged += _unjudged(result, limits)
    named = {(one.agent, one.dimension) for one in unjudged}
    regressions = sorted((r for result in results for r in _regressions(result, limits)), key=lambda r: r.size)
    fading = [fall for profile in profiles for fall in _fading(profile, limits)]
    below = [one for result in results for one in _below(result, limits)]
    undecided = [one for result in results for one in _undecided(result, limits)]
    lacking = [
        lack
        for result in results
        for lack in _lacking(result)
        if not {(lack.agent, ""), (lack.agent, lack.dimension)} & named
    ]
    without = [(r.agent, r.no_baseline) for r in results if r.no_baseline and r.summary.measured]
    verdict: Verdict = "pass"
    if unjudged:
        verdict = "could not judge enough"
    elif regressions or fading:
        verdict = "regression"
    elif below:
        verdict = "below threshold"
    elif lacking:
        verdict = "not enough data"
    elif limits.strict and (undecided or without):
        verdict = "cannot tell yet"
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


def _unjudged(result: AgentResult, limits: Limits) -> Iterator[Unjudged]:
    run, agent, summary = result.run, result.agent, result.summary
    if run.status != EvaluationRun.Status.COMPLETED:
        why = f"the run is {run.status}{f': {run.error}' if run.error else ''}"
        if result.captured.held_elsewhere and run.status == EvaluationRun.Status.RUNNING:
            why = f"run {run.pk} is being judged by another process ({run.lease_owner}); try again when it ended"
        yield Unjudged(agent=agent, dimension="", why=why)
    elif result.expected and not summary.measured:
        yield Unjudged(agent=agent, dimension="", why=run.error or "nothing scored")
    for dimension, coverage in result.coverage.items():
        if coverage.failed_share > limits.max_unscored:
            could = coverage.scored + coverage.trivial + coverage.failed
            why = f"{coverage.failed} of {could} judgements failed, e.g. {coverage.example}"
            yield Unjudged(agent=agent, dimension=dimension, share=coverage.failed_share, why=why)
            continue
        of = summary.dimensions.get(dimension)
        fell_short = of is not None and of.fell_short and limits.threshold(dimension) is not None
        if (
            (dimension in limits.thresholds or fell_short)
            and result.score(dimension) is None
            and (result.expected or summary.measured)
        ):
            why = f"there is a threshold, but no score: {why_no_score(result, dimension)}"
            yield Unjudged(agent=agent, dimension=dimension, why=why)
    if limits.threshold(OVERALL) is not None and summary.overall_score is None and summary.measured:
        why = "; ".join(f"{name}: {d.reason}" for name, d in summary.dimensions.items() if d.fell_short)
        why = f"there is a threshold, but no score: {why or 'no dimension is scored'}"
        yield Unjudged(agent=agent, dimension=OVERALL, why=why)


def _lacking(result: AgentResult) -> Iterator[Lack]:
    """Dimensions without a score that had judgements enough, or have one in the baseline, or share no proposition with it; then
    propositions that are scored much less."""
    for name, summary in result.summary.dimensions.items():
        change = result.change(name)
        before = change is not None and change.baseline is not None
        nothing_shared = change is not None and change.reason == NONE_IN_COMMON
        if (summary.reason and (summary.fell_short or before)) or nothing_shared:
            yield Lack(
                agent=result.agent,
                dimension=name,
                proposition=None,
                why=summary.reason or NONE_IN_COMMON,
                coverage=summary.share,
                baseline_coverage=change.baseline_share if change is not None else None,
            )
    for lost in result.comparison.lost if result.comparison else ():
        yield Lack(
            agent=result.agent,
            dimension=lost.dimension,
            proposition=lost.proposition,
            why=str(lost).removeprefix(f"{lost.proposition}: "),
            coverage=lost.now,
            baseline_coverage=lost.before,
        )


def why_no_score(result: AgentResult, dimension: str) -> str:
    """Why a dimension of an agent has no score, for people."""
    summary = result.summary.dimensions.get(dimension)
    if summary is not None and summary.reason and summary.scored:
        return summary.reason
    coverage = result.coverage.get(dimension, Coverage())
    if coverage.beyond_judge:
        return counted(coverage.beyond_judge, "proposition needs an LLM judge", "propositions need an LLM judge")
    if coverage.not_evaluable:
        return f"{counted(coverage.not_evaluable, 'judgement')} not evaluable"
    return result.run.error or "nothing to judge"


def _regressions(result: AgentResult, limits: Limits) -> Iterator[Regression]:
    """Dimensions that fell and what surely fell in them, or without that what fell most; then propositions that fell in the others."""
    for whole in result.comparison.dimensions if result.comparison else ():
        propositions = result.comparison.propositions.get(whole.dimension, ()) if result.comparison else ()
        lower = sorted((c for c in propositions if c.delta is not None and c.delta < 0), key=lambda c: c.delta or 0.0)
        sure = [c for c in lower if c.worse and _falls(c, limits)]
        fell = whole.worse and _falls(whole, limits)
        most = lower[:MOST_PROPOSITIONS] if fell and not sure else []
        for change in sure or ([whole] if fell else []):
            lowest = change.proposition or (most[0].proposition if most else "")
            data = change.model_dump()
            yield Regression(
                agent=result.agent,
                dimension=whole.dimension,
                proposition=change.proposition or None,
                scope="dimension" if fell else "proposition",
                **{name: data[name] for name in ("baseline", "candidate", "delta", "interval")},
                fell_most=most,
                dimension_change=whole,
                worst_message=_worst(result.summary, whole.dimension, lowest),
                change=change,
            )


def _falls(change: Change, limits: Limits) -> bool:
    return change.delta is not None and change.delta <= -limits.regression_delta


def _fading(profile: PositionProfile, limits: Limits) -> Iterator[Fading]:
    """Falls between the first and the last stretch, inside the same conversations, that are sure and large enough to matter."""
    for dimension in profile.dimensions.values():
        within = dimension.within
        delta, interval = within.delta, within.interval
        if delta is None or interval is None or within.verdict != "drifted":
            continue
        if delta <= -limits.regression_delta:
            yield Fading(
                agent=profile.agent,
                dimension=dimension.dimension,
                first=within.first,
                last=within.last,
                delta=round(delta, 4),
                interval=(round(interval.low, 4), round(interval.high, 4)),
            )


def _below(result: AgentResult, limits: Limits) -> Iterator[BelowThreshold]:
    dimensions = result.summary.dimensions
    scores = [(name, result.score(name), d.share, d.weakest.id if d.weakest else "") for name, d in dimensions.items()]
    for name, score, share, weakest in (*scores, (OVERALL, result.summary.overall_score, result.summary.share, "")):
        threshold = limits.threshold(name)
        if score is not None and threshold is not None and score < threshold:
            yield BelowThreshold(
                agent=result.agent,
                dimension=name,
                score=score,
                threshold=threshold,
                proposition=weakest,
                coverage=share,
                worst_message=None if name == OVERALL else _worst(result.summary, name, weakest),
            )


def _undecided(result: AgentResult, limits: Limits) -> Iterator[Undecided]:
    for change in result.comparison.dimensions if result.comparison else ():
        measured = change.baseline is not None or change.candidate is not None
        if change.undecided and measured and not change.counted:
            falls = _falls(change, limits)
            alone = change.p_value is not None and change.p_value <= ALPHA
            hint = ""
            if falls and change.interval is None and limits.threshold(change.dimension) is None:
                hint = f"a fall without an interval fails no build: --threshold {change.dimension}=N would"
            yield Undecided(agent=result.agent, change=change, suspected=alone and falls, hint=hint)


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
