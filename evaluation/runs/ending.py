"""How a judged evaluation ends: its outcome and numbers, what is stored beside it, and what follows."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import sentry_sdk
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.module_loading import import_string

from agents.kit.capability import declared_list
from agents.kit.models.lease import Leasable
from agents.kit.running import is_outage
from agents.kit.text.wording import counted
from agents.kit.work.batches import forget_answers
from evaluation.judge.identity import served_models_of
from evaluation.models import CHANNEL_DIMENSIONS, ChannelShare, EvaluationRun, EvaluationScore
from evaluation.runs.failures import failed_call, judge_answered
from evaluation.runs.judging import EvaluationContext
from evaluation.runs.numbers import DimensionSummary, RunSummary
from evaluation.runs.planning import subject_of
from evaluation.runs.summary import WITHOUT_SCORE, summarize, summarize_all
from evaluation.scorers import SCORERS
from evaluation.scorers.subjects import Subject

logger = logging.getLogger(__name__)

Status = Leasable.Status
BATCH_PAUSE = timedelta(minutes=10)  # between two tries to submit a batch for which the budget had no room
SIMULATED_ALONE = "speech was simulated with one agent at a time: there is no conversation of agents to measure"


def end_all(contexts: Sequence[EvaluationContext], *, alerts: bool) -> None:
    """End judged runs: channels first, because their numbers are part of their agents' numbers."""
    of_channels = [context for context in contexts if context.run.agent_id is None]
    of_agents = [context for context in contexts if context.run.agent_id is not None]
    for ending in (of_channels, of_agents):
        summaries = summarize_all([context.run for context in ending])
        for context, summary in zip(ending, summaries, strict=True):
            _end(context, summary, alerts=alerts)
    # Two processes may end the two runs of a link at the same time. Now that this one has committed, one of them sees both.
    follow_links([context.run for context in contexts], alerts=alerts)


def _end(context: EvaluationContext, summary: RunSummary, *, alerts: bool) -> None:
    """Store a judged run's numbers and outcome, and what follows from them; nothing where another worker has the run now.

    Only a completed run has a score. What the apps above keep of an agent's is stored with it, and their `judgement_observers` are called
    with any completed run; what follows from it is computed after that.
    """
    run = context.run
    outcome = _outcome(context, summary)
    completed = outcome.status == Status.COMPLETED
    score = summary.overall_score if completed else None
    # In one transaction: a run is not completed without what `evaluation_completed` stores, such as its baselines.
    with transaction.atomic():
        ended = run.finish(
            owner=context.leases.owner,
            status=outcome.status,
            error=outcome.reason,
            overall_score=score,
            token_usage=summary.tokens,
            served_models=served_models_of(run),
        )
        if not ended:  # another worker has it
            return
        if outcome.status == Status.PAUSED_BUDGET and run.batch:
            # What is spent may leave room that the next batch does not find: tried again, but not at once.
            EvaluationRun.objects.filter(pk=run.pk).update(lease_expires_at=timezone.now() + BATCH_PAUSE)
        if completed and isinstance(context.subject, Subject):
            _store_completed(run, summary, context.subject, linked=False)
        if completed and run.batch:
            forget_answers(run.work_id)
        if completed:
            for path in declared_list("judgement_observers"):
                import_string(path)(run)
    if completed:
        _follow_up(run, alerts=alerts)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The status with which a judged run ends, and the reason where it has no number."""

    status: Status
    reason: str = ""


def _outcome(context: EvaluationContext, summary: RunSummary) -> _Outcome:
    """Decide how a judged run ends.

    With judgements left it is paused where the budget is the reason, else failed. It failed, too, where calls failed and the judge answered
    nothing. Otherwise it is completed, with a reason where it has no number.
    """
    run = context.run
    own = [dimension for name, dimension in summary.dimensions.items() if name in run.own_dimensions]
    judge_problem = context.refused or context.health.down  # why no batch was accepted, or no call answered
    pending = sum(dimension.pending for dimension in own)
    if pending and context.budget.reason and not judge_problem:
        return _Outcome(Status.PAUSED_BUDGET, context.budget.reason)
    if pending:
        left = counted(pending, "judgement is", "judgements are")
        return _Outcome(Status.FAILED, judge_problem or f"{left} still pending")
    failure = failed_call(run)
    if failure and _has_no_answer(run, own):
        return _Outcome(Status.FAILED, judge_problem or f"the judge scored nothing; for example {failure}")
    if not summary.measured:
        return _Outcome(Status.COMPLETED, _why_not_measured(context, summary))
    return _Outcome(Status.COMPLETED)


def _has_no_answer(run: EvaluationRun, dimensions: Sequence[DimensionSummary]) -> bool:
    """Return whether nothing was scored, or only what rules and preconditions settle without the judge."""
    any_scored = any(dimension.scored for dimension in dimensions)
    return not any_scored or not judge_answered(run)


def _why_not_measured(context: EvaluationContext, summary: RunSummary) -> str:
    """Say why a completed run has no number: too little was scored; else why nothing could be; else the first reason of a judgement."""
    run = context.run
    too_little = [f"{name}: {part.reason}" for name, part in summary.dimensions.items() if part.reason and part.scored]
    if too_little:
        return "; ".join(too_little)
    reasons = [SCORERS[dimension].not_evaluable(context.subject) for dimension in run.own_dimensions]
    reasons.append(_why_no_channel(run))
    distinct = dict.fromkeys(reason for reason in reasons if reason)
    if distinct:
        return f"nothing scored: {'; '.join(distinct)}"
    unscored = EvaluationScore.objects.filter(evaluation_run=run, status="unscored")
    first_reason = unscored.values_list("reason", flat=True).first()
    return f"nothing scored: {first_reason or 'no proposition applies'}"


def _why_no_channel(run: EvaluationRun) -> str:
    """Say why an agent's channels give it no number; empty when it asked for none, or when they do."""
    if run.agent_id is None or not set(run.dimensions) & set(CHANNEL_DIMENSIONS):
        return ""
    if run.simulated:
        return SIMULATED_ALONE
    channel_runs = list(run.channel_runs.select_related("channel"))
    if not channel_runs:
        subject = subject_of(run)
        outside = subject.why_outside() if isinstance(subject, Subject) else ""
        return f"no channel in which the agent spoke{outside}"
    for channel_run in channel_runs:
        if channel_run.status in WITHOUT_SCORE or channel_run.error:
            return f"{channel_run.channel}: {channel_run.error or channel_run.status}"
    return ""


def _store_completed(run: EvaluationRun, summary: RunSummary, subject: Subject, *, linked: bool) -> None:
    """Have the apps above store what they keep of a completed evaluation of an agent (`evaluation_completed` in their `apps.py`).

    Args:
        linked: Whether it was completed before, and its channels brought new numbers.
    """
    for path in declared_list("evaluation_completed"):
        import_string(path)(run, summary, messages=subject.messages(), linked=linked)


def _follow_up(run: EvaluationRun, *, alerts: bool) -> None:
    """Have the apps above compute what follows from a completed evaluation, now that it is stored (`evaluation_ended` there).

    What fails there is logged: it is no fault of this evaluation, nor of those that are judged with it.

    Args:
        alerts: Whether they then look if it is worth an alert (`evaluation_alerts`); no baseline is.
    """
    followers = declared_list("evaluation_ended")
    if alerts and not run.is_baseline:
        followers += declared_list("evaluation_alerts")
    for path in followers:
        try:
            import_string(path)(run)
        except Exception as error:
            if is_outage(error):
                raise
            logger.exception("%s failed for evaluation %s", path, run.pk)
            sentry_sdk.capture_exception(error)


def follow_links(runs: Iterable[EvaluationRun], *, alerts: bool = True) -> None:
    """Bring the numbers of completed agents' runs up to date with those of their channels, after runs of either kind ended.

    It does the same however often it is called, in whatever order and process the runs end.
    """
    ended = [run.pk for run in runs]
    concerned = EvaluationRun.objects.filter(Q(pk__in=ended) | Q(channel_runs__in=ended), status=Status.COMPLETED)
    agent_runs = concerned.filter(agent__isnull=False, channel_shares__isnull=False).select_related("agent").distinct()
    # An agent's run whose channels all ended with it is up to date already.
    with_other_channels = ChannelShare.objects.filter(agent_run__in=ended).exclude(channel_run__in=ended)
    up_to_date = Q(pk__in=ended) & ~Q(pk__in=with_other_channels.values("agent_run"))
    for agent_run in agent_runs.exclude(up_to_date):
        _renew_numbers(agent_run, alerts=alerts)


def _renew_numbers(agent_run: EvaluationRun, *, alerts: bool) -> None:
    """Store a completed run's numbers again, now that its channels brought new ones, and what follows from them.

    Nothing where the run is not completed any more: it was resumed meanwhile.
    """
    summary = summarize(agent_run)
    error = "" if summary.measured else agent_run.error  # of a completed run: why it has no number
    still_completed = EvaluationRun.objects.filter(pk=agent_run.pk, status=Status.COMPLETED)
    if not still_completed.update(overall_score=summary.overall_score, error=error):
        return
    subject = subject_of(agent_run)
    if isinstance(subject, Subject):
        _store_completed(agent_run, summary, subject, linked=True)
    _follow_up(agent_run, alerts=alerts)
