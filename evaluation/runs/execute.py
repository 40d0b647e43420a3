"""Judge evaluations: those asked for now (`capture`), and those whose turn it is (`work_one`).

A killed one resumes where it stopped: `planning` made a pending row for each judgement, `judging` asks about those that are pending still.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import sentry_sdk
from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from agents.kit.capability import declared_list
from agents.kit.llm.endpoints import route_of
from agents.kit.llm.providers import batch_problem
from agents.kit.models import Leasable, LLMBatch, owner_name
from agents.kit.models.lease import LOOKS
from agents.kit.ops.telemetry import logging_about
from agents.kit.running import OUTAGE, is_outage, side_by_side
from agents.kit.work import batches
from agents.kit.work.batches import is_waiting
from evaluation.budget import why_over_budget
from evaluation.judge.asking import JudgeHealth
from evaluation.models import CHANNEL_DIMENSIONS, COUNTED, EvaluationRun
from evaluation.propositions.files import PropositionError, load_all
from evaluation.runs.batches import BatchAsking, seconds_until_check
from evaluation.runs.ending import SIMULATED_ALONE, end_all
from evaluation.runs.failures import reopen_failed
from evaluation.runs.ideas import distinct_ideas
from evaluation.runs.judging import (
    EvaluationContext,
    Leases,
    Progress,
    Superseded,
    judge_dimension,
    lease,
    open_evaluation,
)
from evaluation.runs.numbers import RunSummary
from evaluation.runs.planning import RESUMABLE, UNFINISHED, Plan, PreparedChannel, PreparedRun, make_plan, prepare_plan
from evaluation.runs.simulating import simulate_for
from evaluation.runs.spec import RunSpec
from evaluation.runs.summary import summarize_all, waiting_words
from evaluation.scorers.reading import Ends
from evaluation.simulation.conversations import actor_of

Status = Leasable.Status
LONGEST_ERROR = 1000  # characters


def _ignore_progress(run: EvaluationRun, judgements: int) -> None:
    """Do nothing: the caller does not show progress."""


def execute(
    runs: Sequence[EvaluationRun], *, owner: str = "", progress: Progress = _ignore_progress, hand_back: bool = True
) -> list[EvaluationRun]:
    """Judge several runs side by side, with those of their channels; runs that another process holds are left alone.

    Args:
        runs: Pending, lost, failed, errored or paused ones; stored judgements are not made again.
        owner: Under which they are leased; default this process.
        progress: Called with a run and the number of judgements just settled, from any thread.
        hand_back: When interrupted, leave the work to any worker; else only to the same command.

    Returns:
        The runs this call held, as they ended.
    """
    return execute_as_made([with_channels(runs)], owner=owner, progress=progress, hand_back=hand_back)


def execute_as_made(
    portions: Iterable[Sequence[EvaluationRun]],
    *,
    owner: str = "",
    progress: Progress = _ignore_progress,
    hand_back: bool = True,
    alerts: bool = True,
) -> list[EvaluationRun]:
    """Judge runs like `execute`, but make them while those before are being judged.

    On an error that no run foresees, an outage, or an interrupt, the leases of all that did not end are given up; then it is raised.

    Args:
        portions: Makes a few runs at a time, each after those of its channels.
        alerts: Whether a score that fell sharply raises an alert.
    """
    execution = _Execution(owner or owner_name(), progress)
    try:
        with suppress(PropositionError):  # an error is not cached: each run meets it again, and fails with it
            execution.load_files()
        with sentry_sdk.start_span(op="evaluation.run", name="evaluate") as span:
            judged = side_by_side(execution.jobs(portions), _threads())
            span.set_data("evaluation_runs", [run.pk for run in execution.leased])
            end_all([context for context in judged if context is not None], alerts=alerts)
    except BaseException as error:
        execution.release_unended(error, hand_back=hand_back)
        if isinstance(error, Exception) and not is_outage(error):
            sentry_sdk.capture_exception(error)
        raise
    return execution.leased


def _threads() -> int:
    """Return how many threads judge for one call, over evaluations and their dimensions. More would mostly wait for each other."""
    if settings.WORKER_THREADS == 1:
        return 1
    return 2 * settings.WORKER_THREADS


class _JudgedNow:
    """Counts the evaluations that all threads of this process judge right now."""

    def __init__(self) -> None:
        self._number = 0
        self._lock = threading.Lock()

    @contextmanager
    def one_more(self) -> Iterator[int]:
        """Count one more inside; give the number with it."""
        with self._lock:
            self._number += 1
            number = self._number
        try:
            yield number
        finally:
            with self._lock:
                self._number -= 1


_judged_now = _JudgedNow()


class _Execution:
    """Runs that are judged together. They share leases, what is known of the judge's health, proposition files and window ends.

    Attributes:
        leased: The runs that were leased so far.
        crashed: Whether one of them ended with an error that nobody foresaw.
    """

    def __init__(self, owner: str, progress: Progress) -> None:
        self.owner = owner
        self.progress = progress
        self.leases = Leases(owner)
        self.health = JudgeHealth()
        self.load_files = cache(load_all)
        self.window_ends: dict[tuple[object, ...], Ends] = {}
        self.leased: list[EvaluationRun] = []
        self.crashed = False

    def jobs(self, portions: Iterable[Sequence[EvaluationRun]]) -> Iterator[Callable[[], EvaluationContext | None]]:
        """Lease the runs as they are made; yield a job for each that no other process holds."""
        for runs in portions:
            new: list[EvaluationRun] = []
            for run in runs:
                if run.is_leased_by(self.owner) or run.acquire(owner=self.owner, lease=lease(), resumable=RESUMABLE):
                    new.append(run)
            self.leased.extend(new)
            self.leases.add(new)
            for run in new:
                yield partial(self.judge, run)

    def judge(self, run: EvaluationRun) -> EvaluationContext | None:
        """Judge what is pending of a run that is leased. An error that nobody foresaw ends the run as errored, and is raised.

        Returns:
            What is needed to end the run. None when it cannot be judged, or waits for a batch: that is then stored, and the run given up.
        """
        try:
            return self._judge_pending(run)
        except Exception as error:
            if not is_outage(error):
                self.crashed = True
                run.finish(owner=self.owner, status=Status.ERRORED, error=_error_text(error))
            raise

    def _judge_pending(self, run: EvaluationRun) -> EvaluationContext | None:
        """Judge what is pending of a leased run; see `judge`."""
        if run.batch and is_waiting(run.work_id):  # a person chose this run: nothing of it is asked again meanwhile
            run.finish(owner=self.owner, status=Status.PENDING)
            return None
        if run.attempt > 1:  # what a worker asked before it was lost, or the run stopped, and got no answer to
            reopen_failed(run)
        try:
            context = open_evaluation(
                run,
                leases=self.leases,
                files=self.load_files,
                progress=self.progress,
                health=self.health,
                window_ends=self.window_ends,
            )
        except Superseded as error:
            run.finish(owner=self.owner, status=Status.CANCELLED, error=str(error))
            return None
        except (PropositionError, ValueError) as error:
            run.finish(owner=self.owner, status=Status.FAILED, error=str(error))
            return None
        route = route_of("judge", run.judge)
        dimension_jobs = [partial(judge_dimension, context, dimension) for dimension in run.own_dimensions]
        if run.batch and route.is_distant and not batch_problem(run.judge):  # else each question is asked at once
            asking = BatchAsking(context, route)
            context.ask = asking.ask
            side_by_side(dimension_jobs, 1)  # `BatchAsking` is not safe to use from several threads
            asking.submit()
        else:
            # The dimensions of a few runs are judged side by side, those of many runs one after the other.
            with _judged_now.one_more() as runs_judged_now:
                side_by_side(dimension_jobs, max(1, _threads() // runs_judged_now))
        if context.waits:
            run.finish(owner=self.owner, status=Status.PENDING)
            return None
        return context

    def release_unended(self, error: BaseException, *, hand_back: bool) -> None:
        """Give up the leases of the runs that did not end, because of an error or because the process is to stop.

        Args:
            hand_back: As for `execute`.
        """
        interrupted = not isinstance(error, Exception)
        if is_outage(error) or (hand_back and (self.crashed or interrupted)):
            # No fault of these runs: a worker resumes them at once from what is stored.
            status = Status.PENDING
            reason = ""
        elif interrupted:
            status = Status.ERRORED
            reason = "interrupted; run the same command again to resume"
        else:
            status = Status.ERRORED
            reason = _error_text(error)
        for run in self.leased:
            run.finish(owner=self.owner, status=status, error=reason)  # does nothing to one that ended already


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:LONGEST_ERROR]


def with_channels(runs: Sequence[EvaluationRun]) -> list[EvaluationRun]:
    """Return the runs, after those of their channels that are not done yet; each once."""
    channel_runs = EvaluationRun.objects.filter(agent_runs__in=[run.pk for run in runs], status__in=UNFINISHED)
    by_key: dict[int, EvaluationRun] = {}
    for run in (*channel_runs.distinct().order_by("pk"), *runs):
        by_key[run.pk] = run
    return list(by_key.values())


# -- evaluations that are asked for now
@dataclass(frozen=True, slots=True)
class Captured:
    """The outcome for one agent or channel: its run in numbers, whether that was resumed, and whether another process holds it."""

    summary: RunSummary
    resumed: bool
    held_elsewhere: bool


@contextmanager
def capture_trace(specs: Iterable[RunSpec]) -> Iterator[None]:
    """Trace what is done inside as one capture (AC-6.5.9). Where a trace is open already it becomes a part of that."""
    start = sentry_sdk.start_span if sentry_sdk.get_current_span() else sentry_sdk.start_transaction
    with start(op="evaluation.baseline", name="capture baselines") as trace:
        trace.set_data("agents", [spec.target.slug for spec in specs])
        yield


def capture(
    specs: Sequence[RunSpec],
    *,
    prepared: Callable[[Sequence[EvaluationRun]], None] = lambda runs: None,
    progress: Progress = _ignore_progress,
    notice: Callable[[str], None] = lambda words: None,
    alerts: bool = True,
) -> list[Captured]:
    """Evaluate an agent (or channel) per spec; resume what an earlier attempt left unfinished (AC-6.5.7).

    Everything is planned before anything is asked, so that what cannot be measured costs nothing; the rows of the later runs are made while
    the judge reads the first questions.

    Args:
        prepared: Called with runs as they are made, each once, before anything of them is asked.
        progress: Called as judgements are made.
        notice: Called with the batches that are waited for, where specs ask for batches: this returns when they are answered.
        alerts: Whether a score that fell sharply raises an alert.

    Returns:
        An outcome for each spec, in their order, without runs that were deleted meanwhile.

    Raises:
        PropositionError: Proposition files cannot be used; nothing was asked.
    """
    with capture_trace(specs):
        files = load_all()
        plans = [make_plan(spec, files=files) for spec in specs]
        made: list[PreparedRun] = []
        portions = _prepare_one_by_one(plans, made, prepared)
        judged = execute_as_made(portions, progress=progress, hand_back=False, alerts=alerts)
        judged_here = {run.pk for run in judged}
        runs = with_channels([run for run, _ in made])
        if any(run.batch for run in runs):
            judged_here |= _wait_for_batches(runs, progress=progress, notice=notice)
        return _captured(made, judged_here)


def _prepare_one_by_one(
    plans: Sequence[Plan], made: list[PreparedRun], prepared: Callable[[Sequence[EvaluationRun]], None]
) -> Iterator[list[EvaluationRun]]:
    """Make the run of each plan and append it to `made`; yield it after those runs of its channels that were not yielded before.

    Args:
        prepared: Called with what is yielded, before that.
    """
    channels: list[PreparedChannel] = []
    yielded: set[int] = set()
    for plan in plans:
        prepared_run = prepare_plan(plan, channels=channels)
        made.append(prepared_run)
        new_runs = [run for run in with_channels([prepared_run.run]) if run.pk not in yielded]
        yielded.update(run.pk for run in new_runs)
        prepared(new_runs)
        yield new_runs


def _wait_for_batches(runs: Sequence[EvaluationRun], *, progress: Progress, notice: Callable[[str], None]) -> set[int]:
    """Wait until the batches of these runs are answered and the runs have ended; workers may do parts of it meanwhile.

    Args:
        runs: With those of their channels.
        notice: Called with what is waited for, whenever that changes.

    Returns:
        Primary keys of the runs that this process judged.
    """
    keys = [run.pk for run in runs]
    owner = owner_name()
    run_ids: set[int] = set()
    last_words = ""
    while True:
        # The same statuses for runs as for batches: pending or running. One that failed or paused is not waited for.
        unfinished = list(EvaluationRun.objects.filter(pk__in=keys, batch=True, status__in=LLMBatch.OPEN))
        if not unfinished:
            return run_ids
        unfinished_keys = [run.pk for run in unfinished]
        # A run may be leased as soon as no batch of it is open.
        answered = list(EvaluationRun.objects.filter(EvaluationRun.leasable(), pk__in=unfinished_keys))
        if answered:
            # When interrupted, the same command goes on with them: they are not handed back to any worker.
            run_ids.update(run.pk for run in execute(answered, progress=progress, hand_back=False))
            continue
        words = "\n".join(waiting_words(unfinished).values())
        if words != last_words:
            last_words = words
            notice(words)
        if not batches.work_one(owner=owner):  # no batch was due to be looked at
            time.sleep(seconds_until_check(unfinished))


def _captured(made: Sequence[PreparedRun], judged_here: set[int]) -> list[Captured]:
    """Return the outcome of each run as it is stored now, without those that were deleted meanwhile.

    Args:
        judged_here: Primary keys of the runs that this process judged; another process holds, or held, the others.
    """
    stored = EvaluationRun.objects.select_related("agent", "channel").in_bulk([run.pk for run, _ in made])
    summaries = {summary.run.pk: summary for summary in summarize_all(list(stored.values()))}
    captured: list[Captured] = []
    for run, resumed in made:
        if run.pk in summaries:
            captured.append(Captured(summaries[run.pk], resumed=resumed, held_elsewhere=run.pk not in judged_here))
    return captured


def existing(specs: Sequence[RunSpec]) -> list[Captured] | None:
    """Return the newest completed measurement of each of these specs; None unless all have one.

    It asked for the same of the same persona and propositions; more may have been said since. A measurement that is to be a baseline
    counts while the agent's baseline still is of it.
    """
    files = load_all()
    runs = []
    for spec in specs:
        digest = make_plan(spec, files=files).spec_digest
        run = EvaluationRun.objects.filter(spec_digest=digest, status=Status.COMPLETED).first()
        if run is None or (spec.is_baseline and not run.baselines.exists()):
            return None
        runs.append(run)
    return [Captured(summary, resumed=False, held_elsewhere=False) for summary in summarize_all(runs)]


def run_json(summary: RunSummary) -> dict[str, Any]:
    """Dump a run's summary, with what the apps above add to its dimensions (`summary_parts`): how far its judge can be trusted.

    A channel's dimensions have also the ideas that were counted, and the figures that were measured; those of agents whose speech was
    simulated the reason why they are empty.
    """
    run = summary.run
    document = summary.model_dump()
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


# -- evaluations that wait for a worker
CHANNELS_TOGETHER = 4  # evaluations of channels that one piece of work does


def work_one(*, owner: str) -> bool:
    """Lease and execute the pending, lost or no longer paused run whose turn it is; return whether there was one."""
    for _ in range(LOOKS):  # other workers may have leased all rows of one look
        waiting = EvaluationRun.in_turn()
        if not waiting:
            waiting = _paused_with_room()
        if not waiting:
            return False
        for run in waiting:
            if run.acquire(owner=owner, lease=lease(), resumable=RESUMABLE):  # also a paused one
                _work_on(run, waiting, owner=owner)
                return True
    return False


def _work_on(run: EvaluationRun, waiting: Sequence[EvaluationRun], *, owner: str) -> None:
    """Simulate the speech of a leased run, or judge it; with a channel's run, judge further ones that wait."""
    run.note_served()  # in the queue the others now come before the next of this agent or channel
    trace = sentry_sdk.start_transaction(op="evaluation.work", name="evaluate")  # a span alone is sent nowhere
    with logging_about(evaluation_run=run.pk, agent=run.agent_id), trace:
        if run.awaits_simulation:
            simulate_for(run, owner=owner)
        else:
            execute([run, *_more_channels(run, waiting, owner)], owner=owner)


def _paused_with_room() -> list[EvaluationRun]:
    """Return the oldest run that paused for a budget (its agent's, or that of all channels) with room again: a new day, a higher cap."""
    paused = EvaluationRun.objects.filter(status=Status.PAUSED_BUDGET).select_related("agent")
    paused = paused.exclude(lease_expires_at__gt=timezone.now())  # its next batch is tried later: `BATCH_PAUSE`
    over_budget: set[tuple[int | None, str]] = set()  # looked up once per agent and model; None = all channels
    for run in paused.order_by("created_at", "pk"):
        model = run.judge
        if run.agent is not None and run.awaits_simulation:
            model = actor_of(run.agent, run.actor_model)
        if (run.agent_id, model) in over_budget:
            continue
        # A run that simulates first asks the actor before the judge.
        if not why_over_budget(run.agent, model):
            return [run]
        over_budget.add((run.agent_id, model))
    return []


def _more_channels(run: EvaluationRun, waiting: Sequence[EvaluationRun], owner: str) -> list[EvaluationRun]:
    """Lease up to three further runs of channels to execute with one: each asks only a few questions, which alone leave most slots free.

    So a worker stays within 1.25 times the floor (`make bench`). Only of the same judge, whose outage stops them all, and none that a
    worker was lost with.
    """
    if run.agent_id is not None or run.worker_losses:
        return []
    more: list[EvaluationRun] = []
    for other in waiting:
        if len(more) == CHANNELS_TOGETHER - 1:
            break
        same_judge = (other.judge, other.batch) == (run.judge, run.batch)
        fresh = other.status == Status.PENDING and not other.worker_losses
        if other.pk == run.pk or other.agent_id is not None or not same_judge or not fresh:
            continue
        try:
            if other.acquire(owner=owner, lease=lease()):
                other.note_served()
                more.append(other)
        except OUTAGE:  # what is leased is executed, or goes back to the queue there
            break
    return more
