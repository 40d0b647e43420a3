"""Running evaluations: claim, judge what is pending, finish. A killed run is taken up where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import cache

import sentry_sdk
from django.db import transaction
from django.utils import timezone

from agents.log_context import logging_about
from agents.models import Leasable, owner_name
from agents.work.outages import is_outage
from evaluation import links
from evaluation.asking import JudgeDown
from evaluation.batches import forget_answers, is_waiting
from evaluation.budget import why_over_budget
from evaluation.change import baselines
from evaluation.change.evidence import note_evidence
from evaluation.execution import Progress, Session, Superseded, lease, open_session
from evaluation.failures import failed_call, judge_answered, reopen_failed
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.planning import UNFINISHED
from evaluation.propositions.files import LoadedFile, PropositionError, load_all
from evaluation.scorers import SCORERS
from evaluation.scorers.base import Ends, Subject
from evaluation.simulation import actor_of
from evaluation.simulation.queued import awaits_simulation, simulate_for
from evaluation.summary import RunSummary, summarize_all
from evaluation.together import Together
from evaluation.wording import counted

Status = Leasable.Status
BATCH_PAUSE = timedelta(minutes=10)  # between two tries to hand in a batch for which the budget had no room
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
    return execute_as_made([with_channels(runs)], owner=owner, progress=progress, hand_back=hand_back)


def execute_as_made(
    made: Iterable[Sequence[EvaluationRun]],
    *,
    owner: str = "",
    progress: Progress = _no_progress,
    hand_back: bool = True,
) -> list[EvaluationRun]:
    """The same for runs that are made meanwhile, a few at a time, each after those of its channels (see `execute`).

    Going on with `made` may take its time: the calls of the runs before are in flight then.
    """
    owner = owner or owner_name()
    held: list[EvaluationRun] = []
    together = Together(_opening(made, owner, held), progress)
    try:
        with sentry_sdk.start_span(op="evaluation.run", name="evaluate") as span:
            together.judge()
            span.set_data("evaluation_runs", [session.run.pk for session in together.sessions])
            _end_all(together.sessions)
    except JudgeDown as error:
        together.open_all()
        _end_all(together.sessions, failure=str(error))
    except Exception as error:
        if is_outage(error):  # no fault of the runs: they go on from what is stored
            for run in held:
                run.finish(owner=owner, status=Status.PENDING)
            raise
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


def _opening(made: Iterable[Sequence[EvaluationRun]], owner: str, held: list[EvaluationRun]) -> Iterator[list[Session]]:
    """Claim the runs and open their sessions; those that were claimed are added to `held`."""
    files = cache(load_all)  # read once for all of them
    read: dict[tuple[object, ...], Ends] = {}  # and so are the channels that they speak in
    for runs in made:
        sessions = []
        for run in runs:
            if run.is_leased_by(owner) or run.acquire(owner=owner, lease=lease(), resumable=RESUMABLE):
                held.append(run)
                if (session := _open(run, owner, files)) is not None:
                    if isinstance(session.subject, Subject):
                        session.subject.read = read
                    sessions.append(session)
        yield sessions


def _open(run: EvaluationRun, owner: str, files: Callable[[], Sequence[LoadedFile]]) -> Session | None:
    """A session for a run just claimed; None when it cannot be judged, which is then its outcome."""
    if run.batch and is_waiting(run.work_id):  # taken up by name: nothing of it is asked again meanwhile
        run.finish(owner=owner, status=Status.PENDING)
        return None
    if run.attempt > 1:
        reopen_failed(run)
    try:
        return open_session(run, owner, files())
    except Superseded as error:
        run.finish(owner=owner, status=Status.CANCELLED, error=str(error))
    except (PropositionError, ValueError) as error:
        run.finish(owner=owner, status=Status.FAILED, error=str(error))
    return None


def with_channels(runs: Sequence[EvaluationRun]) -> list[EvaluationRun]:
    """The runs, after those of their channels that are not done yet; each once."""
    linked = EvaluationRun.objects.filter(agent_runs__in=[run.pk for run in runs], status__in=UNFINISHED).distinct()
    found = {run.pk: run for run in (*linked.order_by("pk"), *runs)}
    return list(found.values())


def _end_all(sessions: Sequence[Session], failure: str = "") -> None:
    """Channels first: their numbers are part of their agents' numbers. Runs that wait for a batch do not end yet."""
    sessions = [session for session in sessions if not (session.waits and _put_off(session))]
    for of_agents in (False, True):
        ending = [session for session in sessions if (session.run.agent_id is not None) is of_agents]
        summaries = summarize_all([session.run for session in ending])
        for session, summary in zip(ending, summaries, strict=True):
            _end(session, summary, failure)
    # Once more, now that it is committed: whoever holds the other end of a link sees it from now on, and this sees theirs.
    links.follow(session.run for session in sessions if not session.lost)


def _put_off(session: Session) -> bool:
    session.run.finish(owner=session.owner, status=Status.PENDING)
    return True


def _end(session: Session, summary: RunSummary, failure: str = "") -> None:
    """Store the numbers and the outcome. A run whose judge answered nothing is failed; one with nothing to measure is completed."""
    run, failure = session.run, session.refused or failure
    own = [d for name, d in summary.dimensions.items() if name in run.own_dimensions]
    left = sum(d.pending for d in own)
    scores = EvaluationScore.objects.filter(evaluation_run=run)
    error = ""
    if left and session.budget.reason and not failure:
        status, error = Status.PAUSED_BUDGET, session.budget.reason
    elif left:
        status, error = Status.FAILED, failure or f"{counted(left, 'judgement is', 'judgements are')} still pending"
    elif (broken := failed_call(run)) and (not any(d.scored for d in own) or not judge_answered(run)):
        status, error = Status.FAILED, failure or f"the judge scored nothing; for example {broken}"
    else:
        status = Status.COMPLETED
        if not summary.measured:
            found = (SCORERS[d].not_evaluable(session.subject) for d in run.own_dimensions)
            reasons = "; ".join(dict.fromkeys(filter(None, (*found, links.why_nothing(run)))))
            first = scores.filter(status="unscored").values_list("reason", flat=True).first()
            error = f"nothing scored: {reasons or first or 'no proposition applies'}"
            if short := [f"{name}: {d.reason}" for name, d in summary.dimensions.items() if d.reason and d.scored]:
                error = "; ".join(short)
    score = summary.overall_score if status == Status.COMPLETED else None
    with transaction.atomic():  # a run is not completed without its baselines
        ended = run.finish(
            owner=session.owner, status=status, error=error, overall_score=score, token_usage=summary.tokens
        )
        if ended and status == Status.PAUSED_BUDGET and run.batch:
            # What is spent may leave room that the next batch does not find: looked at again, but not at once.
            EvaluationRun.objects.filter(pk=run.pk).update(lease_expires_at=timezone.now() + BATCH_PAUSE)
        if ended and status == Status.COMPLETED and isinstance(session.subject, Subject):
            note_evidence(run, session.subject.spoken())
        if ended and status == Status.COMPLETED and run.is_baseline and run.agent_id is not None:
            baselines.promote(run, summary)
        if ended and status == Status.COMPLETED and run.batch:
            forget_answers(run.work_id)


def _paused_that_may_go_on() -> EvaluationRun | None:
    """The oldest run that paused for its budget (its agent's, or that of all channels), which has room again: a new day, a higher cap."""
    paused = EvaluationRun.objects.filter(status=Status.PAUSED_BUDGET).select_related("agent")
    paused = paused.exclude(lease_expires_at__gt=timezone.now())
    over: set[tuple[int | None, str]] = set()  # asked once per agent, and once for channels
    run: EvaluationRun
    for run in paused.order_by("created_at", "pk"):
        model = actor_of(run.agent) if run.agent is not None and awaits_simulation(run) else run.judge
        if (run.agent_id, model) not in over:
            if not why_over_budget(run.agent, model):
                return run
            over.add((run.agent_id, model))
    return None


def work_one(*, owner: str) -> bool:
    """Claim and execute the pending, lost or no longer paused run whose turn it is; whether there was one. What `manage.py work` calls."""
    waiting = EvaluationRun.in_turn()
    if not waiting and (paused := _paused_that_may_go_on()) is not None:
        waiting = [paused]
    for run in waiting:
        if not run.acquire(owner=owner, lease=lease(), resumable=RESUMABLE):
            continue
        run.note_served()
        about = logging_about(evaluation_run=run.pk, agent=run.agent_id)
        with about, sentry_sdk.start_transaction(op="evaluation.work", name="evaluate"):  # a span alone is sent nowhere
            if awaits_simulation(run):
                simulate_for(run, owner=owner)
            else:
                execute([run], owner=owner)
        break
    return bool(waiting)  # also when others took all of these: there may be more
