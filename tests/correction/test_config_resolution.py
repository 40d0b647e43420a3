"""What is in effect for an agent: the first that says something, of override, agent, defaults and built-in value (AC-7.3.10)."""

from __future__ import annotations

from decimal import Decimal
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, connection
from pytest_django import DjangoAssertNumQueries

from agents.models import Agent
from agents.turn.pipeline import Turn
from correction.config.settings import (
    BUILT_IN,
    CONFIG_FIELDS,
    FIELDS,
    config_of,
    resolve_all,
    resolve_config,
    resolve_defaults,
)
from correction.models import AgentEvaluationConfig
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db


def own(agent: Agent, **values: Any) -> AgentEvaluationConfig:
    row: AgentEvaluationConfig = AgentEvaluationConfig.objects.create(agent=agent, **values)
    return row


def defaults(**values: Any) -> AgentEvaluationConfig:
    row: AgentEvaluationConfig = AgentEvaluationConfig.objects.create(is_defaults=True, **values)
    return row


def test_everything_is_off_where_nobody_said_anything_ac_7_3_2() -> None:
    config = resolve_config(make_agent())

    assert config.gate_is_off
    assert config.gate_mode == "off"
    assert config.gate_dimensions == ()
    assert [name for name, value in config.values.items() if value is True] == ["behavior_requests_enabled"]
    assert set(config.provenance.values()) == {"built-in"}


def test_the_built_in_numbers_are_those_of_the_specification() -> None:
    config = resolve_config(make_agent())

    assert [config.threshold(d) for d in ("adherence", "consistency", "fluency")] == [Decimal(5)] * 3
    assert config["max_correction_attempts"] == 2
    assert config["variety_message_threshold"] == 7
    assert (config["convergence_threshold"], config["repetition_threshold"]) == (6, Decimal("0.3"))
    assert (config["gate_deadline_seconds"], config["gate_total_deadline_seconds"]) == (5, 12)


def test_each_layer_wins_over_those_below_it_field_by_field_ac_7_3_3() -> None:
    agent = make_agent()
    defaults(gate_fluency_threshold=3, gate_adherence_threshold=3, max_correction_attempts=1)
    own(agent, gate_fluency_threshold=7, gate_adherence_threshold=7)

    config = resolve_config(agent, {"gate_adherence_threshold": 9})

    assert [config["gate_adherence_threshold"], config["gate_fluency_threshold"]] == [9, 7]
    assert [config["max_correction_attempts"], config["gate_consistency_threshold"]] == [1, 5]
    assert [
        config.provenance[f"gate_{d}_threshold"] for d in ("adherence", "fluency", "consistency")
    ] == ["override", "agent", "built-in"]  # fmt: skip
    assert config.provenance["max_correction_attempts"] == "defaults"


def test_off_and_zero_are_said_and_not_inherited() -> None:
    agent = make_agent()
    defaults(gate_adherence_enabled=True, max_correction_attempts=3, repetition_threshold=Decimal("0.5"))
    own(agent, gate_adherence_enabled=False, max_correction_attempts=0, repetition_threshold=Decimal(0))

    config = resolve_config(agent)

    assert config["gate_adherence_enabled"] is False
    assert (config["max_correction_attempts"], config["repetition_threshold"]) == (0, 0)


@pytest.mark.parametrize("name", ["gate_adherence_enabled", "gate_fluency_enabled", "gate_rules_enabled"])
def test_enabling_a_check_while_the_mode_is_unset_means_enforce(name: str) -> None:
    agent = make_agent()
    own(agent, **{name: True})

    config = resolve_config(agent)

    assert config.gate_mode == "enforce"
    assert not config.gate_is_off


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_a_mode_that_was_set_holds_whatever_is_enabled(mode: str) -> None:
    agent = make_agent()
    defaults(gate_mode=mode)
    own(agent, gate_adherence_enabled=True)

    assert resolve_config(agent).gate_mode == mode


def test_the_agent_s_rules_are_checked_wherever_adherence_is_unless_somebody_says_no() -> None:
    agent, strict = make_agent("a"), make_agent("b")
    own(agent, gate_adherence_enabled=True)
    own(strict, gate_adherence_enabled=True, gate_rules_enabled=False)

    assert resolve_config(agent)["gate_rules_enabled"] is True
    assert resolve_config(strict)["gate_rules_enabled"] is False


def test_rules_alone_make_adherence_a_dimension_of_the_gate() -> None:
    agent = make_agent()
    own(agent, gate_rules_enabled=True, gate_fluency_enabled=True)

    assert resolve_config(agent).gate_dimensions == ("adherence", "fluency")


@pytest.mark.parametrize(
    "overrides",
    [
        {"gate_fluency_threshold": "much"},
        {"gate_fluency_threshold": 99},
        {"gate_fluency_threshold": "NaN"},
        {"gate_fluency_threshold": float("inf")},
        {"gate_fluency_threshold": {"a": 1}},
        {"gate_fluency_threshold": True},
        {"gate_fluency_threshold": None},
        {"gate_fluency_threshold": "1e999999999"},
        {"is_defaults": True, "id": 7, "agent": 3, "swarm_size": 4},
    ],
)
def test_an_override_that_makes_no_sense_is_passed_over(overrides: dict[str, Any]) -> None:
    config = resolve_config(make_agent(), overrides)

    assert config["gate_fluency_threshold"] == 5
    assert "override" not in config.provenance.values()


def test_a_configuration_is_read_in_one_query(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    agent = make_agent()
    own(agent, gate_fluency_enabled=True)
    defaults()

    with django_assert_num_queries(1):
        resolve_config(agent)


def test_all_agents_are_read_in_two_queries(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    defaults(gate_fluency_enabled=True)
    for n in range(5):
        agent = make_agent(f"a{n}")
        if n % 2:
            own(agent, gate_fluency_enabled=False)

    with django_assert_num_queries(2):
        resolved = resolve_all(Agent.objects.select_related("evaluation_config").order_by("slug"))

    assert [config["gate_fluency_enabled"] for _, config in resolved] == [True, False, True, False, True]


def test_a_turn_reads_its_configuration_once(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    turn = Turn(agent=make_agent(), channel=make_channel(), overrides={"gate_fluency_enabled": True})

    with django_assert_num_queries(1):
        first = config_of(turn)
        again = config_of(turn)

    assert first is again
    assert first.provenance["gate_fluency_enabled"] == "override"


def test_an_edit_holds_from_the_next_turn_on() -> None:
    agent, channel = make_agent(), make_channel()
    turn = Turn(agent=agent, channel=channel)
    config_of(turn)
    own(agent, gate_fluency_enabled=True)

    assert config_of(turn)["gate_fluency_enabled"] is False
    assert config_of(Turn(agent=agent, channel=channel))["gate_fluency_enabled"] is True


def test_one_agent_s_settings_are_never_another_s() -> None:
    ada, bob = make_agent("ada"), make_agent("bob")
    own(ada, gate_fluency_enabled=True)

    assert resolve_config(bob).gate_is_off
    assert resolve_defaults().gate_is_off


def test_there_is_one_defaults_row_and_one_row_per_agent_ac_7_3_8() -> None:
    agent = make_agent()
    defaults()

    for duplicate in (
        AgentEvaluationConfig(is_defaults=True),
        AgentEvaluationConfig(agent=agent, is_defaults=True),
        AgentEvaluationConfig(),
    ):
        with pytest.raises(IntegrityError):
            save_alone(duplicate)
    own(agent)
    with pytest.raises(IntegrityError):
        save_alone(AgentEvaluationConfig(agent=agent))


def save_alone(row: AgentEvaluationConfig) -> None:
    from django.db import transaction

    with transaction.atomic():
        row.save()


def test_every_column_is_a_field_with_a_meaning_a_range_and_a_built_in_value_ac_7_3_1() -> None:
    assert set(CONFIG_FIELDS) == set(FIELDS) == set(BUILT_IN)
    assert all(field.allowed and field.description for field in CONFIG_FIELDS.values())
    for name, value in BUILT_IN.items():
        assert CONFIG_FIELDS[name].read(value) == value


def test_a_similarity_stored_as_threshold_of_agreement_becomes_the_default() -> None:
    """It was a share of words, 0 to 1; as a score it would nudge always. Nor can it be reverted to."""
    migration = import_module("correction.migrations.0008_convergence_threshold")
    agent = make_agent()
    defaults(convergence_threshold=Decimal("0.4"))
    own(agent, convergence_threshold=Decimal("0.6"), max_correction_attempts=1)

    migration.inherit(apps, SimpleNamespace(connection=connection))

    config = resolve_config(agent)
    assert (config["convergence_threshold"], config.provenance["convergence_threshold"]) == (6, "built-in")
    assert config["max_correction_attempts"] == 1
    assert not AgentEvaluationConfig.history.exclude(convergence_threshold=None).exists()
