"""Judge evaluations: those asked for now (`capture`), and those whose turn it is (`work_one`).

A killed one resumes where it stopped: `planning` made a pending row for each judgement, `judging` asks about those that are pending still.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from typing import Any

import sentry_sdk
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.module_loading import import_string

from agents.kit.capability import declared_list
from agents.kit.llm.endpoints import route_of
from agents.kit.models import Leasable, owner_name
from agents.kit.models.lease import LOOKS
from agents.kit.ops.telemetry import logging_about
from agents.kit.running import OUTAGE, is_outage, side_by_side
from agents.kit.text.wording import counted
from agents.kit.work.batches import forget_answers, is_waiting
from evaluation.budget import why_over_budget
from evaluation.judge.questions import JudgeHealth
from evaluation.models import CHANNEL_DIMENSIONS, COUNTED, ChannelShare, EvaluationRun, EvaluationScore
from evaluation.propositions.files import PropositionError, load_all
from evaluation.runs.batches import BatchAsking, wait_for_batches
from evaluation.runs.ideas import distinct_ideas
from evaluation.runs.judging import (
    EvaluationContext,
    Leases,
    Progress,
    Superseded,
    begin_judging,
    judge_dimension,
    lease,
)
from evaluation.runs.planning import RESUMABLE, UNFINISHED, Prepared, RunSpec, make_plan, prepare_plan, subject_of
from evaluation.runs.simulating import simulate_for
from evaluation.runs.summary import (
    WITHOUT_SCORE,
    RunSummary,
    failed_call,
    judge_answered,
    reopen_failed,
    summarize,
    summarize_all,
)
from evaluation.scorers import SCORERS
from evaluation.scorers.subjects import Ends, Subject
from evaluation.simulation.conversations import actor_of

logger = logging.getLogger(__name__)

Status = Leasable.Status
BATCH_PAUSE = timedelta(minutes=10)  # between two tries to submit a batch for which the budget had no room
SIMULATED_ALONE = "speech was simulated with one agent at a time: there is no conversation of agents to measure"


def _threads() -> int:
    """Threads that judge in this process, over evaluations and their dimensions. More would mostly wait for each other."""
    return 1 if settings.WORKER_THREADS == 1 else 2 * settings.WORKER_THREADS


class _BeingJudged:
    """Counts the evaluations that this process judges right now: the dimensions of few go side by side, those of many do not."""

    def __init__(self) -> None:
        self._number, self._lock = 0, threading.Lock()

    def __enter__(self) -> int:
        with self._lock:
            self._number += 1
            return self._number

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._number -= 1


_being_judged = _BeingJudged()


def execute(
    runs: Sequence[EvaluationRun],
    *,
    owner: str = "",
    progress: Progress = lambda run, done: None,
    hand_back: bool = True,
) -> list[EvaluationRun]:
    """Judge several runs side by side, with those of their channels; runs that another process holds are left alone.

    Args:
        runs: Pending, lost, failed or errored ones; stored judgements are not made again.
        owner: Under which they are leased; default this process.
        progress: Called with a run and the number of judgements just settled, from any thread.
        hand_back: When interrupted, leave the work to any worker; else only to the same command.

    Returns:
        The runs this call held, as they ended.
    """
    return execute_as_made([with_channels(runs)], owner=owner, progress=progress, hand_back=hand_back)


def execute_as_made(
    made: Iterable[Sequence[EvaluationRun]],
    *,
    owner: str = "",
    progress: Progress = lambda run, done: None,
    hand_back: bool = True,
    alerts: bool = True,
) -> list[EvaluationRun]:
    """The same for runs that are made, a few at a time, while those before are being judged; each after those of its channels.

    Args:
        alerts: Whether a score that fell sharply raises an alert.
    """
    owner = owner or owner_name()
    leases, health, files = Leases(owner), JudgeHealth(), cache(load_all)
    read: dict[tuple[object, ...], Ends] = {}
    held: list[EvaluationRun] = []
    crashed: set[int] = set()
    opening = partial(begin_judging, leases=leases, files=files, progress=progress, health=health, read=read)

    def jobs() -> Iterator[Callable[[], EvaluationContext | None]]:
        for runs in made:
            free = [
                r for r in runs if r.is_leased_by(owner) or r.acquire(owner=owner, lease=lease(), resumable=RESUMABLE)
            ]
            held.extend(free)
            leases.add(free)
            yield from (partial(judge, run) for run in free)

    def judge(run: EvaluationRun) -> EvaluationContext | None:
        try:
            return _judge(run, opening)
        except Exception as error:
            if not is_outage(error):
                crashed.add(run.pk)
                run.finish(owner=owner, status=Status.ERRORED, error=f"{type(error).__name__}: {error}"[:1000])
            raise

    try:
        with suppress(PropositionError):  # each run says so itself
            files()
        with sentry_sdk.start_span(op="evaluation.run", name="evaluate") as span:
            judged = side_by_side(jobs(), _threads())
            span.set_data("evaluation_runs", [run.pk for run in held])
            ended = [judging for judging in judged if judging is not None]
            for of_agents in (False, True):  # channels first: their numbers are part of their agents' numbers
                ending = [judging for judging in ended if (judging.run.agent_id is not None) is of_agents]
                for judging, summary in zip(ending, summarize_all([judging.run for judging in ending]), strict=True):
                    _end(judging, summary, alerts=alerts)
            # Again, now that it is committed: whoever ends the other run of a link sees this one, and this one sees the other.
            follow_links([judging.run for judging in ended], alerts=alerts)
    except BaseException as error:
        status, words = Status.ERRORED, f"{type(error).__name__}: {error}"[:1000]
        if is_outage(error) or (hand_back and (crashed or not isinstance(error, Exception))):
            status, words = Status.PENDING, ""  # no fault of these runs: they go on at once from what is stored
        elif not isinstance(error, Exception):
            words = "interrupted; the same command goes on with it"
        for run in held:  # those that did not end
            run.finish(owner=owner, status=status, error=words)
        if isinstance(error, Exception) and not is_outage(error):
            sentry_sdk.capture_exception(error)
        raise
    return held


def _judge(run: EvaluationRun, opening: Callable[[EvaluationRun], EvaluationContext]) -> EvaluationContext | None:
    """Judge what is pending of a run that is leased; None when it cannot be judged or waits for a batch, which is then stored."""
    finish = partial(run.finish, owner=run.lease_owner)
    if run.batch and is_waiting(run.work_id):  # named by a person: nothing of it is asked again meanwhile
        finish(status=Status.PENDING)
        return None
    if run.attempt > 1:
        reopen_failed(run)
    try:
        judging = opening(run)
    except Superseded as error:
        finish(status=Status.CANCELLED, error=str(error))
        return None
    except (PropositionError, ValueError) as error:
        finish(status=Status.FAILED, error=str(error))
        return None
    way = route_of("judge", run.judge)
    batch = BatchAsking(judging, way) if run.batch and way.is_distant else None
    if batch is not None:
        judging.ask = batch.ask
    with _being_judged as evaluations:
        at_once = 1 if batch is not None else max(1, _threads() // evaluations)
        side_by_side([partial(judge_dimension, judging, dimension) for dimension in run.own_dimensions], at_once)
    if batch is not None:
        batch.submit()
    if judging.waits:
        finish(status=Status.PENDING)
    return None if judging.waits else judging


def with_channels(runs: Sequence[EvaluationRun]) -> list[EvaluationRun]:
    """The runs, after those of their channels that are not done yet; each once."""
    linked = EvaluationRun.objects.filter(agent_runs__in=[run.pk for run in runs], status__in=UNFINISHED).distinct()
    return list({run.pk: run for run in (*linked.order_by("pk"), *runs)}.values())


def _end(judging: EvaluationContext, summary: RunSummary, *, alerts: bool) -> None:
    """Store the numbers and the outcome. A run whose judge answered nothing is failed; one with nothing to measure is completed."""
    run, failure = judging.run, judging.refused or judging.health.down
    own = [d for name, d in summary.dimensions.items() if name in run.own_dimensions]
    left = sum(d.pending for d in own)
    error = ""
    if left and judging.budget.reason and not failure:
        status, error = Status.PAUSED_BUDGET, judging.budget.reason
    elif left:
        status, error = Status.FAILED, failure or f"{counted(left, 'judgement is', 'judgements are')} still pending"
    elif (broken := failed_call(run)) and (not any(d.scored for d in own) or not judge_answered(run)):
        status, error = Status.FAILED, failure or f"the judge scored nothing; for example {broken}"
    else:
        status = Status.COMPLETED
        if not summary.measured:
            why_not = (SCORERS[d].not_evaluable(judging.subject) for d in run.own_dimensions)
            reasons = "; ".join(dict.fromkeys(filter(None, (*why_not, _why_no_channel(run)))))
            unscored = EvaluationScore.objects.filter(evaluation_run=run, status="unscored")
            first = unscored.values_list("reason", flat=True).first()
            error = f"nothing scored: {reasons or first or 'no proposition applies'}"
            if short := [f"{name}: {d.reason}" for name, d in summary.dimensions.items() if d.reason and d.scored]:
                error = "; ".join(short)
    score = summary.overall_score if status == Status.COMPLETED else None
    with (
        transaction.atomic()
    ):  # a run is not completed without what `evaluation_completed` stores, such as its baselines
        ended = run.finish(
            owner=judging.leases.owner, status=status, error=error, overall_score=score, token_usage=summary.tokens
        )
        if ended and status == Status.PAUSED_BUDGET and run.batch:
            # What is spent may leave room that the next batch does not find: looked at again, but not at once.
            EvaluationRun.objects.filter(pk=run.pk).update(lease_expires_at=timezone.now() + BATCH_PAUSE)
        if ended and status == Status.COMPLETED:
            if isinstance(judging.subject, Subject):
                _completed(run, summary, judging.subject)
            if run.batch:
                forget_answers(run.work_id)
    if ended and status == Status.COMPLETED:
        _follow_up(run, alerts=alerts)


def _completed(run: EvaluationRun, summary: RunSummary, subject: Subject, *, linked: bool = False) -> None:
    """Have the apps above store what they keep of a completed evaluation of an agent (`evaluation_completed` in their `apps.py`).

    Args:
        linked: Whether it was completed before, and its channels brought new numbers.
    """
    for path in declared_list("evaluation_completed"):
        import_string(path)(run, summary, spoken=subject.spoken(), linked=linked)


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
    linked = concerned.filter(agent__isnull=False, channel_shares__isnull=False).select_related("agent").distinct()
    # An agent's run whose channels all ended with it is up to date already.
    elsewhere = ChannelShare.objects.filter(agent_run__in=ended).exclude(channel_run__in=ended)
    for agent_run in linked.exclude(Q(pk__in=ended) & ~Q(pk__in=elsewhere.values("agent_run"))):
        summary = summarize(agent_run)
        error = "" if summary.measured else agent_run.error  # of a completed run: why it has no number
        same = EvaluationRun.objects.filter(pk=agent_run.pk, status=Status.COMPLETED)
        if not same.update(overall_score=summary.overall_score, error=error):
            continue
        if isinstance(subject := subject_of(agent_run), Subject):
            _completed(agent_run, summary, subject, linked=True)
        _follow_up(agent_run, alerts=alerts)


def _why_no_channel(run: EvaluationRun) -> str:
    """Why an agent's channels give it no number; empty when it asked for none, or when they do."""
    if run.agent_id is None or not set(run.dimensions) & set(CHANNEL_DIMENSIONS):
        return ""
    if run.simulated:
        return SIMULATED_ALONE
    channel_runs = list(run.channel_runs.select_related("channel"))
    if not channel_runs:
        subject = subject_of(run)
        return "no channel in which the agent spoke" + (subject.why_outside() if isinstance(subject, Subject) else "")
    for each in channel_runs:
        if each.status in WITHOUT_SCORE or each.error:
            return f"{each.channel}: {each.error or each.status}"
    return ""


@dataclass(frozen=True, slots=True)
class Captured:
    """The outcome for one agent or channel: its run in numbers, whether that was resumed, and whether another process holds it."""

    summary: RunSummary
    resumed: bool
    held_elsewhere: bool


def capture(
    specs: Sequence[RunSpec],
    *,
    prepared: Callable[[Sequence[EvaluationRun]], None] = lambda runs: None,
    progress: Callable[[EvaluationRun, int], None] = lambda run, done: None,
    notice: Callable[[str], None] = lambda words: None,
    alerts: bool = True,
) -> list[Captured]:
    """Evaluate an agent (or channel) per spec, going on with what an earlier attempt left unfinished (AC-6.5.7).

    Everything is planned before anything is asked, so that what cannot be measured costs nothing; the rows of the later runs are made while
    the judge reads the first questions.

    Args:
        prepared: Called with runs as they are made, each once, before anything of them is asked.
        progress: Called as judgements are made.
        notice: Called with the batches that are waited for, where specs ask for batches: this returns when they are answered.
        alerts: Whether a score that fell sharply raises an alert.
    """
    with sentry_sdk.start_transaction(op="evaluation.baseline", name="capture baselines") as trace:
        trace.set_data("agents", [spec.target.slug for spec in specs])
        files = load_all()
        plans = [make_plan(spec, files=files) for spec in specs]
        made: list[tuple[EvaluationRun, bool]] = []

        def making() -> Iterator[list[EvaluationRun]]:
            channels: Prepared = []
            known: set[int] = set()
            for plan in plans:
                made.append(prepare_plan(plan, channels=channels))
                new = [run for run in with_channels([made[-1][0]]) if run.pk not in known]
                known.update(run.pk for run in new)
                prepared(new)
                yield new

        held = {run.pk for run in execute_as_made(making(), progress=progress, hand_back=False, alerts=alerts)}

        def resume(ready: Sequence[EvaluationRun]) -> None:
            held.update(run.pk for run in execute(ready, progress=progress, hand_back=False))

        runs = with_channels([run for run, _ in made])
        if any(run.batch for run in runs):
            wait_for_batches(runs, resume=resume, notice=notice)
        stored = EvaluationRun.objects.select_related("agent", "channel").in_bulk([run.pk for run, _ in made])
        summaries = {summary.run.pk: summary for summary in summarize_all(list(stored.values()))}
        return [
            Captured(summaries[run.pk], resumed, run.pk not in held)
            for run, resumed in made
            if run.pk in summaries  # else it was deleted meanwhile
        ]


def existing(specs: Sequence[RunSpec]) -> list[Captured] | None:
    """What was measured before, when that holds for each of these specs and nothing they depend on changed since; else None.

    A baseline counts while it is the current one.
    """
    captured = []
    for spec in specs:
        digest = make_plan(spec).spec_digest
        run = EvaluationRun.objects.filter(spec_digest=digest, status=Status.COMPLETED).first()
        if run is None or (spec.is_baseline and not run.baselines.exists()):
            return None
        captured.append(Captured(summarize(run), resumed=False, held_elsewhere=False))
    return captured


def run_json(summary: RunSummary) -> dict[str, Any]:
    """A run's summary dumped, with what the apps above know of its dimensions (`summary_parts`): how far its judge can be trusted."""
    run, document = summary.run, summary.model_dump()
    agent = run.agent.slug if run.agent is not None else ""
    for path in declared_list("summary_parts"):
        import_string(path)(document["dimensions"], judge=run.judge, procedure=run.procedure, agent=agent)
    for name, dimension in document["dimensions"].items():
        if name in COUNTED and run.channel is not None:
            dimension["ideas"] = [idea.model_dump() for idea in distinct_ideas(run)]
        if name in run.figures and name in CHANNEL_DIMENSIONS:  # others are among the observations
            dimension["figures"] = run.figures[name]
        if run.simulated and name in CHANNEL_DIMENSIONS:
            dimension["reason"] = SIMULATED_ALONE
    return document


# -- the queue that workers look at
CHANNELS_TOGETHER = 4  # evaluations of channels that one piece of work does


def _paused_that_may_go_on() -> EvaluationRun | None:
    """The oldest run that paused for its budget (its agent's, or that of all channels), which has room again: a new day, a higher cap."""
    paused = EvaluationRun.objects.filter(status=Status.PAUSED_BUDGET).select_related("agent")
    paused = paused.exclude(lease_expires_at__gt=timezone.now())
    over: set[tuple[int | None, str]] = set()  # asked once per agent, and once for channels
    run: EvaluationRun
    for run in paused.order_by("created_at", "pk"):
        model = actor_of(run.agent, run.actor_model) if run.agent is not None and run.awaits_simulation else run.judge
        if (run.agent_id, model) not in over:
            if not why_over_budget(run.agent, model):
                return run
            over.add((run.agent_id, model))
    return None


def _more_channels(run: EvaluationRun, waiting: Sequence[EvaluationRun], owner: str) -> list[EvaluationRun]:
    """Lease further runs of channels to execute with one: each asks only a few questions, which alone would leave most call slots free.

    So a worker stays within 1.25 times the floor (`make bench`). Only of the same judge, whose outage stops them all, and none that a
    worker was lost with.
    """
    if run.agent_id is not None or run.deaths:
        return []
    more: list[EvaluationRun] = []
    for other in waiting:
        alike = other.agent_id is None and (other.judge, other.batch) == (run.judge, run.batch)
        fresh = other.status == EvaluationRun.Status.PENDING and not other.deaths
        if len(more) == CHANNELS_TOGETHER - 1:
            break
        try:
            if alike and fresh and other.pk != run.pk and other.acquire(owner=owner, lease=lease()):
                other.note_served()
                more.append(other)
        except OUTAGE:  # what is leased is executed, or goes back to the queue there
            break
    return more


def work_one(*, owner: str) -> bool:
    """Lease and execute the pending, lost or no longer paused run whose turn it is; return whether there was one."""
    for _ in range(LOOKS):  # other workers may have leased all rows of one look
        waiting = EvaluationRun.in_turn()
        if not waiting and (paused := _paused_that_may_go_on()) is not None:
            waiting = [paused]
        for run in waiting:
            if not run.acquire(owner=owner, lease=lease(), resumable=RESUMABLE):
                continue
            run.note_served()
            trace = sentry_sdk.start_transaction(op="evaluation.work", name="evaluate")  # a span alone is sent nowhere
            with logging_about(evaluation_run=run.pk, agent=run.agent_id), trace:
                if run.awaits_simulation:
                    simulate_for(run, owner=owner)
                else:
                    execute([run, *_more_channels(run, waiting, owner)], owner=owner)
            return True
        if not waiting:
            break
    return False
