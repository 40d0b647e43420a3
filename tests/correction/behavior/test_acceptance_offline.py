"""The acceptance list of specification 002 with no key and no network: what the offline detector makes of it."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from agents.persona import TraitValue
from correction.behavior import work_one
from correction.models import BehaviorRequest
from tests.correction.behavior.asking import dm_with, traits_of, write

pytest.importorskip("correction.behavior.patterns", reason="there is no offline detector")
pytestmark = pytest.mark.django_db
OWN = {"dry wit": 0.8, "shouting": 0.0}


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
def test_a_request_creates_a_trait(text: str) -> None:
    statuses, traits = after(text)

    assert statuses == ["applied"]
    assert {name: traits.pop(name) for name in OWN} == OWN
    (strength,) = traits.values()
    assert strength > 0


def test_talk_about_pirates_changes_nothing() -> None:
    assert after("Pirates say arrr") == (["no_request"], OWN)


def test_a_stop_sets_the_strength_to_zero_and_the_trait_stays() -> None:
    statuses, traits = after("Stop using Australian slang")

    assert statuses == ["applied"]
    assert {name: traits.pop(name) for name in OWN} == OWN
    assert list(traits.values()) == [0.0]


def test_what_is_said_in_a_conversation_does_not_corrupt_the_traits() -> None:
    texts = (
        "My cat runs the servers at home.",
        "We played pirates with the children all day.",
        "You explain that well.",
    )

    assert after(*texts) == (["no_request"] * 3, OWN)
