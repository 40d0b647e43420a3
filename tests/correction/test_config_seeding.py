"""Seeding leaves every example agent with a configuration of its own, all off, and never touches an edited one."""

from __future__ import annotations

import io

import pytest
from django.core.management import call_command
from pytest_django import Settings

from agents.models import Agent
from correction.config.configure import config_history, configure
from correction.config.settings import resolve_all
from correction.models import AgentEvaluationConfig
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


def seed() -> str:
    out = io.StringIO()
    call_command("seed", stdout=out)
    return out.getvalue()


def test_the_sixteen_agents_and_the_defaults_get_a_row_with_everything_off_ac_7_3_9() -> None:
    assert "Correction: 17 configurations added, 0 there already." in seed()

    assert AgentEvaluationConfig.objects.filter(agent__isnull=False).count() == 16
    assert AgentEvaluationConfig.objects.filter(is_defaults=True).count() == 1
    for _, config in resolve_all(Agent.objects.select_related("evaluation_config")):
        assert config.gate_is_off
        assert [name for name, value in config.values.items() if value is True] == ["behavior_requests_enabled"]


def test_seeding_again_keeps_edits_and_adds_nothing() -> None:
    seed()
    michael = Agent.objects.get(slug="michael")
    configure(agent=michael, changes={"gate_adherence_enabled": True})
    configure(agent=None, changes={"gate_fluency_threshold": 3})

    assert "Correction: 0 configurations added, 17 there already." in seed()

    assert len(config_history(michael)) == 2
    assert AgentEvaluationConfig.objects.get(is_defaults=True).gate_fluency_threshold == 3
    assert AgentEvaluationConfig.objects.get(agent=michael).gate_adherence_enabled is True


def test_agents_of_one_s_own_are_left_without_a_row() -> None:
    make_agent("mine")

    seed()

    assert not AgentEvaluationConfig.objects.filter(agent__slug="mine").exists()


def test_without_steps_only_agents_and_conversations_are_loaded(settings: Settings) -> None:
    settings.SEED_STEPS = []

    assert "Correction" not in seed()
    assert not AgentEvaluationConfig.objects.exists()
