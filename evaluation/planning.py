"""Making evaluation runs: what is asked for, the items to judge as rows, and which unfinished run to take up again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from agents.persona import current_digest
from evaluation.bulk import insert_rows
from evaluation.channels import channel_specs
from evaluation.failures import reopen_failed
from evaluation.models import ChannelShare, EvaluationRun, EvaluationScore
from evaluation.planning_lock import wait_for_other_plans
from evaluation.proposition_digests import digest_of_each
from evaluation.proposition_files import load_all
from evaluation.propositions import Proposition, fill, propositions_digest
from evaluation.run_spec import RunSpec
from evaluation.scorers import SCORERS
from evaluation.scorers.base import Item
from evaluation.targets import claims_for, subject_of, variables_of

__all__ = ["Plan", "RunSpec", "create_run", "make_plan", "prepare_run"]

RESUMABLE_FOR = timedelta(hours=24)
PAUSED_FOR = timedelta(days=7)  # a run that waits for its agent's budget is taken up on a later day
UNFINISHED = ("pending", "running", "failed", "errored", "paused_budget")


@dataclass(frozen=True, slots=True)
class Plan:
    """A spec with everything it depends on loaded: propositions, persona and their digests."""

    spec: RunSpec
    propositions: dict[str, list[Proposition]]
    persona_digest: str
    proposition_digest: str

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
            *(s.played, s.actor_model, s.turn_bins),
            *((s.schedule.pk, s.schedule.last_fired_at) if s.schedule else (None,)),  # each firing is measured anew
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def make_plan(spec: RunSpec) -> Plan:
    """Load what a run needs.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    files, slug = load_all(), spec.target.slug
    propositions = {d: claims_for(slug=slug, dimension=d, hard=spec.hard, files=files) for d in spec.own_dimensions}
    flat = [p for group in propositions.values() for p in group]
    persona = current_digest(spec.agent) if spec.agent is not None else ""
    return Plan(spec, propositions, persona, propositions_digest(flat))


Prepared = list[tuple[RunSpec, EvaluationRun]]


def prepare_run(spec: RunSpec, *, channels: Prepared | None = None) -> tuple[EvaluationRun, bool]:
    """The run for a spec: an unfinished one of the last 24 hours (paused for a budget: 7 days) that asked for the same, else a new one.

    Args:
        spec: What is asked for.
        channels: The runs of channels prepared so far; agents that are prepared together share them.

    Returns:
        The run, and whether it is taken up again.
    """
    plan = make_plan(spec)
    with transaction.atomic():
        wait_for_other_plans()
        unfinished = EvaluationRun.objects.filter(spec_digest=plan.spec_digest, status__in=UNFINISHED).order_by("-pk")
        since = timezone.now() - RESUMABLE_FOR
        waits = Q(status="paused_budget", created_at__gte=timezone.now() - PAUSED_FOR)
        found = unfinished.filter(Q(created_at__gte=since) | waits).first() or _with_failed_calls(
            plan.spec_digest, since
        )
        run, resumed = (found, True) if found is not None else (create_run(plan), False)
    link_channels(run, spec, [] if channels is None else channels)
    return run, resumed


def link_channels(run: EvaluationRun, spec: RunSpec, prepared: Prepared) -> None:
    """Have the channel dimensions of an agent's run measured in the channels it spoke in, each once for all its agents."""
    wanted = channel_specs(spec)
    if not wanted or run.channel_shares.exists():
        return
    shares = []
    for channel_spec, messages in wanted:
        channel_run = next((found for asked, found in prepared if asked == channel_spec), None)
        if channel_run is None:
            channel_run, _ = prepare_run(channel_spec)
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
        played=spec.played,
        actor_model=spec.actor_model,
        turn_bins=[list(pair) for pair in spec.turn_bins],
        schedule=spec.schedule,
        persona_digest=plan.persona_digest,
        proposition_digest=plan.proposition_digest,
        proposition_digests=digest_of_each(plan.propositions),
        spec_digest=plan.spec_digest,
    )


def create_run(plan: Plan) -> EvaluationRun:
    """A new run with its items as pending rows, in one transaction."""
    spec, run = plan.spec, new_run(plan)
    subject = subject_of(run)
    variables = variables_of(subject)
    with transaction.atomic():
        run.save()
        sampled: set[int] = set()
        for dimension in spec.own_dimensions:
            items: Iterable[Item] = SCORERS[dimension].plan(subject, plan.propositions[dimension])
            rows = iter([_row(run, item, variables) for item in repeated(items, spec.repeats)])
            while batch := list(islice(rows, 500)):
                insert_rows(batch)
                sampled.update(row.message_id for row in batch if row.message_id is not None)
        run.sample_size = len(sampled)
        run.save(update_fields=["sample_size"])
    return run


def repeated(items: Iterable[Item], repeats: int) -> Iterator[Item]:
    """Each item as often as it is judged: rules are exact, once says it all."""
    for item in items:
        yield item
        if item.proposition.rule is None:
            yield from (replace(item, repeat=number) for number in range(2, repeats + 1))


def _row(run: EvaluationRun, item: Item, variables: dict[str, str]) -> EvaluationScore:
    proposition = item.proposition
    unfilled = (
        "channel_name" in proposition.claim and "channel_name" not in variables
    )  # its channel is known when it is judged
    return EvaluationScore(
        evaluation_run=run,
        dimension=proposition.dimension,
        proposition_id=proposition.id,
        message_id=item.message_id,
        compared_with_id=item.compared_with_id,
        repeat=item.repeat,
        claim=proposition.claim if unfilled else fill(proposition.claim, variables),
        weight=proposition.weight,
        inverted=proposition.inverted,
        recommendations=proposition.recommendations,
    )
