"""Running evaluations: claim, judge what is pending, finish. A killed run is taken up where it stopped."""

from __future__ import annotations

from collections.abc import Sequence

import sentry_sdk
from django.conf import settings
from django.db import transaction

from agents.models import Claimable, owner_name
from evaluation import baselines, links
from evaluation.asking import JudgeDown, in_flight
from evaluation.budget import why_over_budget
from evaluation.execution import Judging, Progress, Session, Superseded, lease, open_session
from evaluation.failures import failed_call, judge_answered, reopen_failed
from evaluation.idea_counting import Counting
from evaluation.models import Dimension, EvaluationRun, EvaluationScore
from evaluation.planning import UNFINISHED
from evaluation.proposition_files import PropositionError
from evaluation.scorers import SCORERS
from evaluation.summary import summarize

Status = Claimable.Status
RESUMABLE = (Status.FAILED, Status.ERRORED, Status.PAUSED_BUDGET)


def _no_progress(run: EvaluationRun, done: int) -> None:
    """Progress nobody watches."""


def execute(
    runs: Sequence[EvaluationRun],
    *,
    owner: str = "",
    progress: Progress = _no_progress,
    hand_back: bool = True,
) -> list[EvaluationRun]:
    """Judge several runs together, with those of the channels they link to; calls of all of them are in flight at once.

    Runs that another process holds are left alone. Judgements that were stored before are not made again.

    Args:
        runs: What to execute; pending, lost, failed and errored ones are taken up.
        owner: The claim's name; default this process.
        progress: Called with a run and the number of items just settled.
        hand_back: When interrupted, leave the work to any worker; else only to whoever asks for the same again.

    Returns:
        The runs this call held, as they ended.
    """
    owner = owner or owner_name()
    held: list[EvaluationRun] = []
    sessions: list[Session] = []
    try:
        for run in with_channels(runs):
            if run.claim(owner=owner, lease=lease(), resumable=RESUMABLE):
                held.append(run)
                if (session := _open(run, owner)) is not None:
                    sessions.append(session)
        _judge(sessions, progress)
    except JudgeDown as error:
        _end_all(sessions, failure=str(error))
    except Exception as error:
        sentry_sdk.capture_exception(error)
        for run in held:
            run.finish(owner=owner, status=Status.ERRORED, error=f"{type(error).__name__}: {error}"[:1000])
        raise
    except BaseException:
        # Interrupted or told to stop: the work is handed back at once instead of waiting for the lease to run out.
        for run in held:
            if hand_back:
                run.finish(owner=owner, status=Status.PENDING)
            else:
                run.finish(owner=owner, status=Status.ERRORED, error="interrupted; the same command goes on with it")
        raise
    return held


def _open(run: EvaluationRun, owner: str) -> Session | None:
    """A session for a run just claimed; None when it cannot be judged, which is then its outcome."""
    if run.attempt > 1:
        reopen_failed(run)
    try:
        return open_session(run, owner)
    except Superseded as error:
        run.finish(owner=owner, status=Status.CANCELLED, error=str(error))
    except (PropositionError, ValueError) as error:
        run.finish(owner=owner, status=Status.FAILED, error=str(error))
    return None


def _judge(sessions: Sequence[Session], progress: Progress) -> None:
    """All dimensions of all sessions, with their calls in flight together; what takes several calls in a row comes first."""
    with sentry_sdk.start_span(op="evaluation.run", name="evaluate") as span:
        span.set_data("evaluation_runs", [session.run.pk for session in sessions])
        wanted = {dimension for session in sessions for dimension in session.run.own_dimensions}
        ordered = sorted(wanted, key=[Dimension.IDEAS_QUANTITY, *SCORERS].index)
        parts = [_part(sessions, dimension, progress) for dimension in ordered]
        try:
            for _ in in_flight([part.next for part in parts], deadline=settings.LLM_EVALUATION_DEADLINE):
                for session in sessions:  # those whose turn has not come keep their claims, too
                    session.keep()
        finally:
            for part in parts:
                part.close()
        _end_all(sessions)


def _part(sessions: Sequence[Session], dimension: str, progress: Progress) -> Judging | Counting:
    if dimension == Dimension.IDEAS_QUANTITY:
        return Counting(sessions, progress)
    return Judging(sessions, dimension, progress)


def with_channels(runs: Sequence[EvaluationRun]) -> list[EvaluationRun]:
    """The runs, after those of their channels that are not done yet; each once."""
    linked = EvaluationRun.objects.filter(agent_runs__in=[run.pk for run in runs], status__in=UNFINISHED).distinct()
    found = {run.pk: run for run in (*linked.order_by("pk"), *runs)}
    return list(found.values())


def _end_all(sessions: Sequence[Session], failure: str = "") -> None:
    """Channels first: their numbers are part of their agents' numbers."""
    for session in sorted(sessions, key=lambda session: session.run.agent_id is not None):
        _end(session, failure)
    # Once more, now that it is committed: whoever holds the other end of a link sees it from now on, and this sees theirs.
    links.follow(session.run for session in sessions if not session.lost)


def _end(session: Session, failure: str = "") -> None:
    """Store the numbers and the outcome. A run whose judge answered nothing is failed; one with nothing to measure is completed."""
    run = session.run
    summary = summarize(run)
    own = [d for name, d in summary.dimensions.items() if name in run.own_dimensions]
    left = sum(d.pending for d in own)
    scores = EvaluationScore.objects.filter(evaluation_run=run)
    error = ""
    if left and session.budget.reason and not failure:
        status, error = Status.PAUSED_BUDGET, session.budget.reason
    elif left:
        status, error = Status.FAILED, failure or f"{left} judgements are still pending"
    elif (broken := failed_call(run)) and (not any(d.measured for d in own) or not judge_answered(run)):
        status, error = Status.FAILED, failure or f"the judge scored nothing; for example {broken}"
    else:
        status = Status.COMPLETED
        if not summary.measured:
            found = (SCORERS[d].not_evaluable(session.subject) for d in run.own_dimensions)
            reasons = "; ".join(dict.fromkeys(filter(None, (*found, links.why_nothing(run)))))
            first = scores.filter(status="unscored").values_list("reason", flat=True).first()
            error = f"nothing scored: {reasons or first or 'no proposition applies'}"
    score = summary.overall_score if status == Status.COMPLETED else None
    with transaction.atomic():  # a run is not completed without its baselines
        ended = run.finish(
            owner=session.owner, status=status, error=error, overall_score=score, token_usage=summary.tokens
        )
        if ended and status == Status.COMPLETED and run.is_baseline and run.agent_id is not None:
            baselines.promote(run, summary)


def _paused_that_may_go_on() -> EvaluationRun | None:
    """The oldest run that paused for its agent's budget, which has room again: a new day, or a higher cap."""
    paused = EvaluationRun.objects.filter(status=Status.PAUSED_BUDGET).select_related("agent")
    over: set[int | None] = set()  # asked once per agent
    run: EvaluationRun
    for run in paused.order_by("created_at", "pk"):
        if run.agent is not None and run.agent_id not in over:
            if not why_over_budget(run.agent, run.judge):
                return run
            over.add(run.agent_id)
    return None


def work_one(*, owner: str) -> bool:
    """Claim and execute the oldest pending, lost or no longer paused run; whether there was one. What `manage.py work` calls."""
    waiting = EvaluationRun.objects.filter(EvaluationRun.claimable()).order_by("created_at", "pk").first()
    if waiting is None:
        waiting = _paused_that_may_go_on()
    if waiting is None:
        return False
    with sentry_sdk.start_transaction(op="evaluation.work", name="evaluate"):  # a span alone would be sent nowhere
        execute([waiting], owner=owner)
    return True
