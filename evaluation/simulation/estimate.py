"""Estimate what simulated conversations would need: of the actor who answers, and of the judge of what it says."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any

from django.db import transaction
from pydantic import BaseModel, PlainSerializer

from agents.llm import Label, LLMRequest, estimate_tokens, ledger
from agents.models import Agent, Message
from agents.turn.prompt import build_prompt, new_turn
from agents.turn.tools import tool_definitions
from evaluation.runs.estimate import Estimate, estimate
from evaluation.runs.planning import RunSpec
from evaluation.simulation.conversations import TURN, Simulation, actor_of, prepare, simulation_spec
from evaluation.simulation.situations import CALLS_PER_LINE, REPLY_TOKENS, Situation

STAND_IN = ("word " * REPLY_TOKENS)[: REPLY_TOKENS * 4].strip()


class SimulationEstimate(BaseModel):
    """What `--json` prints. Tokens are characters / 4 for the prompts and assumptions for the answers; `cost_usd` is None when unpriced."""

    agent: str
    actor_model: str
    lines: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Annotated[Decimal | None, PlainSerializer(lambda usd: None if usd is None else float(usd))]


def estimate_simulation(
    spec: RunSpec, *, situations: Sequence[Situation], actor_model: str = "", repeats: int = 1
) -> tuple[SimulationEstimate, Estimate]:
    """Estimate what the actor would need, and the judge of what it says, if every line is answered once.

    Args:
        spec: What is to be measured, of an agent.
        situations: What would be said to it.
        actor_model: Default the agent's own model, else `ACTOR_MODEL`.
        repeats: How often each situation is simulated.

    Raises:
        ValueError: `spec` is of a channel.
        PropositionError: Proposition files cannot be used.
    """
    if spec.agent is None:
        raise ValueError(f"{spec.target} is a channel; allowed: an agent")
    model = actor_of(spec.agent, actor_model)
    with transaction.atomic():
        try:
            simulation, prompts = _stand_in(spec.agent, situations, model, repeats)
            judging = estimate(simulation_spec(spec, simulation))
        finally:
            transaction.set_rollback(True)
    lines, said = len(prompts) * repeats, REPLY_TOKENS * len(prompts) * repeats
    sent = CALLS_PER_LINE * repeats * sum(prompts) + said
    acting = SimulationEstimate(
        agent=spec.agent.slug,
        actor_model=model,
        lines=lines,
        calls=CALLS_PER_LINE * lines,
        input_tokens=sent,
        output_tokens=said,
        cost_usd=ledger.estimate_cost(model, sent, said),
    )
    return acting, judging


def _stand_in(agent: Agent, situations: Sequence[Situation], model: str, repeats: int) -> tuple[Simulation, list[int]]:
    """Store a simulation with a stand-in for each answer; return it, and the tokens of the prompt for each line of its first repeat."""
    ident, scenes, _ = prepare(agent, situations, model, repeats, reuse=False)
    prompts: list[int] = []
    for scene in scenes:
        for turn, text in enumerate(scene.situation.lines, 1):
            common: dict[str, Any] = {
                "channel": scene.channel,
                "synthetic": True,
                "tags": {**scene.channel.tags, TURN: str(turn)},
            }
            line = Message.objects.create(position=2 * turn - 1, outsider=scene.situation.speaker, text=text, **common)
            if scene.repeat == 1:
                prompts.append(_prompt_tokens(agent, line))
            Message.objects.create(position=2 * turn, agent=agent, text=STAND_IN, **common)
    messages = sum(len(scene.situation.lines) for scene in scenes)
    simulation = Simulation(
        id=ident, agent=agent, actor_model=model, persona_digest="", conversations=(), messages=messages
    )
    return simulation, prompts


def _prompt_tokens(agent: Agent, line: Message) -> int:
    """Tokens of the prompt with which the agent's turn would begin after this line."""
    turn = new_turn(agent=agent, channel=line.channel, trigger=line, overrides={"stages": []}, preview=True)
    prompt = build_prompt(turn)
    request = LLMRequest(
        role="actor",
        task="turn",
        system=prompt.system,
        turns=(prompt.user,),
        tools=tool_definitions(),
        label=Label(purpose="estimate"),
    )
    return estimate_tokens(request)
