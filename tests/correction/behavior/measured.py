"""An agent with a trait about emoji, a person who asks for another strength of it, and a judge that answers from what it reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import Settings

from agents.models import Agent, Channel, Message
from agents.personas.persona import TraitValue
from agents.turn.receive import receive_message
from correction.behavior.models import BehaviorRequest
from correction.behavior.work import work_one
from evaluation.change.choosing import compare_to_baseline
from evaluation.change.comparison import Comparison
from evaluation.models import EvaluationRun
from evaluation.runs.execute import capture
from evaluation.runs.spec import RunSpec
from tests.correction.behavior.asking import dm_with, judge
from tests.evaluation.judging import answers, prompt_of
from tests.factories import say
from tests.llm_server import LLMServer

Clerk = Callable[[float], tuple[Agent, Channel]]
NAME, EMOJI = "emoji use", "🙂"
TRAIT_CLAIM = "trait-emoji-use"
CLAIMS = """
dimension: adherence
propositions:
  - {id: voice, claim: "{{agent_name}} writes as the persona says"}
  - {id: polite, claim: "{{agent_name}} is polite"}
"""


def clerk(settings: Settings, folder: Path, strength: float) -> tuple[Agent, Channel]:
    """Ada, whose trait about emoji has this strength, measured by two claims of a file besides."""
    (folder / "adherence").mkdir(parents=True)
    (folder / "adherence" / "_default.yaml").write_text(CLAIMS, encoding="utf-8")
    settings.PROPOSITIONS_DIR, settings.PROPOSITION_DIRS, settings.LLM_EVALUATION_RETRIES = folder, [], 0
    return dm_with(TraitValue(NAME, "Puts an emoji at the end.", 0.2, strength))


def speak(
    agent: Agent, channel: Channel, build: str, *, emoji: bool, polite: bool = True, n: int = 12
) -> list[Message]:
    """What the agent says in a build; every line another one."""
    please, end = (", please" if polite else ""), (f" {EMOJI}" if emoji else "")
    return [
        say(channel, agent, f"Form {i} of {build}{please}.{end}", tags={"build": build}, sent_at=timezone.now())
        for i in range(n)
    ]


def ask_for(server: LLMServer, channel: Channel, text: str, strength: float) -> BehaviorRequest:
    """Anna writes it, and a worker looks at it: gate, extract and map answer what the text says."""
    anna, _ = User.objects.get_or_create(username="anna")
    mapped = {
        "name": NAME, "description": "Puts an emoji at the end.", "sentiment": 0.2, "strength": strength, "is_new": False,
        "replaces_trait": NAME, "contradicts_persona": False, "contradiction": "",
    }  # fmt: skip
    receive_message(channel=channel, text=text, user=anna)
    server.respond = judge(map=mapped)
    assert work_one(owner="w")
    request: BehaviorRequest = BehaviorRequest.objects.latest("pk")
    assert request.status == "applied", (request.status, request.why, request.error)
    return request


def reads(body: dict[str, Any]) -> dict[str, Any]:
    """A judge who reads: the message, the claim, and the band in which the persona has the trait."""
    prompt = prompt_of(body)
    message = re.search(r"<<<MESSAGE \w+>>>\n(.*?)\n<<<END", prompt, re.DOTALL)
    text = message.group(1) if message else ""
    persona = re.search(r"<<<PERSONA \w+>>>\n(.*?)\n<<<END", prompt, re.DOTALL)
    bands = re.findall(r"### (\w+).*?\n((?:- .*\n?)+)", persona.group(1)) if persona else []
    band = next((band for band, traits in bands if NAME in traits), "")

    def value(claim: str) -> int:
        if NAME in claim:
            return 9 if EMOJI in text else 0
        if "polite" in claim:
            return 8 if "please" in text else 1
        wrong = (EMOJI in text) if band == "Never" else (EMOJI not in text) if band == "Always" else False
        return 1 if wrong else 8

    return answers(value)(body)


def measured(server: LLMServer, agent: Agent, build: str, *, is_baseline: bool = False) -> EvaluationRun:
    server.respond = reads
    spec = RunSpec(agent=agent, dimensions=("adherence",), where={"build": build}, is_baseline=is_baseline)
    return capture([spec])[0].summary.run


def against_baseline(run: EvaluationRun) -> Comparison:
    result = compare_to_baseline(run)
    assert result is not None
    return result


def worse(comparison: Comparison) -> list[str]:
    return sorted(f"{c.dimension}/{c.proposition}".rstrip("/") for c in comparison.worse)
