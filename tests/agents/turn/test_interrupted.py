"""A turn that is interrupted at a model call goes back to the queue, and is resumed from what it had recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import Settings

from agents.kit import llm
from agents.kit.models import owner_name
from agents.models import Agent, Channel, Message, Run, RunMessage
from agents.turn.orchestrator import run_turn, start_turn
from tests.agents.turn import stages
from tests.agents.turn.playing import plays, texts
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

Interrupt = Callable[[int], Run]


@pytest.fixture
def interrupted_at(ada: Agent, office: Channel, monkeypatch: pytest.MonkeyPatch) -> Interrupt:
    """Begin a turn that is interrupted, as by Ctrl-C, at the model call of this number."""

    def interrupted(number: int) -> Run:
        complete = llm.complete
        calls: list[int] = []

        def stop_at_call(*args: Any, **kwargs: Any) -> Any:
            calls.append(1)
            if len(calls) == number:
                raise KeyboardInterrupt
            return complete(*args, **kwargs)

        run = start_turn(agent=ada, channel=office)
        with monkeypatch.context() as patch:
            patch.setattr(llm, "complete", stop_at_call)
            with pytest.raises(KeyboardInterrupt):
                run_turn(run, owner=owner_name())
        run.refresh_from_db()
        assert (run.status, run.lease_owner) == ("pending", "")
        return run

    return interrupted


def resumed(run: Run) -> Run:
    run = run_turn(run, owner=owner_name())
    assert (run.status, run.stop_reason, run.attempt) == ("completed", "end_turn", 2)
    return run


def say(text: str) -> tuple[str, dict[str, Any]]:
    return ("send_message", {"channel": "office", "text": text})


def use(settings: Settings, *names: str) -> None:
    settings.TURN_PIPELINE = [f"tests.agents.turn.stages.{name}" for name in names]


def test_interrupted_at_its_first_call_it_asks_the_same_again(
    interrupted_at: Interrupt, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    use(settings, "Hint")
    run = interrupted_at(1)
    prompt = list(RunMessage.objects.order_by("number").values("role", "content"))
    plays(llm_server, say("Hello."), "done")

    run = resumed(run)

    assert texts(office) == ["Hello."]
    assert list(RunMessage.objects.order_by("number").values("role", "content"))[: len(prompt)] == prompt
    assert json.dumps(run.trace).count("hint") == 2, "one entry with one counter: prepared once"
    asked = [block["text"] for block in llm_server.bodies[0]["system"]]
    assert asked == [block["text"] for block in prompt[0]["content"]["blocks"]]


def test_a_typed_answer_is_still_asked_for_without_its_stage(
    interrupted_at: Interrupt, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    use(settings, "Asking")
    run = interrupted_at(1)
    use(settings)
    fields = {"position": "Yes.", "reasoning": "It is.", "confidence": 0.5, "citations": []}
    plays(llm_server, ("send_message", {"channel": "office", "text": "Yes, it is.", **fields}))

    resumed(run)

    assert texts(office) == ["Yes, it is."]
    assert Message.objects.get().payload == fields
    assert llm_server.calls == 1, "the answer ends the turn"


@pytest.mark.django_db(transaction=True)
def test_interrupted_after_the_commit_it_says_nothing_twice(
    interrupted_at: Interrupt, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    use(settings, "AskedAfterwards")
    plays(llm_server, say("Hello."))
    run = interrupted_at(2)
    assert texts(office) == ["Hello."]
    assert not RunMessage.objects.filter(role="tool").exists()
    llm_server.respond = lambda body: {"text": "done"}

    resumed(run)

    assert texts(office) == ["Hello."]
    assert RunMessage.objects.get(role="tool").message is not None


def test_a_message_that_was_sent_back_goes_on_under_its_session(
    interrupted_at: Interrupt, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    use(settings, "Strict")
    plays(llm_server, say("a bad word"))
    run = interrupted_at(2)
    stages.heard.clear()
    plays(llm_server, say("a good word"), "done")

    run = resumed(run)

    assert ("review", f"{stages.SESSION}|a good word") in stages.heard
    assert texts(office) == ["a good word"]
    reviews = [entry for entry in run.trace if entry["phase"] == "review"]
    assert len(reviews) == 2, "the trace keeps what happened before the interruption"
