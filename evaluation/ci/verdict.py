"""From measurements to a verdict and an exit code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evaluation.change.comparison import NONE_IN_COMMON, Change
from evaluation.ci.coverage import Coverage
from evaluation.ci.findings import BelowThreshold, Fading, Findings, Lack, Open, Regression, Unjudged, Verdict, worst_of
from evaluation.ci.gather import AgentResult
from evaluation.ci.limits import EVERY, OVERALL, Limits
from evaluation.statistics.difference import ALPHA
from evaluation.wording import counted

MOST_PROPOSITIONS = 3  # named where of none of them it is sure that it fell
CODES: dict[Verdict, int] = {
    "pass": 0,
    "regression": 1,
    "below threshold": 1,
    "could not judge enough": 2,
    "not enough data": 2,  # with `Limits.strict`, else 0
    "cannot tell yet": 2,
}


def decide(
    results: Sequence[AgentResult],
    limits: Limits,
    *,
    fading: Sequence[Fading] = (),
    missing: Sequence[Unjudged] = (),
) -> Findings:
    """The verdict on a build.

    What could not be judged enough comes first: where a part is missing, neither a pass nor a fall says what it seems to say. Then a
    regression, then a threshold. Where too little was scored to say that an agent is still itself, the verdict is "not enough data".
    That and "cannot tell yet" fail nothing unless `Limits.strict` asks for it.

    Args:
        results: The agents that were measured.
        limits: What they are held to.
        fading: Falls within long conversations.
        missing: What was to be measured and is not among the results.
    """
    unjudged = [
        *missing,
        *_nothing_at_all(results),
        *(found for result in results for found in _unjudged(result, limits)),
    ]
    regressions = sorted((r for result in results for r in _regressions(result, limits)), key=lambda r: r.size)
    below = [found for result in results for found in _below(result, limits)]
    undecided = [found for result in results for found in _undecided(result, limits)]
    named = {(found.agent, found.dimension) for found in unjudged}
    lacking = tuple(
        found
        for result in results
        for found in _lacking(result)
        if not {(found.agent, ""), (found.agent, found.dimension)} & named
    )
    without = tuple((r.agent, r.no_baseline) for r in results if r.no_baseline and r.summary.measured)
    falls = tuple(fading)
    verdict: Verdict = "pass"
    if unjudged:
        verdict = "could not judge enough"
    elif regressions or falls:
        verdict = "regression"
    elif below:
        verdict = "below threshold"
    elif lacking:
        verdict = "not enough data"
    elif limits.strict and (undecided or without):
        verdict = "cannot tell yet"
    return Findings(
        verdict=verdict,
        exit_code=0 if verdict == "not enough data" and not limits.strict else CODES[verdict],
        regressions=tuple(regressions),
        below=tuple(below),
        fading=falls,
        unjudged=tuple(unjudged),
        undecided=tuple(sorted(undecided, key=lambda found: found.change.delta or 0.0)),
        without_baseline=without,
        lacking=lacking,
    )


def _nothing_at_all(results: Sequence[AgentResult]) -> Iterator[Unjudged]:
    if not any(result.summary.measured for result in results):
        yield Unjudged(agent="", dimension="", why="nothing was scored for any agent")


def _unjudged(result: AgentResult, limits: Limits) -> Iterator[Unjudged]:
    run = result.run
    if run.status != run.Status.COMPLETED:
        why = f"the run is {run.status}{f': {run.error}' if run.error else ''}"
        if result.captured.held_elsewhere and run.status == run.Status.RUNNING:
            why = f"run {run.pk} is being judged by another process ({run.lease_owner}); try again when it ended"
        yield Unjudged(agent=result.agent, dimension="", why=why)
    elif result.expected and not result.summary.measured:
        yield Unjudged(agent=result.agent, dimension="", why=run.error or "nothing scored")
    for dimension, found in result.coverage.items():
        if found.failed_share > limits.max_unscored:
            yield Unjudged(
                agent=result.agent,
                dimension=dimension,
                share=found.failed_share,
                why=f"{found.failed} of {found.scored + found.trivial + found.failed} judgements failed, e.g. {found.example}",
            )
        elif (
            (dimension in limits.thresholds or (_short(result, dimension) and limits.threshold(dimension) is not None))
            and result.score(dimension) is None
            and (result.expected or result.summary.measured)
        ):
            yield Unjudged(
                agent=result.agent,
                dimension=dimension,
                why=f"there is a threshold, but no score: {why_no_score(result, dimension)}",
            )

    if limits.threshold(OVERALL) is not None and result.summary.overall_score is None and result.summary.measured:
        why = "; ".join(f"{name}: {d.reason}" for name, d in result.summary.dimensions.items() if d.fell_short)
        yield Unjudged(
            agent=result.agent,
            dimension=OVERALL,
            why=f"there is a threshold, but no score: {why or 'no dimension is scored'}",
        )


def _short(result: AgentResult, dimension: str) -> bool:
    found = result.summary.dimensions.get(dimension)
    return found is not None and found.fell_short


def _lacking(result: AgentResult) -> Iterator[Lack]:
    """Dimensions without a score that had judgements enough, or have one in the baseline, or share no proposition with it; then
    propositions that are scored much less."""
    for name, found in result.summary.dimensions.items():
        change = result.change(name)
        before = change is not None and change.baseline is not None
        nothing_shared = change is not None and change.reason == NONE_IN_COMMON
        if (found.reason and (found.fell_short or before)) or nothing_shared:
            why, share = found.reason or NONE_IN_COMMON, change.baseline_share if change is not None else None
            yield Lack(agent=result.agent, dimension=name, proposition="", why=why, now=found.share, before=share)
    for lost in result.comparison.lost if result.comparison else ():
        yield Lack(
            agent=result.agent,
            dimension=lost.dimension,
            proposition=lost.proposition,
            why=str(lost).removeprefix(f"{lost.proposition}: "),
            now=lost.now,
            before=lost.before,
        )


def why_no_score(result: AgentResult, dimension: str) -> str:
    """Why a dimension of an agent has no score, for people."""
    summary = result.summary.dimensions.get(dimension)
    if summary is not None and summary.reason and summary.scored:
        return summary.reason
    found = result.coverage.get(dimension, Coverage())
    if found.beyond_judge:
        return counted(found.beyond_judge, "claim needs an LLM judge", "claims need an LLM judge")
    if found.not_evaluable:
        return f"{counted(found.not_evaluable, 'judgement')} not evaluable"
    return result.run.error or "nothing to judge"


def _regressions(result: AgentResult, limits: Limits) -> Iterator[Regression]:
    """Dimensions that fell and what surely fell in them, or without that what fell most; then propositions that fell in the others."""
    for whole in result.comparison.dimensions if result.comparison else ():
        propositions = result.comparison.propositions.get(whole.dimension, ()) if result.comparison else ()
        lower = sorted((c for c in propositions if c.delta is not None and c.delta < 0), key=lambda c: c.delta or 0.0)
        sure, fell = [c for c in lower if _fell(c, limits)], _fell(whole, limits)
        most = tuple(lower[:MOST_PROPOSITIONS]) if fell and not sure else ()
        for change in sure or ([whole] if fell else []):
            lowest = change.proposition or (most[0].proposition if most else "")
            yield Regression(
                agent=result.agent,
                scope="dimension" if fell else "proposition",
                change=change,
                whole=whole,
                worst=worst_of(result.summary, whole.dimension, lowest),
                fell_most=most,
            )


def _fell(change: Change, limits: Limits) -> bool:
    return change.worse and change.delta is not None and change.delta <= -limits.regression_delta


def _below(result: AgentResult, limits: Limits) -> Iterator[BelowThreshold]:
    for name, found in result.summary.dimensions.items():
        score, threshold = result.score(name), limits.threshold(name)
        if score is not None and threshold is not None and score < threshold:
            weakest = found.weakest.id if found.weakest else ""
            worst = worst_of(result.summary, name, weakest)
            yield BelowThreshold(
                agent=result.agent,
                dimension=name,
                score=score,
                threshold=threshold,
                proposition=weakest,
                worst=worst,
                share=found.share,
            )
    overall, threshold = result.summary.overall_score, limits.threshold(OVERALL)
    if overall is not None and threshold is not None and overall < threshold:
        yield BelowThreshold(
            agent=result.agent,
            dimension=OVERALL,
            score=overall,
            threshold=threshold,
            proposition="",
            worst=None,
            share=result.summary.share,
        )


def _undecided(result: AgentResult, limits: Limits) -> Iterator[Open]:
    for change in result.comparison.dimensions if result.comparison else ():
        measured = change.baseline is not None or change.candidate is not None
        if change.undecided and measured and not change.counted:
            yield Open(
                agent=result.agent,
                change=change,
                suspected=_suspected(change, limits),
                hint=_hint(change, limits),
            )


def _suspected(change: Change, limits: Limits) -> bool:
    alone = change.p_value is not None and change.p_value <= ALPHA
    return alone and change.delta is not None and change.delta <= -limits.regression_delta


def _hint(change: Change, limits: Limits) -> str:
    """What would fail a build over a fall of which no interval says how sure it is; empty where a threshold is set already."""
    fell = change.interval is None and change.delta is not None and change.delta <= -limits.regression_delta
    if not fell or limits.threshold(change.dimension) is not None:
        return ""
    return f"a fall without an interval fails no build: --threshold {change.dimension}=N would"


def least_scores(limits: Limits) -> str:
    """The thresholds for people, e.g. ``5, fluency 4``; empty without any."""
    return ", ".join(
        f"{name} {value:g}".strip() for name, value in sorted(limits.thresholds.items(), key=lambda t: t[0] != EVERY)
    )
