"""Making evaluation runs: what is asked for, the items to judge as rows, and which unfinished run to take up again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from agents.llm.batch_answers import is_waiting
from agents.persona import current_digest
from evaluation.channels import channel_specs
from evaluation.failures import reopen_failed
from evaluation.models import ChannelShare, EvaluationRun
from evaluation.planned_items import insert_items
from evaluation.planning_lock import wait_for_other_plans
from evaluation.propositions.files import LoadedFile, load_all
from evaluation.propositions.schema import Proposition, digest_of_each, propositions_digest
from evaluation.run_spec import RunSpec
from evaluation.targets import claims_for

__all__ = ["Plan", "RunSpec", "create_run", "make_plan", "prepare_plan", "prepare_run"]

RESUMABLE_FOR = timedelta(hours=24)
PAUSED_FOR = timedelta(days=7)  # a run that waits for its agent's budget is taken up on a later day
UNFINISHED = ("pending", "running", "failed", "errored", "paused_budget")


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
