"""Changing a configuration: checked in full, and never over another person's change."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from pytest_django import DjangoAssertNumQueries

from agents.models import Agent
from correction.config.configure import config_history, configure, notes_on, revert
from correction.config.settings import SETTINGS, ConfigError, resolve_config
from correction.models import AgentEvaluationConfig
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def rows() -> int:
    return int(AgentEvaluationConfig.objects.count())


# -- setting
VALUES: list[tuple[str, Any, Any]] = [
    ("gate_adherence_enabled", "ON", True), ("gate_adherence_enabled", False, False), ("gate_adherence_enabled", 1, True),
    ("gate_mode", "Observe", "observe"), ("gate_adherence_threshold", 5.5, Decimal("5.5")),
    ("gate_adherence_threshold", " 0 ", Decimal("0.0")), ("max_correction_attempts", 10.0, 10),
    ("daily_budget_usd", "0.0001", Decimal("0.0001")),
]  # fmt: skip


def test_values_are_read_as_people_and_programs_write_them(ada: Agent) -> None:
    for name, value, stored in VALUES:
        configure(agent=ada, changes={name: value})
        assert getattr(AgentEvaluationConfig.objects.get(), name) == stored, (name, value)


WRONG: list[tuple[str, Any, str]] = [
    ("gate_adherence_enabled", 2, "on or off"), ("gate_mode", "enforced", "off or observe or enforce"),
    ("gate_adherence_threshold", 9.1, "0 to 9 with at most 1 decimal place"), ("gate_adherence_threshold", -1, "0 to 9"),
    ("gate_adherence_threshold", "5.25", "at most 1 decimal place"), ("gate_adherence_threshold", True, "0 to 9"),
    ("gate_adherence_threshold", float("nan"), "0 to 9"), ("gate_adherence_threshold", "1e999999999", "0 to 9"),
    ("gate_adherence_threshold", "9" * 10_000, "0 to 9"), ("max_correction_attempts", 2.5, "a whole number, 0 to 10"),
    ("variety_message_threshold", 0, "a whole number, 1 to 10000"), ("observe_sample_rate", "10%", "0 to 1"),
]  # fmt: skip


def test_a_wrong_value_is_refused_with_field_value_and_range(ada: Agent) -> None:
    for name, value, allowed in WRONG:
        with pytest.raises(ConfigError) as refused:
            configure(agent=ada, changes={name: value})

        message = refused.value.errors[name]
        assert message.startswith(f"{name} ")
        assert repr(value)[:50] in message
        assert allowed in message
        assert "inherit" in message
        assert len(message) < 250
    assert rows() == 0


def test_all_faults_are_named_at_once_and_then_nothing_is_changed(ada: Agent) -> None:
    with pytest.raises(ConfigError) as refused:
        configure(agent=ada, changes={"gate_mode": "on", "gate_fluency_enabled": True, "colour": 1, "is_defaults": 1})

    assert set(refused.value.errors) == {"gate_mode", "colour", "is_defaults"}
    assert "there is no field" in refused.value.errors["is_defaults"]
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


def test_an_agent_deleted_meanwhile_is_named_and_nothing_is_kept(ada: Agent) -> None:
    Agent.objects.filter(pk=ada.pk).delete()

    with pytest.raises(ConfigError, match="there is no agent 'ada' any more"):
        configure(agent=ada, changes={"gate_mode": "off"})


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
    assert "gate_adherence_enabled: on (agent), unchanged" in run("michael", "gate_adherence_enabled=on")


def test_without_changes_it_shows_every_field_with_value_origin_range_and_meaning() -> None:
    configure(agent=None, changes={"gate_consistency_threshold": "6.5"})

    out = run("Michael Scott")

    assert all(name in out for name in SETTINGS)
    line = next(line for line in out.splitlines() if "gate_consistency_threshold" in line)
    assert line.split()[:3] == ["gate_consistency_threshold", "6.5", "defaults"]
    assert "0 to 9" in line
    plain, _, advanced = out.partition("Advanced")
    assert ("observe_sample_rate" in plain, "observe_sample_rate" in advanced) == (False, True)


def test_the_defaults_are_shown_and_set_by_that_name() -> None:
    run("defaults", "gate_fluency_enabled=on")

    assert resolve_config(michael())["gate_fluency_enabled"] is True
    assert "gate_fluency_enabled" in run("defaults")


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["michael", "gate_mode=on"], "gate_mode 'on': allowed: off or observe or enforce, or inherit"),
        (["michael", "gate_mode"], "'gate_mode': write field=value"),
        (["michael", "gate_mode=off", "gate_mode=observe"], "gate_mode is given twice"),
    ],
)
def test_bad_input_is_refused_with_a_sentence_and_changes_nothing(arguments: list[str], answer: str) -> None:
    assert answer in refused(*arguments)
    assert config_history(michael()) == []


# -- history
def test_every_change_is_kept_with_who_when_and_why(ada: Agent) -> None:
    eve = User.objects.create_user("eve")
    configure(agent=ada, changes={"gate_fluency_enabled": True}, user=eve, reason="a trial")
    configure(agent=ada, changes={"gate_fluency_enabled": None, "gate_fluency_threshold": 4})

    last, first, made = config_history(ada)

    assert (first.user, first.reason, first.kind) == ("eve", "a trial", "changed")
    assert first.changes == {"gate_fluency_enabled": (None, True)}
    assert last.changes == {"gate_fluency_enabled": (True, None), "gate_fluency_threshold": (None, Decimal(4))}
    assert (last.user, made.kind, dict(made.changes)) == ("", "created", {})
    assert made.at <= first.at <= last.at


def test_nothing_is_written_where_nothing_changes(ada: Agent) -> None:
    configure(agent=ada, changes={"gate_fluency_enabled": None})
    assert rows() == 0
    configure(agent=ada, changes={"gate_fluency_threshold": "5.0"})
    before = len(config_history(ada))

    configure(agent=ada, changes={"gate_fluency_threshold": 5, "gate_mode": None})

    assert len(config_history(ada)) == before


def test_a_history_costs_one_query_however_long(ada: Agent, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    eve = User.objects.create_user("eve")
    for n in range(9):
        configure(agent=ada, changes={"gate_fluency_threshold": n}, user=eve)

    with django_assert_num_queries(1):
        got = config_history(ada, limit=5)

    assert [change.changes["gate_fluency_threshold"][1] for change in got] == [8, 7, 6, 5, 4]


def test_a_reason_that_cannot_be_kept_is_refused_before_anything_changes(ada: Agent) -> None:
    for reason, said in (("x" * 101, "at most 100"), ("nul \x00", "one line")):
        with pytest.raises(ConfigError, match=said):
            configure(agent=ada, changes={"gate_mode": "off"}, reason=reason)
    assert rows() == 0


def test_going_back_restores_every_field_and_is_a_change_like_any_other(ada: Agent) -> None:
    configure(agent=ada, changes={"gate_mode": "observe", "gate_fluency_enabled": True})
    good = config_history(ada)[0].history_id
    configure(agent=ada, changes={"gate_mode": None, "gate_fluency_threshold": 9, "gate_fluency_enabled": False})

    config = revert(agent=ada, history_id=good, user=User.objects.create_user("eve"))

    assert (config["gate_mode"], config["gate_fluency_enabled"], config["gate_fluency_threshold"]) == (
        "observe",
        True,
        5,
    )
    latest = config_history(ada)[0]
    assert (latest.user, latest.reason) == ("eve", f"back to entry {good}")


def test_an_entry_of_another_history_is_not_gone_back_to(ada: Agent) -> None:
    bob = make_agent("bob")
    configure(agent=bob, changes={"gate_mode": "enforce"})
    entry = config_history(bob)[0].history_id

    for other in (ada, None):
        with pytest.raises(ConfigError, match=f"has no entry {entry}"):
            revert(agent=other, history_id=entry)

    assert resolve_config(ada).gate_mode == "off"


# -- copying, making
