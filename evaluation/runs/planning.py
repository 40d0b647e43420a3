"""Plan evaluations: load what they depend on, store their judgements as pending rows, find the unfinished run to resume."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from agents.llm.batches import is_waiting
from agents.persona import current_digest
from evaluation.models import ChannelShare, EvaluationRun, EvaluationScore
from evaluation.propositions.files import LoadedFile, load_all
from evaluation.propositions.schema import Proposition, digest_of_each, fill, propositions_digest
from evaluation.runs.questions import claims_for, subject_of, variables_of
from evaluation.runs.spec import RunSpec, channel_specs
from evaluation.runs.store import insert_values, reopen_failed
from evaluation.scorers import SCORERS
from evaluation.scorers.subjects import Item

RESUMABLE_FOR = timedelta(hours=24)
PAUSED_FOR = timedelta(days=7)  # a run that waits for its agent's budget is taken up on a later day
UNFINISHED = ("pending", "running", "failed", "errored", "paused_budget")
_PLANNING = 0x504C414E  # the lock's number among those of the database


def wait_for_other_plans() -> None:
    """Wait until no other transaction makes evaluation runs; until this one ends the others wait.

    SQLite lets one writer in anyhow. A lock of the target's row would hold up what is said there, and two plans (or a plan and a
    message) that take an agent and its channels in another order would end each other.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_PLANNING])


def insert_items(run: EvaluationRun, propositions: Mapping[str, Sequence[Proposition]]) -> None:
    """Store what is to be judged in a run, by its propositions per dimension; `sample_size` is then known."""
    subject = subject_of(run)
    variables = variables_of(subject)
    sampled: set[int] = set()
    for dimension in run.own_dimensions:
        items: Iterable[Item] = SCORERS[dimension].plan(subject, propositions[dimension])
        shared = {p.id: _columns(p, variables) for p in propositions[dimension]}
        found = repeated(items, run.repeats)
        while batch := list(islice(found, 500)):
            rows = ((i.message_id, i.compared_with_id, i.repeat, *shared[i.proposition.id]) for i in batch)
            insert_values(EvaluationScore(evaluation_run=run), _OF_AN_ITEM, rows)
            sampled.update(item.message_id for item in batch if item.message_id is not None)
    run.sample_size = len(sampled)
    run.save(update_fields=["sample_size"])


def repeated(items: Iterable[Item], repeats: int) -> Iterator[Item]:
    """Each item as often as it is judged: rules are exact, once says it all."""
    for item in items:
        yield item
        if item.proposition.rule is None:
            yield from (replace(item, repeat=number) for number in range(2, repeats + 1))


_OF_AN_ITEM = (
    *("message_id", "compared_with_id", "repeat"),
    *("dimension", "proposition_id", "claim", "weight", "inverted", "recommendations", "over_window"),
)


def _columns(proposition: Proposition, variables: dict[str, str]) -> tuple[Any, ...]:
    """What the judgements of a proposition have in common: the last columns of `_OF_AN_ITEM`."""
    unfilled = (
        "channel_name" in proposition.claim and "channel_name" not in variables
    )  # its channel is known when it is judged
    return (
        proposition.dimension,
        proposition.id,
        proposition.claim if unfilled else fill(proposition.claim, variables),
        proposition.weight,
        proposition.inverted,
        proposition.recommendations,
        proposition.over_window,
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """A spec with everything it depends on loaded: propositions (from `files`), persona and their digests."""

    spec: RunSpec
    propositions: dict[str, list[Proposition]]
    persona_digest: str
    proposition_digest: str
    files: Sequence[LoadedFile] = ()

    @property
    def spec_digest(self) -> str:
        """Equal for two requests that would judge the same things in the same way; finds the run to resume."""
        s = self.spec
        parts = [
            *(s.target.pk, sorted(s.dimensions), s.window.spec, sorted(s.where.items()), s.samples, s.seed, s.per_call),
            *(s.judge_model, s.is_baseline, self.persona_digest, self.proposition_digest),
            *(
                s.agent is None,
                s.history.spec,
                sorted(s.history_where.items()),
                s.repeats,
                s.hard,
                s.double_check,
                s.method,
            ),
            s.additional_context,
            *(s.simulated, s.actor_model, s.position_bins),
            *((s.schedule.pk, s.schedule.last_fired_at) if s.schedule else (None,)),  # each firing is measured anew
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def make_plan(spec: RunSpec, *, files: Sequence[LoadedFile] | None = None) -> Plan:
    """Load what a run needs.

    Args:
        spec: What is asked for.
        files: What `load_all` returned, for callers that plan several runs at once.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    files, slug = load_all() if files is None else files, spec.target.slug
    traits = list(spec.agent.traits.all()) if spec.agent is not None else None
    seeded = spec.agent is not None and spec.agent.seeded
    propositions = {
        d: claims_for(slug=slug, dimension=d, hard=spec.hard, files=files, traits=traits, seeded=seeded)
        for d in spec.own_dimensions
    }
    flat = [p for group in propositions.values() for p in group]
    persona = current_digest(spec.agent) if spec.agent is not None else ""
    return Plan(spec, propositions, persona, propositions_digest(flat), files)


Prepared = list[tuple[RunSpec, EvaluationRun]]


def prepare_run(spec: RunSpec, *, channels: Prepared | None = None) -> tuple[EvaluationRun, bool]:
    """The run for a spec: an unfinished one of the last 24 hours (paused for a budget: 7 days) that asked for the same, else a new one.

    Args:
        spec: What is asked for.
        channels: The runs of channels prepared so far; agents that are prepared together share them.

    Returns:
        The run, and whether it is taken up again.
    """
    return prepare_plan(make_plan(spec), channels=channels)


def prepare_plan(plan: Plan, *, channels: Prepared | None = None) -> tuple[EvaluationRun, bool]:
    """The same for a plan that was made before."""
    with transaction.atomic():
        wait_for_other_plans()
        unfinished = EvaluationRun.objects.filter(spec_digest=plan.spec_digest, status__in=UNFINISHED).order_by("-pk")
        since = timezone.now() - RESUMABLE_FOR
        waits = Q(status="paused_budget", created_at__gte=timezone.now() - PAUSED_FOR)
        found = unfinished.filter(Q(created_at__gte=since) | waits).first() or _with_failed_calls(
            plan.spec_digest, since
        )
        run, resumed = (found, True) if found is not None else (create_run(plan), False)
        if run.batch != plan.spec.batch and not is_waiting(
            run.work_id
        ):  # the same questions, asked in another way from now on
            run.batch = plan.spec.batch
            run.save(update_fields=["batch"])
    link_channels(run, plan, [] if channels is None else channels)
    return run, resumed


def link_channels(run: EvaluationRun, plan: Plan, prepared: Prepared) -> None:
    """Have the channel dimensions of an agent's run measured in the channels it spoke in, each once for all its agents."""
    wanted = channel_specs(plan.spec)
    if not wanted or run.channel_shares.exists():
        return
    shares = []
    for channel_spec, messages in wanted:
        channel_run = next((found for asked, found in prepared if asked == channel_spec), None)
        if channel_run is None:
            channel_run, _ = prepare_plan(make_plan(channel_spec, files=plan.files))
            prepared.append((channel_spec, channel_run))
        shares.append(ChannelShare(agent_run=run, channel_run=channel_run, messages=messages))
    ChannelShare.objects.bulk_create(shares, ignore_conflicts=True)  # another process may prepare the same run


def _with_failed_calls(spec_digest: str, since: datetime) -> EvaluationRun | None:
    """The newest run, when it ended with judgements whose call failed; made pending again, so that only these are asked."""
    runs = EvaluationRun.objects.filter(spec_digest=spec_digest, created_at__gte=since).exclude(
        status=EvaluationRun.Status.CANCELLED
    )
    run: EvaluationRun | None = runs.order_by("-pk").first()
    if run is None or run.status != EvaluationRun.Status.COMPLETED:
        return None
    own = reopen_failed(run)
    linked = [r for r in run.channel_runs.all() if r.status in UNFINISHED or (reopen_failed(r) and _await(r))]
    return _await(run) if own or linked else None


def _await(run: EvaluationRun) -> EvaluationRun:
    run.status = EvaluationRun.Status.PENDING
    run.save(update_fields=["status"])
    return run


def new_run(plan: Plan) -> EvaluationRun:
    """A run as it would be stored; nothing is written."""
    spec = plan.spec
    return EvaluationRun(
        agent=spec.agent,
        channel=spec.channel,
        dimensions=list(spec.dimensions),
        is_baseline=spec.is_baseline,
        judge=spec.judge_model,
        window=spec.window.spec,
        window_start=spec.window.start,
        window_end=spec.window.end,
        where=dict(spec.where),
        samples=spec.samples,
        seed=spec.seed,
        per_call=spec.per_call,
        history=spec.history.spec,
        history_start=spec.history.start,
        history_end=spec.history.end,
        history_where=dict(spec.history_where),
        repeats=spec.repeats,
        hard=spec.hard,
        double_check=spec.double_check,
        method=spec.method,
        additional_context=dict(spec.additional_context),
        simulated=spec.simulated,
        actor_model=spec.actor_model,
        position_bins=[list(pair) for pair in spec.position_bins],
        schedule=spec.schedule,
        batch=spec.batch,
        persona_digest=plan.persona_digest,
        proposition_digest=plan.proposition_digest,
        proposition_digests=digest_of_each(plan.propositions),
        spec_digest=plan.spec_digest,
    )


def create_run(plan: Plan) -> EvaluationRun:
    """A new run with its items as pending rows, in one transaction; one that waits for a simulation has none yet."""
    run = new_run(plan)
    with transaction.atomic():
        run.save()
        if not plan.spec.awaits_simulation:
            insert_items(run, plan.propositions)
    return run


_PLANNED_LATER = (
    *("simulated", "actor_model", "where", "samples", "window", "window_start", "window_end"),
    *("history", "history_start", "history_end", "history_where"),
    *("persona_digest", "proposition_digest", "proposition_digests", "spec_digest"),
)


def plan_later(run: EvaluationRun, spec: RunSpec, *, owner: str) -> bool:
    """Plan a run that waited for a simulation, now that it is known what to judge, and hand it back to be judged.

    Returns:
        Whether `owner` still held it; if not, nothing was changed.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    plan = make_plan(spec)
    planned = new_run(plan)
    with transaction.atomic():
        wait_for_other_plans()
        values = {name: getattr(planned, name) for name in _PLANNED_LATER}
        if not run.finish(owner=owner, status=EvaluationRun.Status.PENDING, **values):
            return False
        insert_items(run, plan.propositions)
        link_channels(run, plan, [])
    return True
