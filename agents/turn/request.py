"""The question put to the model at each step of a turn."""

from __future__ import annotations

from agents import llm
from agents.turn.overrides import model_of, scene_of
from agents.turn.session import Session
from agents.turn.tools import tool_definitions

RETRIES = 2  # of one model call, by the SDK, within its deadline
MAX_TOKENS = 4096


def build_request(session: Session) -> llm.LLMRequest:
    """The exchange so far and the tools, for the agent's model."""
    run, turn, exchange = session.run, session.turn, session.exchange
    agent = turn.agent
    own = [message.text for message in turn.transcript if message.agent_id == agent.pk]
    return llm.LLMRequest(
        role="actor",
        task="turn",
        model=model_of(turn.overrides) or agent.model_id,
        system=exchange.system,
        turns=tuple(exchange.turns),
        tools=tool_definitions(),
        max_tokens=MAX_TOKENS,
        retries=RETRIES,
        nonce=exchange.nonce,
        facts={
            "agent": agent.slug,
            "channel": turn.channel.slug,
            "trigger": turn.trigger.text if turn.trigger is not None else "",
            "sample_lines": list(agent.sample_lines),
            "said": own,
            "rejected": list(exchange.rejected),
            "sent": exchange.sent,
            "step": exchange.model_calls + 1,
            "scene": scene_of(turn.overrides),
        },
        label=llm.Label(purpose="turn", mechanism="turn", agent_id=agent.pk, run_id=run.pk, work_id=f"run:{run.pk}"),
    )
