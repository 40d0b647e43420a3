"""Making evaluation runs: what is asked for, the items to judge as rows, and which unfinished run to take up again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from agents.models import Agent
from agents.persona import current_digest, render_persona
from evaluation.failures import reopen_failed
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.proposition_files import propositions_for
from evaluation.propositions import Proposition, fill, propositions_digest
from evaluation.scorers import SCORERS
from evaluation.scorers.base import Item, Subject
from evaluation.windows import MessageWindow, parse_window

MOST_SAMPLES = 100_000
RESUMABLE_FOR = timedelta(hours=24)
PAUSED_FOR = timedelta(days=7)  # a run that waits for its agent's budget is taken up on a later day
UNFINISHED = ("pending", "running", "failed", "errored", "paused_budget")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What an evaluation of one agent is asked to be.

    Attributes:
        dimensions: Ids, each with a scorer.
        window: As `parse_window` reads it.
        where: Tags a message must have.
        samples: Most messages sampled for message-by-message dimensions, at least 1.
        seed: Seed of the sampling.
        per_call: Most propositions in one call, 1 to 10.
        judge: Model; default the configured one.
        is_baseline: Whether the run becomes the agent's baseline when it succeeds.
    """

    agent: Agent
    dimensions: tuple[str, ...] = ("adherence", "fluency")
    window: MessageWindow = field(default_factory=MessageWindow)
    where: dict[str, str] = field(default_factory=dict)
    samples: int = 20
    seed: int = 0
    per_call: int = 10
    judge: str = ""
    is_baseline: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimensions", tuple(dict.fromkeys(self.dimensions)))  # named twice is meant once
        unknown = [name for name in self.dimensions if name not in SCORERS]
        if unknown or not self.dimensions:
            raise ValueError(f"dimensions {', '.join(unknown) or 'none'}: allowed: {', '.join(SCORERS)}")
        if self.samples < 1:
            raise ValueError(f"samples {self.samples}: at least 1")
        if self.samples > MOST_SAMPLES:
            raise ValueError(f"samples {self.samples}: at most {MOST_SAMPLES}")
        if not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"seed {self.seed}: a whole number of at most 63 bits")
        if not 1 <= self.per_call <= 10:
            raise ValueError(f"per_call {self.per_call}: 1 to 10")

    @property
    def judge_model(self) -> str:
        return self.judge or str(settings.JUDGE_MODEL)


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
            *(s.agent.pk, sorted(s.dimensions), s.window.spec, sorted(s.where.items()), s.samples, s.seed, s.per_call),
            *(s.judge_model, s.is_baseline, self.persona_digest, self.proposition_digest),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def make_plan(spec: RunSpec) -> Plan:
    """Load what a run needs.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    propositions = {d: propositions_for(agent_slug=spec.agent.slug, dimension=d) for d in spec.dimensions}
    flat = [p for group in propositions.values() for p in group]
    return Plan(spec, propositions, current_digest(spec.agent), propositions_digest(flat))


def subject_of(run: EvaluationRun) -> Subject:
    """The agent as this run looks at it; the same when the run is taken up again later.

    Raises:
        ValueError: The run targets a channel.
    """
    if run.agent is None:
        raise ValueError(f"evaluation run {run.pk} targets a channel, not an agent")
    parsed = parse_window(run.window)
    return Subject(
        agent=run.agent,
        persona=render_persona(system_prompt=run.agent.system_prompt, traits=run.agent.traits.all()),
        window=MessageWindow(run.window, start=run.window_start, end=run.window_end, last=parsed.last),
        where=run.where,
        samples=run.samples,
        seed=run.seed,
    )


def prepare_run(spec: RunSpec) -> tuple[EvaluationRun, bool]:
    """The run for a spec: an unfinished one of the last 24 hours (paused for a budget: 7 days) that asked for the same, else a new one.

    Returns:
        The run, and whether it is taken up again.
    """
    plan = make_plan(spec)
    with transaction.atomic():
        # Two processes that start at once must find each other's run: SQLite lets one writer in, PostgreSQL locks the agent.
        Agent.objects.select_for_update().get(pk=spec.agent.pk)
        unfinished = EvaluationRun.objects.filter(spec_digest=plan.spec_digest, status__in=UNFINISHED).order_by("-pk")
        since = timezone.now() - RESUMABLE_FOR
        waits = Q(status="paused_budget", created_at__gte=timezone.now() - PAUSED_FOR)
        found = unfinished.filter(Q(created_at__gte=since) | waits).first() or _with_failed_calls(
            plan.spec_digest, since
        )
        return (found, True) if found is not None else (create_run(plan), False)


def _with_failed_calls(spec_digest: str, since: datetime) -> EvaluationRun | None:
    """The newest run, when it ended with judgements whose call failed; made pending again, so that only these are asked."""
    runs = EvaluationRun.objects.filter(spec_digest=spec_digest, created_at__gte=since).exclude(
        status=EvaluationRun.Status.CANCELLED
    )
    run: EvaluationRun | None = runs.order_by("-pk").first()
    if run is None or run.status != EvaluationRun.Status.COMPLETED or not reopen_failed(run):
        return None
    run.status = EvaluationRun.Status.PENDING
    run.save(update_fields=["status"])
    return run


def create_run(plan: Plan) -> EvaluationRun:
    """A new run with its items as pending rows, in one transaction."""
    spec = plan.spec
    run = EvaluationRun(
        agent=spec.agent,
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
        persona_digest=plan.persona_digest,
        proposition_digest=plan.proposition_digest,
        spec_digest=plan.spec_digest,
    )
    subject = subject_of(run)
    variables = {"agent_name": spec.agent.display_name}
    with transaction.atomic():
        run.save()
        sampled: set[int] = set()
        for dimension in spec.dimensions:
            items: Iterable[Item] = SCORERS[dimension].plan(subject, plan.propositions[dimension])
            rows = iter([_row(run, item, variables) for item in items])
            while batch := list(islice(rows, 500)):
                EvaluationScore.objects.bulk_create(batch)
                sampled.update(row.message_id for row in batch if row.message_id is not None)
        run.sample_size = len(sampled)
        run.save(update_fields=["sample_size"])
    return run


def _row(run: EvaluationRun, item: Item, variables: dict[str, str]) -> EvaluationScore:
    proposition = item.proposition
    return EvaluationScore(
        evaluation_run=run,
        dimension=proposition.dimension,
        proposition_id=proposition.id,
        message_id=item.message_id,
        claim=fill(proposition.claim, variables) if "channel_name" not in proposition.claim else proposition.claim,
        weight=proposition.weight,
        inverted=proposition.inverted,
        recommendations=proposition.recommendations,
    )
