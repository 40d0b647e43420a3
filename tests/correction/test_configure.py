"""Changing a configuration: checked as a whole, and never over somebody else's change."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from agents.models import Agent
from correction.config.configure import configure, notes_on
from correction.config.settings import ConfigError, resolve_config
from correction.models import AgentEvaluationConfig
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def rows() -> int:
    return int(AgentEvaluationConfig.objects.count())


# -- setting
def test_a_change_is_in_effect_at_once_and_leaves_the_other_fields(ada: Agent) -> None:
    configure(agent=ada, changes={"gate_fluency_threshold": 6})

    config = configure(agent=ada, changes={"gate_adherence_enabled": True})

    assert config == resolve_config(ada)
    assert (config["gate_adherence_enabled"], config["gate_fluency_threshold"]) == (True, 6)
    assert config.gate_mode == "enforce"
    assert rows() == 1


def test_the_defaults_hold_for_every_agent_that_says_nothing(ada: Agent) -> None:
    bob = make_agent("bob")
    configure(agent=bob, changes={"gate_fluency_enabled": "off"})

    config = configure(agent=None, changes={"gate_fluency_enabled": "on"})

    assert config["gate_fluency_enabled"] is True
    assert resolve_config(ada)["gate_fluency_enabled"] is True
    assert resolve_config(bob)["gate_fluency_enabled"] is False


@pytest.mark.parametrize("nothing", [None, "", "inherit", " Inherit "])
def test_a_field_is_reset_to_inherit(ada: Agent, nothing: Any) -> None:
    configure(agent=None, changes={"gate_fluency_threshold": 3})
    configure(agent=ada, changes={"gate_fluency_threshold": 8})

    config = configure(agent=ada, changes={"gate_fluency_threshold": nothing})

    assert config["gate_fluency_threshold"] == 3
    assert config.provenance["gate_fluency_threshold"] == "defaults"


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("gate_adherence_enabled", "ON", True),
        ("gate_adherence_enabled", "no", False),
        ("gate_adherence_enabled", 1, True),
        ("gate_adherence_enabled", False, False),
        ("gate_mode", "Observe", "observe"),
        ("gate_adherence_threshold", 5, Decimal("5.0")),
        ("gate_adherence_threshold", 5.5, Decimal("5.5")),
        ("gate_adherence_threshold", " 0 ", Decimal("0.0")),
        ("gate_adherence_threshold", "9", Decimal("9.0")),
        ("repetition_threshold", 0.3, Decimal("0.300")),
        ("max_correction_attempts", "0", 0),
        ("max_correction_attempts", 10.0, 10),
        ("daily_budget_usd", "0.0001", Decimal("0.0001")),
    ],
)
def test_values_are_read_as_people_and_programs_write_them(ada: Agent, name: str, value: Any, stored: Any) -> None:
    configure(agent=ada, changes={name: value})

    assert getattr(AgentEvaluationConfig.objects.get(), name) == stored


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("gate_adherence_enabled", "maybe", "on or off"),
        ("gate_adherence_enabled", 2, "on or off"),
        ("gate_adherence_enabled", [True], "on or off"),
        ("gate_mode", "enforced", "off or observe or enforce"),
        ("gate_mode", True, "off or observe or enforce"),
        ("gate_adherence_threshold", 9.1, "0 to 9 with at most 1 decimal place"),
        ("gate_adherence_threshold", -1, "0 to 9"),
        ("gate_adherence_threshold", "5.25", "at most 1 decimal place"),
        ("gate_adherence_threshold", True, "0 to 9"),
        ("gate_adherence_threshold", "five", "0 to 9"),
        ("gate_adherence_threshold", "NaN", "0 to 9"),
        ("gate_adherence_threshold", float("nan"), "0 to 9"),
        ("gate_adherence_threshold", float("inf"), "0 to 9"),
        ("gate_adherence_threshold", "1e999999999", "0 to 9"),
        ("gate_adherence_threshold", "9" * 10_000, "0 to 9"),
        ("gate_adherence_threshold", {}, "0 to 9"),
        ("max_correction_attempts", 2.5, "a whole number, 0 to 10"),
        ("max_correction_attempts", 11, "a whole number, 0 to 10"),
        ("max_correction_attempts", "1e999999999", "a whole number, 0 to 10"),
        ("variety_message_threshold", 0, "a whole number, 1 to 10000"),
        ("gate_deadline_seconds", 0, "0.1 to 60"),
        ("gate_total_deadline_seconds", 301, "0.1 to 300"),
        ("daily_budget_usd", "100000.01", "0 to 100000"),
        ("observe_sample_rate", "10%", "0 to 1"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_field_value_and_range(
    ada: Agent, name: str, value: Any, allowed: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        configure(agent=ada, changes={name: value})

    message = refused.value.errors[name]
    assert message.startswith(f"{name} ")
    assert repr(value)[:50] in message
    assert allowed in message
    assert "inherit" in message
    assert len(message) < 250
    assert rows() == 0


def test_an_unknown_field_is_refused_with_the_nearest_and_all_that_are_allowed(ada: Agent) -> None:
    with pytest.raises(ConfigError, match="did you mean gate_fluency_enabled") as refused:
        configure(agent=ada, changes={"gate_fluency_enable": True})

    assert "daily_budget_usd" in str(refused.value)


@pytest.mark.parametrize("name", ["id", "agent", "agent_id", "is_defaults", "updated_at", "history", "pk", "__class__"])
def test_what_is_no_setting_cannot_be_set(ada: Agent, name: str) -> None:
    with pytest.raises(ConfigError, match="there is no field"):
        configure(agent=ada, changes={name: 1})


def test_all_faults_are_named_at_once_and_then_nothing_is_changed(ada: Agent) -> None:
    with pytest.raises(ConfigError) as refused:
        configure(agent=ada, changes={"gate_mode": "on", "gate_fluency_enabled": True, "colour": 1})

    assert set(refused.value.errors) == {"gate_mode", "colour"}
    assert resolve_config(ada).gate_is_off
    assert rows() == 0


# -- what has no effect
def test_settings_without_effect_are_named(ada: Agent) -> None:
    assert notes_on(configure(agent=ada, changes={})) == []
    assert "no dimension is enabled" in notes_on(configure(agent=ada, changes={"gate_mode": "observe"}))[0]
    off = configure(agent=ada, changes={"gate_mode": "off", "gate_fluency_enabled": True})
    assert "fluency is not checked" in notes_on(off)[0]
    capless = configure(agent=ada, changes={"gate_mode": None, "budget_enabled": True})
    assert "daily_budget_usd is not set" in notes_on(capless)[0]


# -- two at once
WRITER = """
import sys, django; django.setup()
from agents.models import Agent
from correction.config.configure import configure
agent, name = Agent.objects.get(), sys.argv[1]
print("ready", flush=True); sys.stdin.readline()
for n in range(30):
    configure(agent=agent, changes={name: n % 10})
"""


def test_two_writers_of_different_fields_do_not_overwrite_each_other(database_file: Path) -> None:
    environment = os.environ | {
        "DATABASE_URL": f"sqlite:///{database_file}",
        "DJANGO_SETTINGS_MODULE": "project.settings",
    }

    def python(code: str, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", code, *args],
            env=environment, cwd=settings.BASE_DIR, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    made = python("import django; django.setup()\nfrom tests.factories import make_agent; make_agent()")
    assert made.wait(60) == 0
    names = ("gate_adherence_threshold", "max_correction_attempts")
    writers = [python(WRITER, name) for name in names]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.communicate("\n", timeout=90)
        assert writer.returncode == 0
    told = python(
        "import django; django.setup()\n"
        "from correction.models import AgentEvaluationConfig as C; c = C.objects.get()\n"
        "print(c.gate_adherence_threshold, c.max_correction_attempts, C.history.count())"
    ).communicate(timeout=60)[0]
    assert told.split() == ["9.0", "9", "61"]  # a history entry for the row and for each of the 60 changes


def test_an_agent_deleted_meanwhile_is_named_and_nothing_is_kept(ada: Agent) -> None:
    Agent.objects.filter(pk=ada.pk).delete()

    with pytest.raises(ConfigError, match="there is no agent 'ada' any more"):
        configure(agent=ada, changes={"gate_mode": "off"})
