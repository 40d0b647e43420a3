"""What the gate can do about an agent that went flat: offered on its card."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import HttpRequest

from agents.models import Agent
from correction.admin.matrix import config_url, observe_url
from correction.admin.mechanisms import BY_ID
from correction.config import GATE_DIMENSIONS, ResolvedConfig, resolve_all
from correction.models import GateMode
from evaluation.admin.cast_steps import Step
from evaluation.change.overview import Card

PERMISSION = "correction.change_agentevaluationconfig"


def gate_steps(request: HttpRequest, cards: Sequence[Card]) -> dict[int, list[Step]]:
    """Have the gate check what fell, or enforce what it only observes. Two queries for any number of cards."""
    fallen = {card.agent.pk: card.told.dimension for card in cards if card.state == "fell" and card.told is not None}
    if not fallen or not request.user.has_perm(PERMISSION):
        return {}
    agents = Agent.objects.filter(pk__in=fallen).select_related("evaluation_config")
    found = ((agent, _step(agent, config, fallen[agent.pk])) for agent, config in resolve_all(agents))
    return {agent.pk: [step] for agent, step in found if step is not None}


def _step(agent: Agent, config: ResolvedConfig, dimension: str) -> Step | None:
    if dimension not in GATE_DIMENSIONS:
        return None
    if config.gate_is_off or dimension not in config.gate_dimensions:
        why = f"the gate does not check {dimension}: observing holds nothing back"
        if config.gate_mode == GateMode.ENFORCE and not config.gate_is_off:
            why += f"; {', '.join(config.gate_dimensions)}, enforced until now, would only be observed, too"
        return Step("Observe it at the gate", observe_url(agent, BY_ID[dimension]), why)
    if config.gate_mode == GateMode.OBSERVE:
        why = f"the gate only observes {dimension}; look at its false alarms first"
        return Step("Enforce it at the gate", config_url(agent, BY_ID["gate"]), why)
    return None
