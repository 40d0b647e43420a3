"""Settings: what is in effect and where it comes from, lists of names, example data, spans."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import pytest
import sentry_sdk
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import IntegrityError, transaction
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from agents.models import Agent
from agents.turn.pipeline import Turn
from correction.config.configure import configure
from correction.config.settings import (
    SETTINGS,
    ConfigError,
    config_of,
    read_names,
    resolve_all,
    resolve_config,
    show_names,
    validate_names,
)
from correction.models import AgentEvaluationConfig
from tests.console import read
from tests.correction.config_page import own, save, url_of
from tests.factories import make_agent, make_channel
from tests.tracing import Caught

pytestmark = pytest.mark.django_db


def row_of(agent: Agent, **values: Any) -> AgentEvaluationConfig:
    row: AgentEvaluationConfig = AgentEvaluationConfig.objects.create(agent=agent, **values)
    return row


def defaults(**values: Any) -> AgentEvaluationConfig:
    row: AgentEvaluationConfig = AgentEvaluationConfig.objects.create(is_defaults=True, **values)
    return row


def test_everything_is_off_where_no_one_said_anything_ac_7_3_2() -> None:
    config = resolve_config(make_agent())

    assert config.gate_is_off
    assert (config.gate_mode, config.gate_dimensions) == ("off", ())
    assert [name for name, value in config.values.items() if value is True] == ["behavior_requests_enabled"]
    assert set(config.provenance.values()) == {"built-in"}
    assert [config.threshold(d) for d in ("adherence", "consistency", "fluency")] == [Decimal(5)] * 3
    assert (config["max_correction_attempts"], config["variety_message_threshold"]) == (2, 7)
    assert (config["convergence_threshold"], config["repetition_threshold"]) == (6, Decimal("0.3"))
    assert (config["gate_deadline_seconds"], config["gate_total_deadline_seconds"]) == (5, 12)


def test_each_layer_wins_over_those_below_it_field_by_field_ac_7_3_3() -> None:
    agent = make_agent()
    defaults(gate_fluency_threshold=3, gate_adherence_threshold=3, max_correction_attempts=1)
    row_of(agent, gate_fluency_threshold=7, gate_adherence_threshold=7)

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
    row_of(agent, gate_adherence_enabled=False, max_correction_attempts=0, repetition_threshold=Decimal(0))

    config = resolve_config(agent)

    assert config["gate_adherence_enabled"] is False
    assert (config["max_correction_attempts"], config["repetition_threshold"]) == (0, 0)


@pytest.mark.parametrize(
    ("set_by_defaults", "own", "mode", "dimensions", "rules"),
    [
        ({}, {"gate_fluency_enabled": True}, "enforce", ("fluency",), False),
        ({}, {"gate_rules_enabled": True, "gate_fluency_enabled": True}, "enforce", ("adherence", "fluency"), True),
        ({}, {"gate_adherence_enabled": True, "gate_rules_enabled": False}, "enforce", ("adherence",), False),
        ({"gate_mode": "off"}, {"gate_adherence_enabled": True}, "off", ("adherence",), True),
        ({"gate_mode": "observe"}, {"gate_adherence_enabled": True}, "observe", ("adherence",), True),
    ],
)
def test_mode_and_rules_follow_from_the_checks_unless_a_person_says_otherwise(
    set_by_defaults: Any, own: Any, mode: str, dimensions: tuple[str, ...], rules: bool
) -> None:
    agent = make_agent()
    defaults(**set_by_defaults)
    row_of(agent, **own)

    config = resolve_config(agent)

    assert (config.gate_mode, config.gate_dimensions, config["gate_rules_enabled"]) == (mode, dimensions, rules)


@pytest.mark.parametrize(
    "overrides",
    [
        *({"gate_fluency_threshold": odd} for odd in (99, {"a": 1}, "1e999999999")),
        {"is_defaults": True, "id": 7, "agent": 3, "swarm_size": 4},
    ],
)
def test_an_override_that_makes_no_sense_is_passed_over(overrides: dict[str, Any]) -> None:
    config = resolve_config(make_agent(), overrides)

    assert config["gate_fluency_threshold"] == 5
    assert "override" not in config.provenance.values()


def test_all_agents_are_read_in_two_queries(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    defaults(gate_fluency_enabled=True)
    for n in range(5):
        agent = make_agent(f"a{n}")
        if n % 2:
            row_of(agent, gate_fluency_enabled=False)

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


def test_there_is_one_defaults_row_and_one_row_per_agent_ac_7_3_8() -> None:
    agent = make_agent()
    defaults()
    row_of(agent)
    for duplicate in (
        AgentEvaluationConfig(is_defaults=True),
        AgentEvaluationConfig(agent=make_agent("bob"), is_defaults=True),
        AgentEvaluationConfig(),
        AgentEvaluationConfig(agent=agent),
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            duplicate.save()


def test_every_column_is_a_declared_setting_ac_7_3_1() -> None:
    columns = {field.name for field in AgentEvaluationConfig._meta.get_fields()}
    assert columns - {"id", "agent", "is_defaults", "updated_at"} == set(SETTINGS)
    for setting in SETTINGS.values():
        assert setting.allowed
        assert setting.help
        assert setting.read(setting.built_in) == setting.built_in


def test_what_the_specification_asks_for_is_not_advanced_ac_7_3_1() -> None:
    dimensions = [
        f"gate_{d}_{what}" for d in ("adherence", "consistency", "fluency") for what in ("enabled", "threshold")
    ]
    others = ("max_correction_attempts", "anti_convergence_enabled", "convergence_threshold", "variety_intervention_enabled",
              "variety_message_threshold", "repetition_suppression_enabled", "repetition_threshold")  # fmt: skip
    switches = ("gate_mode", "behavior_requests_enabled")

    assert {name for name, setting in SETTINGS.items() if not setting.advanced} == {*dimensions, *others, *switches}


PROTECTED = "behavior_protected_traits"
FIELD = SETTINGS[PROTECTED]


@pytest.fixture
def ada(db: None) -> Agent:
    return make_agent()


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("a, b ,c", ["a", "b", "c"]), ("a\r\nb\nc, d", ["a", "b", "c", "d"]), ('"short, sharp", b', ["short, sharp", "b"]),
        ("a,,a, A,", ["a", "A"]), ("  two   words  ", ["two words"]), (" NONE ", []), ('"none"', ["none"]),
        (["x", " y "], ["x", "y"]),
    ],
)  # fmt: skip
def test_names_are_separated_by_commas_or_lines(written: Any, names: list[str]) -> None:
    assert FIELD.read(written) == names


@pytest.mark.parametrize("wrong", [7, ["a", 7], '"open', ["x" * 151], [f"n{n}" for n in range(101)], ["a\x00b"], [" "]])
def test_what_is_no_list_of_names_is_refused_with_what_is_allowed(wrong: object) -> None:
    with pytest.raises(ConfigError, match=f"{PROTECTED} .*: allowed: up to 100 names of at most 150 characters"):
        FIELD.read(wrong)


@pytest.mark.parametrize("wrong", ["a", [1], ["a", "a"], ["a "]])
def test_the_column_takes_names_only(wrong: object) -> None:
    with pytest.raises(ValidationError):
        validate_names(wrong)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=12)))
def test_what_is_shown_can_be_typed_again(names: list[str]) -> None:
    known = list(dict.fromkeys(names))

    assert read_names(show_names(known)) == known


def test_no_one_is_not_the_same_as_inheriting(ada: Agent) -> None:
    configure(agent=None, changes={PROTECTED: "oath"})
    assert resolve_config(ada)[PROTECTED] == ["oath"]

    configure(agent=ada, changes={PROTECTED: "none"})
    assert (resolve_config(ada)[PROTECTED], resolve_config(ada).provenance[PROTECTED]) == ([], "agent")

    configure(agent=ada, changes={PROTECTED: "inherit"})
    assert AgentEvaluationConfig.objects.get(agent=ada).behavior_protected_traits is None
    assert resolve_config(ada)[PROTECTED] == ["oath"]


def test_a_person_writes_names_line_by_line_and_sees_what_is_inherited(root: Client, ada: Agent) -> None:
    configure(agent=None, changes={PROTECTED: "oath"})
    assert 'placeholder="inherits oath (defaults)"' in read(root, url_of(ada))

    save(root, ada, **{PROTECTED: "dry wit\r\nshort words", "behavior_auto_apply": "never"})
    assert own(ada) == {PROTECTED: ["dry wit", "short words"], "behavior_auto_apply": "never"}
    assert "dry wit, short words</textarea>" in read(root, url_of(ada))


def test_the_sixteen_agents_and_the_defaults_get_a_row_with_everything_off_ac_7_3_9() -> None:
    call_command("seed", stdout=io.StringIO())

    assert AgentEvaluationConfig.objects.filter(agent__isnull=False).count() == 16
    assert AgentEvaluationConfig.objects.filter(is_defaults=True).count() == 1
    for _, config in resolve_all(Agent.objects.select_related("evaluation_config")):
        assert config.gate_is_off
        assert [name for name, value in config.values.items() if value is True] == ["behavior_requests_enabled"]


def test_loading_a_configuration_is_one_span_with_its_mode(sentry: Caught) -> None:
    agent = make_agent(system_prompt="You keep the raccoon secret.")
    configure(agent=agent, changes={"gate_fluency_enabled": True})
    turn = Turn(agent=agent, channel=make_channel())

    with sentry_sdk.start_transaction(op="turn", name="a turn"):
        for _ in range(3):
            config_of(turn)
        resolve_config(agent)

    (transaction,) = sentry.of_type("transaction")
    spans = [span for span in transaction["spans"] if span["op"] == "correction.config"]
    assert [span["data"]["gate_mode"] for span in spans] == ["enforce", "enforce"]
    assert "raccoon" not in sentry.text
