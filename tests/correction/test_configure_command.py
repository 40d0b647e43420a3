"""``manage.py configure``: what a person at a terminal sets, sees and is told."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agents.models import Agent
from correction.config.configure import config_history, configure
from correction.config.settings import FIELDS, resolve_config
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _cast() -> None:
    make_agent("michael", display_name="Michael Scott")
    make_agent("dwight", display_name="Dwight Schrute")


def run(*args: str) -> str:
    out = io.StringIO()
    call_command("configure", *args, stdout=out, no_color=True)
    return out.getvalue()


def refused(*args: str) -> str:
    with pytest.raises(CommandError) as error:
        run(*args)
    assert error.value.returncode == 2
    return str(error.value)


def michael() -> Agent:
    return Agent.objects.get(slug="michael")


def test_changes_are_echoed_as_before_and_after_with_what_follows_from_them() -> None:
    out = run("michael", "gate_adherence_enabled=on", "gate_fluency_threshold=5")

    assert "gate_adherence_enabled: off (built-in) → on (agent)" in out
    assert "gate_mode: off (built-in) → enforce (built-in)" in out
    assert "gate_fluency_threshold: 5 (built-in) → 5 (agent)" in out
    assert "max_correction_attempts" not in out


def test_setting_what_is_set_already_says_so() -> None:
    run("michael", "gate_mode=observe")

    assert "gate_mode: observe (agent), unchanged" in run("michael", "gate_mode=observe")


def test_without_changes_it_shows_every_field_with_value_origin_range_and_meaning() -> None:
    configure(agent=None, changes={"gate_consistency_threshold": "6.5"})

    out = run("Michael Scott")

    assert all(name in out for name in FIELDS)
    line = next(line for line in out.splitlines() if "gate_consistency_threshold" in line)
    assert line.split()[:3] == ["gate_consistency_threshold", "6.5", "defaults"]
    assert "0 to 9" in line


def test_the_defaults_are_shown_and_set_by_that_name() -> None:
    run("defaults", "gate_fluency_enabled=on")

    assert resolve_config(michael())["gate_fluency_enabled"] is True
    assert "gate_fluency_enabled" in run("defaults")


def test_json_is_one_object_with_values_and_where_they_come_from() -> None:
    shown = json.loads(run("michael", "gate_adherence_threshold=6.5", "--json"))

    assert shown["agent"] == "michael"
    assert shown["config"]["gate_adherence_threshold"] == 6.5
    assert shown["provenance"]["gate_adherence_threshold"] == "agent"
    assert list(shown["config"]) == list(FIELDS)


def test_a_mistyped_agent_is_told_the_nearest() -> None:
    assert "did you mean michael?" in refused("micheal", "gate_mode=off")
    assert "agents: dwight, michael" in refused("xyzzy")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["michael", "gate_mode=on"], "gate_mode 'on': allowed: off or observe or enforce, or inherit"),
        (["michael", "mood=1"], "there is no field 'mood'; allowed: gate_mode, "),
        (["michael", "gate_mode"], "'gate_mode': write field=value"),
        (["michael", "gate_mode=off", "gate_mode=observe"], "gate_mode is given twice"),
        (["michael", "gate_mode=off", "--history"], "one at a time"),
        (["michael", "--revert", "4711"], "the history of michael has no entry 4711; the latest: none"),
        ([], "name an agent, or defaults"),
    ],
)
def test_bad_input_is_refused_with_a_sentence_and_changes_nothing(arguments: list[str], told: str) -> None:
    assert told in refused(*arguments)
    assert config_history(michael()) == []


def test_settings_without_effect_are_noted() -> None:
    assert "Note: gate_mode is observe, but no dimension is enabled" in run("michael", "gate_mode=observe")


def test_the_history_is_shown_and_gone_back_in() -> None:
    run("michael", "gate_mode=observe", "--reason", "a trial")
    run("michael", "gate_mode=enforce")
    entries: list[dict[str, Any]] = json.loads(run("michael", "--history", "--json"))["history"]
    assert [entry["changes"] for entry in entries] == [
        {"gate_mode": ["observe", "enforce"]},
        {"gate_mode": ["inherit", "observe"]},
        {},
    ]
    assert entries[1]["reason"] == "a trial"
    assert "in a terminal" in entries[0]["reason"]

    out = run("michael", "--revert", str(entries[1]["entry"]))

    assert "gate_mode: enforce (agent) → observe (agent)" in out
    assert "a trial" in run("michael", "--history")


def test_a_history_nobody_made_says_so() -> None:
    assert "The configuration of michael was never changed." in run("michael", "--history")


def test_every_field_is_listed_with_what_is_allowed() -> None:
    out = run("--fields")

    assert all(name in out for name in FIELDS)
    assert "a whole number, 0 to 10" in out


def test_the_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--help")

    out = capsys.readouterr().out
    assert "manage.py configure michael gate_adherence_enabled=on" in out
    assert "Exit code: 0 done, 2" in out
