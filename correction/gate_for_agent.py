"""The check of a draft as an agent's configuration wants it; a turn and the observation of what was said share it."""

from __future__ import annotations

from collections.abc import Callable

from agents.llm import Label
from agents.models import Agent
from correction.config import ResolvedConfig
from correction.costs import over_budget
from correction.gate import check_action_quality
from correction.gate_claims import Claims, load_claims
from correction.gate_values import Action, GateResult


def check_for_agent(
    *,
    agent: Agent,
    config: ResolvedConfig,
    run_id: int | None,
    work_id: str,
    deadline: float,
    action: Callable[[Claims], Action],
    gate: bool = True,
) -> GateResult:
    """Check what an agent is about to say, or said, on the dimensions its configuration enables.

    Args:
        agent: Who speaks.
        config: Its configuration in effect.
        run_id, work_id: Columns of the ledger rows.
        deadline: Seconds for judging each dimension; 0 or less: there is no time left.
        action: Makes the draft and its context, once it is known what the claims want to see.
        gate: Whether the calls may use the slots reserved for drafts; False for what can wait.
    """
    dimensions = config.gate_dimensions
    judged = [d for d in dimensions if config[f"gate_{d}_enabled"]]
    claims = load_claims(
        agent_slug=agent.slug,
        dimensions=judged,
        hard_adherence=bool(config["gate_adherence_hard"]),
        seeded=agent.seeded,
    )
    return check_action_quality(
        action=action(claims),
        dimensions=dimensions,
        thresholds={d: config.threshold(d) for d in dimensions},
        label=Label(purpose="gate", mechanism="gate", agent_id=agent.pk, run_id=run_id, work_id=work_id),
        deadline=deadline,
        judged=judged,
        rules=bool(config["gate_rules_enabled"]),
        within_budget=not (judged and over_budget(agent, config)),
        gate=gate,
        shortened=deadline < float(config["gate_deadline_seconds"]),
        claims=claims,
    )
