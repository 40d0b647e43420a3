"""Two agents with something to measure, and the command that captures their baselines."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.models import Agent
from tests.evaluation.conftest import PropositionFolder
from tests.factories import make_agent, make_channel, talk


def two_agents(settings: Settings, propositions: PropositionFolder) -> dict[str, Agent]:
    """Two agents: ada said four things in two builds, bob two."""
    settings.LLM_EVALUATION_RETRIES = 0
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    propositions.claims("adherence/ada.yaml", "brief", extra="rule: {max_words: 1}")
    propositions.claims("fluency/_default.yaml", "varied", extra="include_personas: false")
    ada, bob = make_agent("ada"), make_agent("bob")
    talk(ada, ["No.", "Not now."], channel=make_channel("one"), tags={"build": "40"})
    talk(ada, ["Yes!", "Sure thing!"], channel=make_channel("two"), tags={"build": "41"})
    talk(bob, ["Hello.", "Goodbye."], channel=make_channel("three"))
    return {"ada": ada, "bob": bob}


def command(*arguments: str) -> str:
    out = io.StringIO()
    call_command("capture_baseline", "--no-simulate", *arguments, stdout=out)
    return out.getvalue()


def captured(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("--json", *arguments))
    return found


def refused(*arguments: str) -> tuple[int, str]:
    with pytest.raises(CommandError) as caught:
        command(*arguments)
    return caught.value.returncode, str(caught.value)
