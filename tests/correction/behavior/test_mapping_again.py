"""Requests that waited while the persona changed: mapped again when they are applied, against the persona of then."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from agents.models import Agent
from agents.personas.persona import TraitValue
from correction.behavior.applying import MAPPED_AGAIN, BehaviorError, apply_request
from correction.behavior.models import BehaviorRequest
from correction.behavior.work import work_one
from tests.api_client import program
from tests.console import superuser
from tests.correction.behavior.asking import CONCISE, SHORTER, dm_with, judge, tier_of, traits_of, write
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
REQUESTS = "/api/behavior-requests/"
PIRATE = {**CONCISE, "name": "pirate talk", "description": "Talks like a pirate.", "strength": 0.3}


def waiting(*texts: str, traits: tuple[TraitValue, ...] = (), **config: Any) -> tuple[Agent, list[BehaviorRequest]]:
    """Requests to one agent that were all read before any of them was decided."""
    agent, channel = dm_with(*traits, **{"behavior_auto_apply": "never", **config})
    for text in texts:
        write(channel, text)
    while work_one(owner="w"):
        pass
    rows = list(BehaviorRequest.objects.order_by("pk"))
    assert {row.status for row in rows} == {"pending_review"}
    return agent, rows


@pytest.mark.parametrize(
    ("first", "second", "name", "strength"),
    [
        ("Talk like a pirate sometimes", "Stop the pirate talk", "speaking like a pirate", 0.0),
        ("Stop using emoji", "Use emoji sometimes", "emoji usage", 0.3),
    ],
)
def test_the_second_of_two_alike_changes_the_first_ones_trait(
    first: str, second: str, name: str, strength: float
) -> None:
    agent, (one, two) = waiting(first, second)

    apply_request(request=one)
    apply_request(request=two)

    assert traits_of(agent) == {name: strength}
    assert (two.operation, two.trait_before) == ("stop" if not strength else "update", one.trait_after)
    assert (MAPPED_AGAIN in one.warnings, MAPPED_AGAIN in two.warnings) == (False, True)


def test_an_unchanged_persona_needs_no_second_mapping(llm_server: LLMServer) -> None:
    llm_server.respond = judge()
    agent, (one,) = waiting("Be more concise")
    asked = llm_server.calls

    apply_request(request=one)

    assert (traits_of(agent), llm_server.calls) == ({"concise answers": 0.5}, asked)


def test_the_second_mapping_sees_current_traits_and_is_applied(llm_server: LLMServer) -> None:
    llm_server.respond = judge(map=PIRATE)
    agent, (one, two) = waiting("Be a pirate sometimes", "No more pirate")
    apply_request(request=one)
    prompts: list[str] = []

    def stop(prompt: str) -> dict[str, Any]:
        prompts.append(prompt)
        return {**PIRATE, "strength": 0.0, "is_new": False, "replaces_trait": "pirate talk"}

    llm_server.respond = judge(map=stop)
    apply_request(request=two)

    assert traits_of(agent) == {"pirate talk": 0.0}
    assert tier_of(llm_server.bodies[-1]) == "map"
    assert [prompt.count('"name": "pirate talk"') for prompt in prompts] == [1]
    assert (two.map_call_id is None, two.map_result) == (
        False,
        {**PIRATE, "strength": 0.0, "is_new": False, "replaces_trait": "pirate talk"},
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"scripted": {"status": 400}}, "mapping it again failed"),
        ({}, "nothing would change"),
        ({**CONCISE, "strength": 0.3}, ""),
        ({**PIRATE, "contradicts_persona": True, "contradiction": "She is a clerk."}, "against the persona: She is a clerk."),
    ],
    ids=["no answer", "nothing", "another strength", "against the persona"],
)  # fmt: skip
def test_what_mapping_again_cannot_do_changes_nothing_and_says_so(
    llm_server: LLMServer, settings: Settings, answer: Any, said: str
) -> None:
    settings.LLM_EVALUATION_RETRIES = 0
    llm_server.respond = judge()
    agent, (one, two) = waiting("Be brief", "Be brief", traits=(TraitValue("dry wit", "", 0, 0.5),))
    apply_request(request=one)
    before = traits_of(agent)
    llm_server.respond = judge(map=answer)

    if not said:
        apply_request(request=two)
        assert traits_of(agent) == {**before, "concise answers": 0.3}
        return
    with pytest.raises(BehaviorError, match=said):
        apply_request(request=two)
    two.refresh_from_db()
    assert (two.status, traits_of(agent)) == ("pending_review", before)


def test_a_new_doubt_is_shown_once_then_the_person_decides(llm_server: LLMServer) -> None:
    llm_server.respond = judge()
    agent, (one, two) = waiting("Be brief", "Be a pirate")
    apply_request(request=one)
    llm_server.respond = judge(map={**PIRATE, "contradicts_persona": True, "contradiction": "She is a clerk."})

    with pytest.raises(BehaviorError, match="doubtful"):
        apply_request(request=two)
    two.refresh_from_db()
    assert (two.trait_name, "She is a clerk." in two.why) == ("pirate talk", True)
    apply_request(request=two)
    assert traits_of(agent) == {"concise answers": 0.5, "pirate talk": 0.3}


def test_who_names_the_trait_is_asked_no_more(llm_server: LLMServer) -> None:
    llm_server.respond = judge()
    agent, (one, two) = waiting("Be brief", "Be a pirate")
    apply_request(request=one)
    asked = llm_server.calls

    apply_request(request=two, trait={"name": "pirate talk", "strength": 0.2})

    assert (traits_of(agent), llm_server.calls) == ({"concise answers": 0.5, "pirate talk": 0.2}, asked)


def test_only_the_protected_traits_of_now_decide(llm_server: LLMServer) -> None:
    llm_server.respond = judge(map=PIRATE)
    agent, (one, two) = waiting("Be a pirate sometimes", "Be a pirate", behavior_protected_traits=["dry wit"])
    apply_request(request=one)
    llm_server.respond = judge(map={**PIRATE, "strength": 0.9, "touches": ["Dry Wit"]})

    with pytest.raises(BehaviorError, match="protected"):
        apply_request(request=two)
    assert traits_of(agent) == {"pirate talk": 0.3}


def test_without_its_message_a_proposal_needs_an_unchanged_trait(llm_server: LLMServer) -> None:
    llm_server.respond = judge(extract=SHORTER, map=PIRATE)
    agent, (one, two) = waiting("Be a pirate sometimes", "No more pirate")
    apply_request(request=one)
    assert two.message is not None
    two.message.delete()
    BehaviorRequest.objects.filter(pk=two.pk).update(trait_after={**(two.trait_after or {}), "strength": 0.0})

    with pytest.raises(BehaviorError, match="since it was proposed a trait 'pirate talk' was made"):
        apply_request(request=two)
    assert traits_of(agent) == {"pirate talk": 0.3}


@pytest.mark.parametrize(
    ("edit", "status", "applied"),
    [
        ({"strength": 0.2}, 200, {"emoji usage": 0.2}),
        ({"description": "Only the smiling one.", "name": "smileys"}, 200, {"smileys": 0.3}),
        ({"strength": None}, 400, {}),
    ],
)  # fmt: skip
def test_what_an_edit_leaves_out_is_as_proposed(edit: dict[str, Any], status: int, applied: dict[str, float]) -> None:
    agent, (one,) = waiting("Use emoji sometimes")

    response = program(superuser("eve")).post(f"{REQUESTS}{one.pk}/apply/", {"trait": edit}, format="json")

    assert (response.status_code, traits_of(agent)) == (status, applied), response.json()
    for name in {"description", "sentiment"} - edit.keys() if applied else ():
        assert response.json()["trait_after"][name] == (one.trait_after or {})[name]


def test_an_edit_of_the_strength_alone_changes_the_trait_of_now() -> None:
    agent, (one, two) = waiting("Talk like a pirate sometimes", "Stop the pirate talk")
    apply_request(request=one)

    apply_request(request=two, trait={"strength": 0.1})

    assert traits_of(agent) == {"speaking like a pirate": 0.1}


def test_where_nothing_was_proposed_an_edit_needs_a_name_and_a_strength() -> None:
    _, (one,) = waiting("Use emoji sometimes")
    BehaviorRequest.objects.update(trait_after=None, trait_before=None, map_result={}, extract_result={})

    with pytest.raises(BehaviorError, match="nothing was proposed; allowed: a trait with its name, too"):
        apply_request(request=one, trait={"strength": 0.2})
