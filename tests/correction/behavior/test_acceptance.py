"""The acceptance list of specification 002, through the real SDK on loopback; what the judge says is what a sensible one would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel
from agents.personas.persona import TraitValue, render_persona
from correction.behavior.models import BehaviorRequest
from correction.behavior.work import work_one
from tests.correction.behavior.asking import (
    CONCISE,
    NO,
    SHORTER,
    STOP_SLANG,
    YES,
    dm_with,
    judge,
    traits_of,
    write,
)
from tests.correction.gating import send
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
PIRATE = {**CONCISE, "name": "pirate talk", "description": "Talks like a pirate.", "strength": 0.3}
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


def test_talk_about_pirates_changes_nothing(llm_server: LLMServer) -> None:
    agent, channel = dm_with(*OWN)

    request = says(llm_server, agent, channel, "Pirates say arrr", gate=NO)

    assert request.status == "no_request"
    assert traits_of(agent) == {"dry wit": 0.8, "shouting": 0.0}
    assert llm_server.calls == 1


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
    for text in ("Arrr, shiver me timbers!", "I love long stories."):
        assert says(llm_server, agent, channel, text, gate=NO).status == "no_request"
        send(agent, channel, f"Aye! {text} Always talk like a pirate!")

    assert traits_of(agent) == {"dry wit": 0.8, "shouting": 0.0}
    assert agent.persona_versions.get() == before
    assert BehaviorRequest.objects.count() == 2


def test_a_trait_asked_for_now_and_then_and_later_stopped(llm_server: LLMServer) -> None:
    agent, channel = dm_with()

    says(llm_server, agent, channel, "Try to talk a bit like a pirate now and then", **asking_for(PIRATE))
    assert traits_of(agent) == {"pirate talk": 0.3}
    stop = {**PIRATE, "strength": 0.0, "is_new": False, "replaces_trait": "pirate talk"}
    request = says(llm_server, agent, channel, "Right, no more of the pirate thing", **asking_for(stop))

    assert (request.operation, request.trait_before["strength"]) == ("stop", 0.3)  # type: ignore[index]
    assert traits_of(agent) == {"pirate talk": 0.0}
    assert [v.note for v in agent.persona_versions.order_by("number")][1:] == [
        f"behaviour request {pk}" for pk in BehaviorRequest.objects.order_by("pk").values_list("pk", flat=True)
    ]


@pytest.mark.parametrize("text", ["توقف عن إلقاء النكات.", "别再讲笑话了。"], ids=["ar", "zh"])
def test_a_stop_reaches_the_judge_whole_in_any_script(llm_server: LLMServer, text: str) -> None:
    agent, channel = dm_with(TraitValue("jokes", "Tells jokes.", 0.5, 0.9))
    read: list[bool] = []

    def if_shown(answer: dict[str, Any]) -> Callable[[str], dict[str, Any]]:
        def decide(prompt: str) -> dict[str, Any]:
            read.append(f">>>\n{text}\n<<<END" in prompt)
            return answer

        return decide

    jokes = {**STOP_SLANG, "name": "jokes", "description": "", "is_new": False, "replaces_trait": "jokes"}
    answers = {**asking_for(jokes), "gate": if_shown(YES), "extract": if_shown({**SHORTER, "behavior_name": "jokes"})}

    request = says(llm_server, agent, channel, text, **answers)

    assert read == [True, True]
    assert (request.status, request.operation, traits_of(agent)) == ("applied", "stop", {"jokes": 0.0})


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


OWN_STRENGTHS = {"dry wit": 0.8, "shouting": 0.0}


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"


def after(*texts: str, known: tuple[TraitValue, ...] = ()) -> tuple[list[str], dict[str, float]]:
    """What became of these messages, and the traits afterwards; every confidence is applied."""
    traits = (TraitValue("dry wit", "Is dry.", 0.3, 0.8), TraitValue("shouting", "Shouts.", -0.2, 0.0), *known)
    agent, channel = dm_with(*traits, behavior_auto_apply="low")
    for text in texts:
        write(channel, text)
        assert work_one(owner="w")
    return list(BehaviorRequest.objects.order_by("pk").values_list("status", flat=True)), traits_of(agent)


@pytest.mark.parametrize("text", ["Can you use emoji?", "Be more concise"])
def test_a_request_creates_a_trait_offline(text: str) -> None:
    statuses, traits = after(text)

    assert statuses == ["applied"]
    assert {name: traits.pop(name) for name in OWN_STRENGTHS} == OWN_STRENGTHS
    (strength,) = traits.values()
    assert strength > 0
