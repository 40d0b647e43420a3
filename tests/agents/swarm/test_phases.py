"""The shipped swarm: ten phases, stored once, given to nobody; and what `manage.py check` says of a broken one."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.models import Agent, Swarm, SwarmPhase
from agents.swarm import phases
from agents.swarm.intents import intents
from agents.swarm.phases import ensure_default_swarm, problems, seed_swarm
from tests.factories import make_agent

HEAD = "name: personality\nintents: [general]\npost_executor: combined\nphases:\n"
PHASE = "  - {name: voice, phase: pre, order: 1, temperature: 0.55, prompt: Listen.}\n"


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


@pytest.mark.django_db
def test_no_example_agent_has_a_swarm() -> None:
    call_command("seed", verbosity=0)

    assert Swarm.objects.count() == 1
    assert not Agent.objects.filter(swarms__isnull=False).exists()


def test_what_is_shipped_is_valid() -> None:
    assert list(problems()) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEAD + PHASE.replace("Listen.", "''"), "phases.0.prompt: ''; allowed: at least 1 character"),
        (HEAD + PHASE.replace("Listen.", "'  '"), "phases.0.prompt: '  '; allowed: at least 1 character"),
        (HEAD + PHASE.replace(", prompt: Listen.", ""), "phases.0.prompt: it is missing"),
        (HEAD + PHASE.replace("pre,", "before,"), "phases.0.phase: 'before'; allowed: 'pre', 'main' or 'post'"),
        (HEAD + PHASE.replace("0.55", "3"), "phases.0.temperature: 3; allowed: less than or equal to 2"),
        (HEAD + PHASE + PHASE, "phases.name: 'voice' is there twice"),
        (HEAD.replace("general", "weather") + PHASE, "'weather' is unknown; allowed: general, food_undo"),
        (HEAD, "phases: None; allowed: a valid list"),
        ("name: [", "cannot be read"),
        ("just words", "a valid dictionary"),
    ],
)
def test_a_broken_file_is_named_with_field_and_what_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    path = tmp_path / "phases.yaml"
    path.write_text(text, encoding="utf-8")

    assert problem in "\n".join(problems(path))


def test_an_empty_or_missing_template_fails_the_check(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "templates" / "prompts" / "swarm"
    folder.mkdir(parents=True)
    for name in phases.TEMPLATES[1:]:
        (folder / f"{name}.md").write_text("x" if name != "polish" else "\n", encoding="utf-8")
    settings.BASE_DIR = tmp_path

    said = [message.msg for message in run_checks(tags=["plumbline"]) if message.id == "agents.E007"]

    assert said == [
        f"The prompts of the default swarm: {name}.md is missing or empty." for name in (phases.TEMPLATES[0], "polish")
    ]


@pytest.mark.django_db
def test_a_stored_swarm_that_cannot_work_fails_the_check_where_it_may_read_the_database(settings: Settings) -> None:
    ensure_default_swarm()
    call_command("check", "--database", "default", stdout=StringIO(), stderr=StringIO())
    SwarmPhase.objects.filter(name="core-responder").update(prompt=" \n")
    Swarm.objects.create(name="meals", intents=["sleep"], tools=["log"])
    settings.TURN_TOOLS = {}

    said = [one.msg for one in run_checks(databases=["default"]) if one.id == "agents.E009"]

    assert said == [
        "A stored swarm cannot work: swarm personality: the prompt of its phase core-responder is empty; "
        "allowed: what the phase is asked to do.",
        f"A stored swarm cannot work: swarm meals: intents: 'sleep' is unknown; allowed: {', '.join(intents())}.",
        "A stored swarm cannot work: swarm meals: tools: 'log' is unknown; allowed: none, there are none yet.",
    ]
    assert not [one for one in run_checks() if one.id == "agents.E009"], "no check reads the database unasked"


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("TURN_TOOLS", {"weigh": "nowhere.Weigh"}, "The tool 'weigh' is 'nowhere.Weigh', which cannot be loaded"),
        ("TURN_TOOLS", {"weigh": "agents.models.Agent"}, "which is no subclass of agents.turn.tools.Tool"),
        ("TURN_SWARM_POST", "loud", "TURN_SWARM_POST is 'loud'"),
        ("TURN_SWARM_PRE_DEADLINE", 0, "TURN_SWARM_PRE_DEADLINE is 0"),
    ],
)
def test_a_wrong_setting_fails_the_check(settings: Settings, name: str, value: object, complaint: str) -> None:
    setattr(settings, name, value)

    with pytest.raises((CommandError, SystemExit)) as failed:
        call_command("check")

    assert complaint in str(failed.value)
