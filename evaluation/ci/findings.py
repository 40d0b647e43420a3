"""What was found in a build: each finding is a line of every report and, with `data`, an entry of ``--json``.

There is a function per kind of finding. None of them decides what it means for the build: that is `verdict`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from agents.kit.text.wording import interval_text, number, signed
from evaluation.calibration.passport import JUDGE_IS, counted_line, passport_text
from evaluation.change.change import ChangeResult
from evaluation.change.comparison import ONLY_BEFORE, Shown, shown_by
from evaluation.change.dimension_pair import NONE_IN_COMMON
from evaluation.change.examples import WorstMessage, lowest_messages, worst_message
from evaluation.ci.limits import OVERALL, Limits
from evaluation.ci.results import AgentResult
from evaluation.judge.passport import Passport
from evaluation.models import COUNTED, EvaluationRun
from evaluation.runs.numbers import DimensionSummary, RunSummary, window_statistics
from evaluation.runs.shares import TOO_LITTLE, Share, with_share, words_or_share
from evaluation.statistics.difference import ALPHA

if TYPE_CHECKING:
    from evaluation.change.position import PositionProfile
    from evaluation.simulation.conversations import Simulation

# What is found, what weighs most first; the lists of `--json`.
Kind = Literal[
    "could_not_judge",
    "without_passport",
    "regressions",
    "fading",
    "below_threshold",
    "not_enough_data",
    "one_sided",
    "cannot_tell_yet",
    "hits",
]
REGRESSION_FIGURES = ("baseline", "candidate", "delta", "interval", "baseline_hits", "hits")  # in ``--json``
MOST_PROPOSITIONS = 3  # named where no fall of a proposition is significant
WORSE = "worse"
SUSPECTED = "suspected regression"
NO_SCORE = "there is a threshold, but no score"


class Finding(BaseModel):
    """One thing that was found; every text may hold words of agents and judges.

    Attributes:
        verdict: E.g. ``worse``, ``below 5``.
        agent: Empty for the build itself. `dimension`: empty for the agent itself.
        before, now: Scores with their shares; empty where there are none. `change`: difference and interval.
        messages: Further messages that show it.
        data: Further fields of its entry in ``--json``; None where another finding has the entry.
        undecided_change: The change that does not decide.
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
    undecided_change: ChangeResult | None = None

    @property
    def name(self) -> str:
        """Return what it is about, e.g. ``ada adherence, dry-wit``."""
        name = f"{self.agent or 'all agents'} {self.dimension}".strip()
        return f"{name}, {self.proposition}" if self.proposition else name

    @property
    def figures(self) -> str:
        """Return its numbers and reason, e.g. ``8.0 · 100 % → 2.9 · 90 %, −5.1 (95 %: −6.0 to −4.2): why``; empty without any."""
        scores = " → ".join(text for text in (self.before, self.now) if text)
        numbers = ", ".join(text for text in (scores, self.change) if text)
        return ": ".join(text for text in (numbers, self.why) if text)

    @property
    def suspected(self) -> bool:
        """Return whether an undecided fall would be significant if nothing else had been compared."""
        return self.verdict == SUSPECTED


# -- what could not be judged
def find_unjudged(results: Sequence[AgentResult], simulations: Sequence[Simulation], limits: Limits) -> list[Finding]:
    """Return what could not be judged enough: of the build, of agents, and of their dimensions.

    A simulation counts where nothing of it can be used, or more of its conversations than `max_unscored` did not end; one without
    conversations counts as wholly unfinished.
    """
    findings = []
    for simulation in simulations:
        unfinished_share = 1.0
        if simulation.conversations:
            unfinished_share = len(simulation.unfinished) / len(simulation.conversations)
        if not simulation.usable or unfinished_share > limits.max_unscored:
            why = f"simulation: {simulation.problem}"
            findings.append(_unjudged_finding(why, agent=simulation.agent.slug, share=unfinished_share))
    if not any(result.has_result for result in results):
        findings.append(_unjudged_finding("nothing was scored for any agent"))
    for result in results:
        findings += _unjudged_agent(result)
        findings += _unjudged_dimensions(result, limits)
        findings += _unjudged_overall_score(result, limits)
    return findings


def find_without_passport(
    results: Sequence[AgentResult], passports: Sequence[Passport], limits: Limits
) -> Iterator[Finding]:
    """Yield the dimensions in which the judge is not shown to be usable, with what would show it; none unless that is required.

    Counted dimensions alone have no passport that could be required, which is a finding, too.
    """
    if not limits.require_passport:
        return
    counted_only = "" if passports else counted_line(name for result in results for name in result.run.dimensions)
    if counted_only:
        yield Finding(
            kind="without_passport",
            verdict="no passport to require",
            agent="",
            dimension="",
            why=counted_only,
            data={"judge": results[0].run.judge, "procedure": results[0].run.procedure, "missing": []},
        )
    for passport in passports:
        if passport.is_usable:
            continue
        yield Finding(
            kind="without_passport",
            verdict=JUDGE_IS[passport.verdict],
            agent="",
            dimension=passport.dimension,
            why=passport_text(passport),
            data={"judge": passport.judge, "procedure": passport.procedure, "missing": passport.missing},
        )


def _unjudged_finding(why: str, *, agent: str = "", dimension: str = "", share: float | None = None) -> Finding:
    """Return the finding that something could not be judged: the build (no `agent`), an agent (no `dimension`), or a dimension."""
    return Finding(
        kind="could_not_judge",
        verdict="not judged",
        agent=agent,
        dimension=dimension,
        why=why,
        data={"why": why, "share": share},
    )


def _unjudged_agent(result: AgentResult) -> Iterator[Finding]:
    """Yield why nothing can be said of an agent: its evaluation did not complete, or it must have a score and has none."""
    run = result.run
    if run.status == EvaluationRun.Status.COMPLETED:
        if result.expected and not result.has_result:
            yield _unjudged_finding(run.error or "nothing scored", agent=result.agent)
        return
    if result.captured.held_elsewhere and run.status == EvaluationRun.Status.RUNNING:
        why = f"run {run.pk} is being judged by another process ({run.lease_owner}); try again when it ended"
    elif run.error:
        why = f"the run is {run.status}: {run.error}"
    else:
        why = f"the run is {run.status}"
    yield _unjudged_finding(why, agent=result.agent)


def _unjudged_dimensions(result: AgentResult, limits: Limits) -> Iterator[Finding]:
    """Yield the dimensions of which too many judgements failed, or that have a threshold and no score."""
    for dimension, coverage in result.coverage.items():
        if coverage.failed_share > limits.max_unscored:
            why = f"{coverage.failed} of {coverage.judgeable} judgements failed, e.g. {coverage.example}"
            yield _unjudged_finding(why, agent=result.agent, dimension=dimension, share=coverage.failed_share)
        elif _lacks_required_score(result, dimension, limits):
            why = f"{NO_SCORE}: {result.why_no_score(dimension)}"
            yield _unjudged_finding(why, agent=result.agent, dimension=dimension)


def _lacks_required_score(result: AgentResult, dimension: str, limits: Limits) -> bool:
    """Return whether a dimension has a threshold, and no score to hold against it although it must have one.

    A threshold of its own always demands a score; that for all dimensions only where too few of enough judgements were scored.
    """
    if result.score(dimension) is not None:
        return False
    # An agent that was not named and has no baseline may have nothing scored at all.
    if not result.expected and not result.summary.measured:
        return False
    # Statistics of a window prove what is wrong, or nothing: such a dimension can only fall below its threshold.
    if dimension in limits.thresholds and dimension not in window_statistics(result.run.figures):
        return True
    summary = result.summary.dimensions.get(dimension)
    if summary is None or limits.threshold(dimension) is None:
        return False
    return summary.fell_short or dimension in result.lost_dimensions


def _unjudged_overall_score(result: AgentResult, limits: Limits) -> Iterator[Finding]:
    """Yield why there is no overall score, where it has a threshold and anything of the agent was scored."""
    if limits.threshold(OVERALL) is None or result.overall_score is not None or not result.summary.measured:
        return
    reasons = []
    for name, summary in result.summary.dimensions.items():
        if summary.fell_short or name in result.lost_dimensions:
            reasons.append(f"{name}: {summary.reason or result.why_no_score(name)}")
    why = "; ".join(reasons) or "no dimension is scored"
    yield _unjudged_finding(f"{NO_SCORE}: {why}", agent=result.agent, dimension=OVERALL)


# -- what got worse
@dataclass(frozen=True, slots=True, kw_only=True)
class _Regression:
    """A fall of so many points, with the findings that say it."""

    points: float
    findings: Sequence[Finding]


def find_regressions(results: Sequence[AgentResult], limits: Limits) -> list[Finding]:
    """Return the dimensions that fell, each with its propositions, and the propositions that fell in others; the largest fall first."""
    regressions: list[_Regression] = []
    for result in results:
        for change in result.changes:
            regressions += _regressions_in(result, change, limits)
    findings: list[Finding] = []
    for regression in sorted(regressions, key=lambda regression: regression.points):
        findings += regression.findings
    return findings


def _regressions_in(result: AgentResult, dimension: ChangeResult, limits: Limits) -> list[_Regression]:
    """Return the fall of a dimension as a whole; where that is none, those of its propositions."""
    propositions = result.proposition_changes(dimension.dimension)
    fallen = [change for change in propositions if (change.points or 0.0) < 0]
    fallen.sort(key=lambda change: change.points or 0.0)
    significant = [change for change in fallen if is_regression(change, limits)]
    if is_regression(dimension, limits):
        return [_regression_of_dimension(result, dimension, fallen, significant)]
    regressions = []
    for change in significant:
        finding = _regression_finding(result, change, dimension, scope="proposition")
        regressions.append(_Regression(points=change.points or 0.0, findings=[finding]))
    return regressions


def _regression_of_dimension(
    result: AgentResult, dimension: ChangeResult, fallen: Sequence[ChangeResult], significant: Sequence[ChangeResult]
) -> _Regression:
    """Return the fall of a dimension with what fell significantly in it; where nothing did, with what fell most."""
    if significant:
        # Without an entry in ``--json``: those of its propositions hold its change.
        findings = [_change_finding(result, dimension, kind="regressions", verdict=WORSE)]
        for change in significant:
            findings.append(_regression_finding(result, change, dimension, scope="dimension"))
    else:
        # A fall without a delta is one of hits.
        fell_most = [change for change in fallen if change.delta][:MOST_PROPOSITIONS]
        findings = [_regression_finding(result, dimension, dimension, scope="dimension", fell_most=fell_most)]
        for change in fell_most:
            findings.append(
                _change_finding(result, change, kind="regressions", verdict="fell most, but not significantly")
            )
    return _Regression(points=dimension.delta or 0.0, findings=findings)


def _regression_finding(
    result: AgentResult,
    change: ChangeResult,
    dimension: ChangeResult,
    *,
    scope: Literal["dimension", "proposition"],
    fell_most: Sequence[ChangeResult] = (),
) -> Finding:
    """Return the finding of a fall, with its entry in ``--json`` and the lowest message.

    Args:
        change: Of the dimension, or of a proposition in it.
        scope: Whether the whole dimension fell.
        fell_most: Propositions that fell most where no fall of one is significant: the message is of the first.
    """
    proposition = change.proposition
    if not proposition and fell_most:
        proposition = fell_most[0].proposition
    worst = _worst_message(result.summary, change.dimension, proposition)
    further = []
    if change.hits is not None:
        further = lowest_messages(result.run.pk, change.dimension, change.proposition)[1:]  # the first is `worst`
    dumped = change.model_dump()
    data: dict[str, Any] = {"proposition": change.proposition or None, "scope": scope}
    for figure in REGRESSION_FIGURES:
        if figure in dumped:
            data[figure] = dumped[figure]
    if fell_most:
        data["fell_most"] = [fallen.model_dump() for fallen in fell_most]
    data["dimension_change"] = dimension.model_dump()
    data["worst_message"] = _dumped(worst)
    return _change_finding(
        result, change, kind="regressions", verdict=WORSE, worst=worst, messages=tuple(further), data=data
    )


def _change_finding(result: AgentResult, change: ChangeResult, *, kind: Kind, verdict: str, **more: Any) -> Finding:
    """Return the finding of a change with its scores, difference and interval; `more` are further fields of the finding."""
    difference = ""
    if change.points is not None:
        difference = signed(change.shown_points)
        if change.interval:
            difference += f" (95 %: {interval_text(change.interval)})"
    return Finding(
        kind=kind,
        verdict=verdict,
        agent=result.agent,
        dimension=change.dimension,
        proposition=change.proposition,
        before=_figure(change, change.baseline, change.baseline_share, change.baseline_hits),
        now=_figure(change, change.candidate, change.share, change.hits),
        change=difference,
        **more,
    )


def _figure(change: ChangeResult, score: float | None, share: Share | None, hits: Share | None) -> str:
    if hits is not None:
        return f"hits against it in {hits} messages"
    return words_or_share(number(score), share, of_words=change.of_words)


def fell_far(change: ChangeResult, limits: Limits) -> bool:
    """Return whether a change is a fall that is large enough to be a regression, were it significant."""
    return change.points is not None and change.points <= -limits.regression_delta


def is_regression(change: ChangeResult, limits: Limits) -> bool:
    """Return whether a change is a fall that is significant and large enough."""
    return change.worse and fell_far(change, limits)


def find_fading(profiles: Sequence[PositionProfile], limits: Limits) -> list[Finding]:
    """Return the falls from the first to the last stretch of the same conversations that are significant and large enough to matter."""
    findings = []
    for profile in profiles:
        for dimension in profile.dimensions.values():
            change = dimension.within
            if change.verdict != "drifted" or change.interval is None or not fell_far(change, limits):
                continue
            dumped = change.model_dump()
            findings.append(
                Finding(
                    kind="fading",
                    verdict="fades",
                    agent=profile.agent,
                    dimension=dimension.dimension,
                    before=f"positions {change.first}",
                    now=change.last,
                    change=f"{signed(change.shown_points)} (95 %: {interval_text(change.interval)})",
                    data={figure: dumped[figure] for figure in ("first", "last", "delta", "interval")},
                )
            )
    return findings


def find_below_threshold(results: Sequence[AgentResult], limits: Limits) -> list[Finding]:
    """Return the scores that are below their threshold: of dimensions, then the overall score."""
    findings = []
    for result in results:
        for name, summary in result.summary.dimensions.items():
            score = result.score(name)
            threshold = limits.threshold(name)
            if score is None or threshold is None or score >= threshold:
                continue
            weakest = summary.weakest.id if summary.weakest else ""
            worst = _worst_message(result.summary, name, weakest)
            findings.append(_below_threshold_finding(result, name, score, threshold, summary.share, weakest, worst))
        overall_score = result.overall_score
        threshold = limits.threshold(OVERALL)
        if overall_score is not None and threshold is not None and overall_score < threshold:
            findings.append(_below_threshold_finding(result, OVERALL, overall_score, threshold, result.summary.share))
    return findings


def _below_threshold_finding(
    result: AgentResult,
    dimension: str,
    score: float,
    threshold: float,
    share: Share | None,
    weakest: str = "",
    worst: WorstMessage | None = None,
) -> Finding:
    """Return the finding that a score is below its threshold, with the weakest proposition and its lowest message."""
    return Finding(
        kind="below_threshold",
        verdict=f"below {threshold:g}",
        agent=result.agent,
        dimension=dimension,
        now=with_share(f"{score:.1f}", share),
        why=f"lowest: {weakest}" if weakest else "",
        worst=worst,
        data={
            "score": score,
            "threshold": threshold,
            "proposition": weakest,
            "coverage": _rounded(share),
            "worst_message": _dumped(worst),
        },
    )


# -- what says too little
def find_not_enough_data(results: Sequence[AgentResult], unjudged: Sequence[Finding]) -> list[Finding]:
    """Return the dimensions with too little for a score, and the propositions that are scored much less than in the baseline.

    Args:
        unjudged: What was found already: these agents and dimensions are left out.
    """
    found_already = {(finding.agent, finding.dimension) for finding in unjudged}
    findings = []
    for result in results:
        if (result.agent, "") in found_already:  # nothing can be said of the agent as a whole
            continue
        for finding in (*_dimensions_without_score(result), *_scored_much_less(result)):
            if (finding.agent, finding.dimension) not in found_already:
                findings.append(finding)
    return findings


def _dimensions_without_score(result: AgentResult) -> Iterator[Finding]:
    """Yield the dimensions that have too little for a score, or no proposition that is scored in the baseline, too."""
    for name, summary in result.summary.dimensions.items():
        if name in result.lost_dimensions:
            continue  # `_scored_much_less` has them
        change = result.change(name)
        nothing_shared = change is not None and change.reason == NONE_IN_COMMON
        if nothing_shared or _lacks_score_it_should_have(result, summary, change):
            yield _too_little_finding(
                result,
                dimension=name,
                why=summary.reason or NONE_IN_COMMON,
                now=summary.share,
                before=change.baseline_share if change is not None else None,
            )


def _lacks_score_it_should_have(result: AgentResult, summary: DimensionSummary, change: ChangeResult | None) -> bool:
    """Return whether too little is scored of a dimension that should have a score.

    An agent that was not named and has no baseline may have few judgements: it lacks a score only where there were enough of them.
    """
    if not summary.reason:  # it has enough for a score
        return False
    had_score = change is not None and change.baseline is not None
    partly_scored = result.expected and summary.scored > 0
    return summary.fell_short or had_score or partly_scored


def _scored_much_less(result: AgentResult) -> Iterator[Finding]:
    """Yield the propositions (or whole dimensions) that are scored significantly less than in the baseline."""
    for lost in result.comparison.lost if result.comparison else ():
        yield _too_little_finding(
            result,
            dimension=lost.dimension,
            proposition=lost.proposition,
            why=str(lost).removeprefix(f"{lost.proposition}: "),  # the finding names it anyway
            now=lost.now,
            before=lost.before,
        )


def _too_little_finding(
    result: AgentResult, *, dimension: str, why: str, now: Share | None, before: Share | None, proposition: str = ""
) -> Finding:
    """Return the finding that too little is scored, with the share now and before."""
    missing = result.missing(dimension) if not proposition else ""
    reasons = (why.removeprefix(f"{TOO_LITTLE}: "), missing)
    return Finding(
        kind="not_enough_data",
        verdict=TOO_LITTLE,
        agent=result.agent,
        dimension=dimension,
        proposition=proposition,
        before=with_share("", before),
        now=with_share("", now) if before else "",  # the share alone, e.g. "24 %": beside one before it
        why="; ".join(reason for reason in reasons if reason),
        data={
            "proposition": proposition or None,
            "why": why,
            "missing": missing,
            "coverage": _rounded(now),
            "baseline_coverage": _rounded(before),
        },
    )


def find_one_sided(results: Sequence[AgentResult]) -> list[Finding]:
    """Return the dimensions that are scored now or in the baseline only, each with the messages that scored lowest now.

    Those that have too little for a score now are found by `find_not_enough_data`.
    """
    findings = []
    for result in results:
        for one_sided in result.comparison.shown if result.comparison else ():
            summary = result.summary.dimensions.get(one_sided.dimension)
            too_little_now = summary is not None and summary.reason
            if not one_sided.proposition and not too_little_now:  # with a proposition it shows hits: `find_hits`
                findings.append(_one_sided_finding(result, one_sided))
    return findings


def _one_sided_finding(result: AgentResult, one_sided: Shown) -> Finding:
    """Return the finding that a dimension is scored on one side only; of a score now with its lowest messages."""
    before = ""
    now = ""
    lowest: list[WorstMessage] = []
    if one_sided.verdict == ONLY_BEFORE:
        before = one_sided.figures
    else:
        now = one_sided.figures
        lowest = lowest_messages(result.run.pk, one_sided.dimension)
    missing = result.missing(one_sided.dimension)
    data = one_sided.model_dump(exclude={"dimension"})
    data["missing"] = missing
    data["messages"] = [message.model_dump() for message in lowest]
    return Finding(
        kind="one_sided",
        verdict=one_sided.verdict,
        agent=result.agent,
        dimension=one_sided.dimension,
        before=before,
        now=now,
        why=missing,
        worst=lowest[0] if lowest else None,
        messages=tuple(lowest[1:]),
        data=data,
    )


def find_undecided(results: Sequence[AgentResult], limits: Limits) -> list[Finding]:
    """Return the dimensions scored in both of which more judgements could decide, the largest fall first; counts are left out."""
    findings = []
    for result in results:
        for change in result.changes:
            scored_in_both = change.baseline is not None and change.candidate is not None
            if not change.undecided or not scored_in_both or change.counted:
                continue
            # `p_value` is not corrected for all that was compared.
            suspected = fell_far(change, limits) and change.p_value is not None and change.p_value <= ALPHA
            finding = _change_finding(
                result,
                change,
                kind="cannot_tell_yet",
                verdict=SUSPECTED if suspected else change.verdict,
                why=change.reason,
                undecided_change=change,
                data={"suspected_regression": suspected, **change.model_dump()},
            )
            findings.append(finding)
    return sorted(findings, key=_points_changed)


def _points_changed(finding: Finding) -> float:
    change = finding.undecided_change
    return 0.0 if change is None else change.delta or 0.0


def find_hits(results: Sequence[AgentResult], limits: Limits) -> list[Finding]:
    """Return the propositions compared by hits that are no regression: more hits, not significantly; no more; fewer. They fail nothing."""
    findings = []
    for result in results:
        for dimension in result.changes:
            for change in result.proposition_changes(dimension.dimension):
                by_hits = shown_by(change)
                if change.hits is None or by_hits is None or is_regression(change, limits):
                    continue
                data = {"proposition": change.proposition, "verdict": by_hits.verdict, "figures": by_hits.figures}
                findings.append(_change_finding(result, change, kind="hits", verdict=by_hits.verdict, data=data))
    return findings


def _worst_message(summary: RunSummary, dimension: str, proposition: str) -> WorstMessage | None:
    """Return the lowest judgement of a proposition, for a channel's dimension of the agent's channels; None where there is none."""
    if dimension in COUNTED:
        return None
    channels = summary.dimensions[dimension].channels if dimension in summary.dimensions else ()
    runs = [channel.run for channel in channels] or [summary.run]
    return worst_message(runs, dimension, proposition)


def _rounded(share: Share | None) -> float | None:
    return None if share is None else share.rounded


def _dumped(message: WorstMessage | None) -> dict[str, Any] | None:
    return None if message is None else message.model_dump()
