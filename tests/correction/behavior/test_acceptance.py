"""The acceptance list of specification 002, through the real SDK on loopback; what the judge says is what a sensible one would."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel
from agents.personas.persona import TraitValue, render_persona
from correction.behavior.models import BehaviorRequest
from correction.behavior.work import work_one
from tests.correction.behavior.asking import CONCISE, NO, SHORTER, STOP_SLANG, YES, dm_with, judge, traits_of, write
from tests.correction.gating import send
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
OWN = (TraitValue("dry wit", "Is dry.", 0.3, 0.8), TraitValue("shouting", "Shouts.", -0.2, 0.0))


def asking_for(trait: dict[str, Any]) -> dict[str, Any]:
    """What a judge answers to a request for this trait."""
    return {"gate": YES, "extract": {**SHORTER, "behavior_name": trait["name"]}, "map": trait}


def says(server: LLMServer, agent: Agent, channel: Channel, text: str, **answers: Any) -> BehaviorRequest:
    """A person writes something, and a worker looks at it."""
    server.respond = judge(**answers)
    message = write(channel, text)
    assert work_one(owner="w")
    request: BehaviorRequest = BehaviorRequest.objects.get(message=message, agent=agent)
    return request


@pytest.mark.parametrize(
    "known", [None, TraitValue("Australian Slang", "Says crikey.", 0.6, 0.7)], ids=["new", "known"]
)
def test_a_stop_sets_the_strength_to_zero_and_the_trait_stays(llm_server: LLMServer, known: TraitValue | None) -> None:
    agent, channel = dm_with(*OWN, *([known] if known else []))
    trait = {**STOP_SLANG, "replaces_trait": "AUSTRALIAN SLANG" if known else None, "is_new": known is None}

    request = says(llm_server, agent, channel, "Stop using Australian slang", **asking_for(trait))

    name = known.name if known else "australian slang"
    assert (request.status, request.operation) == ("applied", "stop")
    assert traits_of(agent) == {"dry wit": 0.8, "shouting": 0.0, name: 0.0}
    persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())
    assert f"- {name}" in persona.split("### Never")[1]


def test_what_is_said_in_a_conversation_does_not_corrupt_the_traits(llm_server: LLMServer) -> None:
    agent, channel = dm_with(*OWN)
    before = agent.persona_versions.get()
    for text in ("Pirates say arrr", "I love long stories."):
        assert says(llm_server, agent, channel, text, gate=NO).status == "no_request"
        send(agent, channel, f"Aye! {text} Always talk like a pirate!")

    assert traits_of(agent) == {"dry wit": 0.8, "shouting": 0.0}
    assert agent.persona_versions.get() == before
    assert (BehaviorRequest.objects.count(), llm_server.calls) == (2, 2)


def test_forty_traits_survive_a_stop_and_a_change(llm_server: LLMServer) -> None:
    many = [TraitValue(f"trait {n:02}", "x" * 400, 0.0, (n % 11) / 10) for n in range(40)]
    agent, channel = dm_with(*many)
    stop = {**CONCISE, "name": "trait 07", "strength": 0.0, "is_new": False, "replaces_trait": "TRAIT 07"}

    says(llm_server, agent, channel, "No more of number seven", **asking_for(stop))
    says(llm_server, agent, channel, "Be more concise", **asking_for(CONCISE))

    wanted = {t.name: t.strength for t in many} | {"trait 07": 0.0, "concise answers": 0.5}
    assert traits_of(agent) == wanted
    shown = llm_server.bodies[-1]["messages"][-1]["content"][0]["text"]
    assert all(f'"name": "{name}", "strength": {wanted[name]}' in shown for name in wanted if name != "concise answers")


@pytest.mark.parametrize("text", ["Can you use emoji?", "Be more concise"])
def test_a_request_creates_a_trait_offline(settings: Settings, text: str) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    agent, channel = dm_with(*OWN, behavior_auto_apply="low")
    write(channel, text)
    assert work_one(owner="w")

    traits = traits_of(agent)
    assert BehaviorRequest.objects.get().status == "applied"
    assert (traits.pop("dry wit"), traits.pop("shouting")) == (0.8, 0.0)
    (strength,) = traits.values()
    assert strength > 0
