"""The history of a configuration: kept with who and why, taken back, copied."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from pytest_django import DjangoAssertNumQueries

from agents.models import Agent
from correction.config.configure import config_history, configure, copy_config, ensure_rows, revert
from correction.config.settings import ConfigError, resolve_config
from correction.models import AgentEvaluationConfig
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def rows() -> int:
    return int(AgentEvaluationConfig.objects.count())


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


def test_a_history_is_that_of_one_agent_or_of_the_defaults(ada: Agent) -> None:
    configure(agent=make_agent("bob"), changes={"gate_mode": "off"})
    configure(agent=None, changes={"gate_mode": "observe"})

    assert config_history(ada) == []
    assert config_history(None)[0].changes == {"gate_mode": (None, "observe")}


def test_a_history_costs_one_query_however_long(ada: Agent, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    eve = User.objects.create_user("eve")
    for n in range(9):
        configure(agent=ada, changes={"gate_fluency_threshold": n}, user=eve)

    with django_assert_num_queries(1):
        found = config_history(ada, limit=5)

    assert [change.changes["gate_fluency_threshold"][1] for change in found] == [8, 7, 6, 5, 4]


def test_a_long_reason_is_refused_before_anything_changes(ada: Agent) -> None:
    with pytest.raises(ConfigError, match="at most 100"):
        configure(agent=ada, changes={"gate_mode": "off"}, reason="x" * 101)
    with pytest.raises(ConfigError, match="one line"):
        configure(agent=ada, changes={"gate_mode": "off"}, reason="nul \x00")

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
def test_copying_gives_the_source_s_own_settings_inherited_ones_too(ada: Agent) -> None:
    bob, cyd = make_agent("bob"), make_agent("cyd")
    configure(agent=ada, changes={"gate_fluency_enabled": True})
    configure(agent=bob, changes={"gate_mode": "observe"})

    assert copy_config(source=ada, targets=[ada, bob, cyd]) == 2

    for agent in (bob, cyd):
        assert resolve_config(agent).values == resolve_config(ada).values
        assert config_history(agent)[0].reason == "copied from ada"


def test_copying_from_an_agent_without_settings_resets_the_targets(ada: Agent) -> None:
    bob = make_agent("bob")
    configure(agent=bob, changes={"gate_mode": "observe"})

    copy_config(source=ada, targets=[bob])

    assert resolve_config(bob).provenance["gate_mode"] == "built-in"


def test_missing_rows_are_made_and_edited_ones_left_alone(ada: Agent) -> None:
    bob = make_agent("bob")
    configure(agent=bob, changes={"gate_mode": "observe"})

    assert ensure_rows(agents=[ada, bob], reason="example data") == 2
    assert ensure_rows(agents=[ada, bob], reason="example data") == 0

    assert resolve_config(bob).gate_mode == "observe"
    assert resolve_config(ada).gate_is_off
    assert [change.reason for change in config_history(ada)] == ["example data"]
