"""The shipped swarm: ten phases, stored once, given to nobody; and what `manage.py check` says of a broken one."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.swarm.models import Swarm, SwarmPhase
from agents.swarm.phases import ensure_default_swarm, seed_swarm
from tests.declaring import declare
from tests.factories import make_agent


@pytest.mark.django_db
def test_the_default_swarm_has_ten_phases_and_no_agent() -> None:
    make_agent("ada")

    swarm = ensure_default_swarm()

    stored = swarm.phases.order_by("-phase", "order").values_list("phase", "order", "temperature", "version", "enabled")
    assert list(stored) == [
        *(("pre", n, 0.55, 1, True) for n in (1, 2, 3)),
        *(("post", n, 0.4, 1, True) for n in (1, 2, 3, 4, 5, 6)),
        ("main", 1, 0.55, 1, True),
    ]
    assert (swarm.intents, swarm.post_executor, swarm.enabled) == (["general"], "combined", True)
    assert not swarm.agents.exists()


@pytest.mark.django_db
def test_storing_it_again_changes_nothing_that_people_changed() -> None:
    swarm = ensure_default_swarm()
    SwarmPhase.objects.filter(name="core-responder").update(prompt="Answer in rhyme.", version=2)
    swarm.phases.filter(phase="pre").delete()

    assert seed_swarm([]) == "Swarm personality: 7 phases, 0 agents."
    assert SwarmPhase.objects.get(name="core-responder").prompt == "Answer in rhyme."
    assert Swarm.objects.count() == 1


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("nowhere.Weigh", "The tool 'weigh' is 'nowhere.Weigh', which cannot be loaded"),
        ("agents.models.Agent", "which is no subclass of agents.turn.tools.Tool"),
    ],
)
def test_a_tool_that_cannot_be_used_fails_the_check(monkeypatch: pytest.MonkeyPatch, path: str, complaint: str) -> None:
    declare(monkeypatch, "turn_tools", {"weigh": path})

    with pytest.raises((CommandError, SystemExit)) as failed:
        call_command("check")

    assert complaint in str(failed.value)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("TURN_SWARM_POST", "loud", "TURN_SWARM_POST is 'loud'"),
    ],
)
def test_a_wrong_setting_fails_the_check(settings: Settings, name: str, value: object, complaint: str) -> None:
    setattr(settings, name, value)

    with pytest.raises((CommandError, SystemExit)) as failed:
        call_command("check")

    assert complaint in str(failed.value)
