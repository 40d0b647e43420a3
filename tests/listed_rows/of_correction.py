"""Corrections, interventions and behaviour requests."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from decimal import Decimal

from agents.models import Agent, Message
from correction.models import (
    AgentEvaluationConfig,
    BehaviorRequest,
    CorrectionLog,
    GateDimensionResult,
    Intervention,
    InterventionLog,
    ObservedMessage,
)
from tests.listed_rows.cast import LLM, SENTENCE, Cast, store
from tests.listed_rows.of_agents import agents, messages


def requests(cast: Cast, have: int, more: int) -> None:
    messages(cast, 40_000_000 + have, more)
    fresh = Message.objects.order_by("-pk").values_list("pk", flat=True)[:more]
    store(
        BehaviorRequest,
        (
            BehaviorRequest(
                message_id=pk,
                agent=cast.agent(n),
                whose=cast.agent(n).pk,
                status="pending_review" if n % 5 else "rejected",
                confidence="high",
                operation="add",
                trait_name="brief",
                trait_after={"name": "brief", "description": "Says little.", "sentiment": 0.0, "strength": 0.9},
                judge=LLM,
            )
            for n, pk in enumerate(fresh.iterator())
        ),
    )


def configurations(cast: Cast, have: int, more: int) -> None:
    agents(cast, 50_000_000 + have, more)
    fresh = Agent.objects.order_by("-pk")[:more]
    store(
        AgentEvaluationConfig, (AgentEvaluationConfig(agent=agent, gate_mode="observe") for agent in fresh.iterator())
    )


def interventions(cast: Cast, have: int, more: int) -> None:
    store(
        Intervention,
        (
            Intervention(
                slug=f"quiet-{n}",
                description=SENTENCE,
                textual_claim="They agree.",
                nudge_type="text",
                nudge="Be brief.",
            )
            for n in range(have, have + more)
        ),
    )


def intervention_logs(cast: Cast, have: int, more: int) -> None:
    store(
        InterventionLog,
        (
            InterventionLog(
                key=uuid.uuid4(),
                name="variety",
                agent=cast.agent(n),
                channel=cast.channel(n),
                channel_position=n,
                fired=bool(n % 2),
                why=SENTENCE,
                preconditions=[],
                nudge=SENTENCE,
                judge=LLM,
                duration_ms=900,
            )
            for n in range(have, have + more)
        ),
    )


def logs(cast: Cast, have: int, more: int) -> None:
    def rows() -> Iterator[CorrectionLog]:
        for n in range(have, have + more):
            outcome = "corrected" if n % 20 == 0 else "timeout_passed" if n % 300 == 7 else "passed"
            yield CorrectionLog(
                session=uuid.uuid4(),
                attempt=1,
                source="gate",
                agent=cast.agent(n),
                channel=cast.channel(n),
                committed=outcome != "corrected",
                original_text=SENTENCE,
                judged_text=SENTENCE,
                payload={},
                outcome=outcome,
                score_sum=18,
                judge=LLM,
                duration_ms=600,
                tags={},
            )

    store(CorrectionLog, rows())
    fresh = CorrectionLog.objects.order_by("-pk").values_list("pk", flat=True)[:more].iterator()
    store(
        GateDimensionResult,
        (
            GateDimensionResult(
                log_id=pk,
                dimension=d,
                status="scored",
                score=5 + pk % 5,
                threshold=Decimal(5),
                passed=True,
                reasoning=SENTENCE,
                judge=LLM,
                parts=[],
            )
            for pk in fresh
            for d in ("adherence", "fluency")
        ),
    )


def observed(cast: Cast, have: int, more: int) -> None:
    messages(cast, 60_000_000 + have, more)
    fresh = Message.objects.order_by("-pk").values_list("pk", flat=True)[:more]
    store(
        ObservedMessage,
        (
            ObservedMessage(
                message_id=pk, whose=cast.agent(n).pk, session=uuid.uuid4(), status="pending" if n % 3 else "completed"
            )
            for n, pk in enumerate(fresh.iterator())
        ),
    )
