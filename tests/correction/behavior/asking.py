"""A judge on loopback that answers the three tiers, and the agents and messages it is asked about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agents.models import Agent, Channel, ChannelMember, Message
from agents.personas.persona import TraitValue
from agents.turn.receive import receive_message
from correction.behavior.tiers import Subject
from correction.models import AgentEvaluationConfig
from tests.evaluation.judging import prompt_of
from tests.factories import make_agent, make_channel

Respond = Callable[[dict[str, Any]], dict[str, Any]]
NO = {"has_request": False, "confidence": "high", "reason": "It tells something."}
YES = {"has_request": True, "confidence": "high", "reason": "It asks for something."}
SHORTER = {
    "behavior_name": "long answers",
    "current_state": "The answers are long.",
    "requested_change": "The answers shall be short.",
}
CONCISE = {
    "name": "concise answers",
    "description": "Says it in as few words as will do.",
    "sentiment": 0.0,
    "strength": 0.5,
    "is_new": True,
    "replaces_trait": None,
    "contradicts_persona": False,
    "contradiction": "",
}
STOP_SLANG = {**CONCISE, "name": "australian slang", "description": "Talks like an Australian.", "strength": 0.0}


def tier_of(body: dict[str, Any]) -> str:
    """Which tier a request to the judge is, by what it must answer."""
    fields = body["output_config"]["format"]["schema"]["properties"]
    return "gate" if "has_request" in fields else "extract" if "behavior_name" in fields else "map"


def judge(**answers: Any) -> Respond:
    """A server that answers by tier: the object, what a function of the prompt returns, or under ``scripted`` a whole reply."""
    known: Mapping[str, Any] = {"gate": YES, "extract": SHORTER, "map": CONCISE, **answers}

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        answer = known[tier_of(body)]
        if callable(answer):
            answer = answer(prompt_of(body))
        return dict(answer.get("scripted", {"json": answer}))

    return respond


def subject(*traits: TraitValue, name: str = "Ada", persona: str = "You are Ada, a dry and careful clerk.") -> Subject:
    return Subject(name=name, persona=persona, traits=traits)


def dm_with(*traits: TraitValue, slug: str = "ada", **config: Any) -> tuple[Agent, Channel]:
    """An agent in a direct message, of whom anybody may ask for a change of the persona unless the configuration says otherwise."""
    agent = make_agent(slug, traits=traits)
    AgentEvaluationConfig.objects.create(
        agent=agent, **{"behavior_requesters": "anyone", "behavior_scope": "persona", **config}
    )
    channel = make_channel(f"dm-zed-{slug}", kind="dm")
    ChannelMember.objects.create(channel=channel, agent=agent)
    return agent, channel


def write(channel: Channel, text: str, **fields: Any) -> Message:
    """What a person who is no user writes."""
    return receive_message(channel=channel, text=text, **{"outsider": "Zed", **fields})


def traits_of(agent: Agent) -> dict[str, float]:
    """Names and strengths of an agent's traits."""
    return dict(agent.traits.values_list("name", "strength"))
