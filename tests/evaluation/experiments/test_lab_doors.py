"""A laboratory is asked for by command, page and route in the same words; what cannot be played is refused alike."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse
from pytest_django import Settings

from agents.models import Agent, Channel
from agents.personas.persona import save_persona
from evaluation.experiments.lab import LabRequest
from evaluation.experiments.models import Experiment
from evaluation.experiments.scenario import Scenario
from tests.api_client import program
from tests.console import confirm, in_group, read, signed_in, superuser, viewer
from tests.doors import CommandDoor, Door, PageDoor, RouteDoor
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.experiments.drifting import conversation

pytestmark = pytest.mark.django_db
PAGE, ROUTE = "/admin/experiments/experiment/lab/", "/api/experiments/lab/"
CASES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"at": 99}, ("99", "allowed: positions up to 8")),
    ({"agent": "nobody"}, ("nobody",)),
    ({"arms": "hypnosis"}, ("hypnosis", "allowed: gate=enforce")),
    ({"arms": "gate=sometimes"}, ("gate=sometimes", "no mode of the gate", "allowed: gate=enforce")),
    ({"arms": "reminder-every=0"}, ("reminder-every=0", "1 to 50 turns")),
    ({"arms": "persona=7"}, ("persona=7", "no such version", "allowed: 1")),
    ({"turns": 51}, ("51", "allowed: less than or equal to 50")),
    ({"repeats": 0}, ("0", "allowed: greater than or equal to 1")),
]

SHOWN = {"arms": "reminder", "turns": 2, "repeats": 2, "asks": 2, "ask": "none", "seed": 0, "dimensions": ["adherence"]}


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL, settings.WORKER_THREADS = "offline:scripted-1", "offline:lexical-1", 1


@pytest.fixture
def street(propositions: PropositionFolder) -> Channel:
    channel, ada = conversation(propositions, turns=4)
    Agent.objects.filter(pk=ada.pk).update(sample_lines=["I would build a wall there.", "Bricks."])
    return channel


@pytest.fixture
def doors(street: Channel, tmp_path: Path) -> list[Door]:
    user, usual = superuser(), {"channel": street.slug}
    return [
        CommandDoor("lab", LabRequest, tmp_path, ["street"]),
        PageDoor(signed_in(user), PAGE, {**usual, **SHOWN}),
        RouteDoor(program(user), ROUTE, usual),
    ]


@pytest.mark.parametrize(("chosen", "said"), CASES, ids=[json.dumps(chosen) for chosen, _ in CASES])
def test_what_cannot_be_played_is_refused_at_every_door(
    chosen: dict[str, Any], said: tuple[str, ...], doors: list[Door], subtests: pytest.Subtests
) -> None:
    for door in doors:
        with subtests.test(door=type(door).__name__):
            field, sentence = door.refusal(chosen)
            assert {field} == set(chosen)
            for words in said:
                assert words in sentence
    assert not Experiment.objects.exists()


@pytest.mark.parametrize("changed", [{"synthetic": True}, {"kind": Channel.Kind.DEBATE}], ids=["simulation", "debate"])
def test_simulations_and_debates_are_forked_at_no_door(
    changed: dict[str, Any], street: Channel, doors: list[Door]
) -> None:
    Channel.objects.filter(pk=street.pk).update(**changed)

    with pytest.raises(CommandError) as error:
        call_command("lab", "street")
    said = [str(error.value)]
    for door in doors[1:]:
        field, sentence = door.refusal({"channel": "street"})
        assert field == "channel"
        said.append(sentence)
    for sentence in said:
        assert "allowed" in sentence
    assert not Experiment.objects.exists()


def test_an_operator_starts_one_from_the_page_of_a_conversation_and_a_viewer_is_not_offered_it(street: Channel) -> None:
    transcript = reverse("admin:agents_channel_transcript", args=[street.pk])
    operator = signed_in(in_group("Operator"))

    assert f'{PAGE}?channel=street"' in read(operator, transcript)
    assert f"{PAGE}?channel=street&amp;at=6" in read(operator, f"{transcript}?at=6")
    assert PAGE not in read(signed_in(viewer()), transcript)
    confirm(operator, PAGE, **{**SHOWN, "channel": "street", "at": "8", "ask": "shipped"})

    experiment = Experiment.objects.get()
    scenario = Scenario.model_validate(experiment.scenario)
    assert scenario.start_from == "street@8"
    assert [arm.name for arm in scenario.arms] == ["control", "reminder"]
    assert scenario.lab is not None
    assert len(scenario.lab.questions) == 25


def test_forks_have_no_button(street: Channel) -> None:
    Channel.objects.filter(pk=street.pk).update(synthetic=True)

    html = read(signed_in(superuser()), reverse("admin:agents_channel_transcript", args=[street.pk]))

    assert PAGE not in html


def test_the_command_plays_reports_and_begins_with_what_came_of_it(street: Channel, tmp_path: Path) -> None:
    ada = Agent.objects.get(slug="ada")
    ada.system_prompt = "You are Ada, version two."
    save_persona(agent=ada, note="second")
    file = tmp_path / "other.txt"
    file.write_text("You are Ada, as a file has her.")
    out = io.StringIO()
    words = ["--turns", "2", "--repeats", "2", "--ask", "none"]
    arms = ["reminder", "reminder-every=1:Speak of walls, always.", "gate=off", "persona=1", f"persona={file}"]
    call_command("lab", "street", *words, *(word for arm in arms for word in ("--arm", arm)), stdout=out)

    scenario = Scenario.model_validate(Experiment.objects.get().scenario)
    by_name = {arm.name: arm for arm in scenario.arms}
    assert list(by_name) == ["control", "reminder", "reminder-2", "gate-off", "persona", "persona-2"]
    assert [by_name["reminder-2"].reminder_in(step) for step in (1, 2)] == ["Speak of walls, always."] * 2
    assert by_name["reminder"].reminder_in(2) == ""
    assert by_name["persona"].overrides["system_prompt"].startswith("You are Ada, a dry")
    assert by_name["persona-2"].overrides["system_prompt"] == "You are Ada, as a file has her."
    printed = out.getvalue()
    assert "A reminder" in printed
    assert printed.index("A reminder") < printed.index("Repairs of Ada")


def test_a_file_is_a_persona_on_the_command_line_alone(street: Channel, tmp_path: Path) -> None:
    file = tmp_path / "other.txt"
    file.write_text("You are Ada.")

    answer = program(superuser()).post(ROUTE, {"channel": "street", "arms": f"persona={file}"}, format="json")

    assert answer.status_code == 400
    assert not Experiment.objects.exists()


def test_a_dry_run_says_what_it_would_take_and_writes_nothing(street: Channel) -> None:
    out = io.StringIO()
    call_command(
        "lab", "street", "--arm", "reminder", "--turns", "3", "--repeats", "2", "--dry-run", "--json", stdout=out
    )

    estimate = json.loads(out.getvalue())
    assert (estimate["conversations"], estimate["turns"], estimate["forks"]) == (4, 4 * (3 + 25 * 2), 2)
    assert not Experiment.objects.exists()


def test_one_fork_of_each_arm_is_told_beforehand_that_it_gets_no_verdict(street: Channel) -> None:
    for form in ("terminal", "markdown"):
        out = io.StringIO()
        call_command("lab", "street", "--repeats", "1", "--dry-run", "--format", form, stdout=out)
        assert "No verdict is possible" in out.getvalue()


def test_a_conversation_in_which_no_agent_speaks_is_refused(street: Channel) -> None:
    street.messages.update(agent=None, outsider="Kim")

    with pytest.raises(CommandError) as error:
        call_command("lab", "street")

    assert "--agent" in str(error.value)
