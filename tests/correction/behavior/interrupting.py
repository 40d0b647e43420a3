"""Offline responders during whose answer something happens: they are called in the worker's own thread."""

from __future__ import annotations

from typing import Any

from agents.chat import chats, delete_chat
from agents.kit.llm import LLMRequest
from agents.models import Agent, Run, Trait
from correction.behavior.models import BehaviorRequest
from tests.correction.behavior.asking import CONCISE, SHORTER, YES

HERE = "tests.correction.behavior.interrupting."
ANSWERS: dict[str, dict[str, Any]] = {"behavior_gate": YES, "behavior_extract": SHORTER, "behavior_map": CONCISE}
asked: list[str] = []


def answer(request: LLMRequest) -> dict[str, Any]:
    asked.append(request.label.dimension)
    return ANSWERS[request.task]


def is_told_to_stop(request: LLMRequest) -> dict[str, Any]:
    answer(request)
    raise KeyboardInterrupt


def loses_the_claim(request: LLMRequest) -> dict[str, Any]:
    BehaviorRequest.objects.update(lease_owner="another worker")
    return answer(request)


def is_cancelled(request: LLMRequest) -> dict[str, Any]:
    BehaviorRequest.objects.update(status="cancelled", lease_owner="")
    return answer(request)


def loses_its_chat(request: LLMRequest) -> dict[str, Any]:
    Run.objects.update(status="completed")
    for chat in chats():
        delete_chat(chat)
    return answer(request)


def sees_the_persona_changed(request: LLMRequest) -> dict[str, Any]:
    """Once: a person adds a trait while the first answer is on its way."""
    if not Trait.objects.filter(name="late").exists():
        Agent.objects.get().traits.create(name="late")
    return answer(request)


def sees_the_persona_change_all_the_time(request: LLMRequest) -> dict[str, Any]:
    Agent.objects.get().traits.create(name=f"late {Trait.objects.count()}")
    return answer(request)
