"""A turn in the console: what happened step by step, and the button that stops it."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from agents.admin.transcript import transcript_url
from agents.kit.models import LLMCall
from agents.models import Channel, Run, RunMessage, RunStep
from tests.console import list_of, page_of, plain, queries, read, signed_in, staff
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db


def taken(*, text: str = "Hooray!", feedback: str = "Drier, please.", status: str = "completed") -> Run:
    """A turn in which a draft was sent back and the next one said, with rows as the orchestrator writes them."""
    agent, channel = make_agent(f"agent-{Run.objects.count()}"), make_channel(f"channel-{Run.objects.count()}")
    question = say(channel, "Visitor", f"A question? {text}")
    said = say(channel, agent, "Noted.")
    trace = [
        {"stage": "repetition", "phase": "prepare", "status": "skipped", "ms": 1.2, "why": "too few messages"},
        {"stage": "gate", "phase": "review", "status": "ran", "ms": 812.5, "counters": {"judge_calls": 3}},
        {"stage": text, "phase": "review", "status": "failed", "ms": 2, "why": text},
    ]
    run: Run = Run.objects.create(
        agent=agent, channel=channel, trigger=question, prompt=f"Greet them. {text}", depth=2, status=status, trace=trace,
        stop_reason="end_turn",
    )  # fmt: skip
    call = LLMCall.objects.create(role="actor", purpose="turn", model="m", provider="anthropic", status="ok", run=run)
    entries = iter(range(1, 99))

    def add(role: str, content: dict[str, Any], **fields: Any) -> None:
        RunMessage.objects.create(run=run, number=next(entries), role=role, content=content, **fields)

    add("system", {"blocks": [{"text": f"You are Ada. {text}", "cache": True}], "nonce": "x", "persona_version": 1,
                   "sections": [{"heading": "Guidance", "stage": "interventions"}]})  # fmt: skip
    add("user", {"blocks": [{"text": f"The conversation. {text}", "cache": False}]})
    for number, (draft, committed) in enumerate([(text, False), ("Noted.", True)]):
        asked = RunStep.objects.create(
            run=run, number=2 * number + 1, kind="model_call", duration_ms=800,
            detail={"status": "ok", "error": "", "model": "m", "call": call.pk, "tools": ["send_message"]},
        )  # fmt: skip
        given = {"channel": channel.slug, "text": draft}
        calls = [{"id": f"call-{number}", "name": "send_message", "input": given}]
        add("assistant", {"text": f"I think. {text}", "tool_calls": calls, "call": call.pk}, step=asked)
        detail: dict[str, Any] = {"tool": "send_message", "is_error": not committed, "committed": committed}
        detail |= {"outcome": "corrected" if not committed else "passed_after_retry"}
        detail |= {} if committed else {"feedback": feedback}
        done = RunStep.objects.create(run=run, number=2 * number + 2, kind="tool_call", detail=detail, duration_ms=40)
        result = {"call_id": f"call-{number}", "tool": "send_message", "text": f"Answer {number}. {text}"}
        add("tool", result, step=done, tool_name="send_message", message=said if committed else None)
    return run


def test_a_turn_reads_as_a_timeline(root: Client) -> None:
    run = taken()
    html = read(root, page_of(run))
    text = plain(html)

    assert "What an operator asked of it Greet them." in text
    assert "Depth 2 replies of agents in a row" in text
    assert "System prompt 20 characters Guidance by interventions You are Ada." in text
    assert "1 model call ok 800 ms m asked for send_message its call I think." in text
    assert "2 send_message sent back corrected 40 ms" in text
    assert "Hooray! Sent back with Drier, please." in text
    assert "4 send_message sent passed after retry 40 ms" in text
    assert "prepare repetition skipped 1.2 too few messages" in text
    assert "review gate ran 812.5 judge calls 3" in text
    said = run.run_messages.get(message__isnull=False).message
    assert said is not None
    assert transcript_url(said).replace("&", "&amp;") in html


def test_without_the_right_to_messages_no_page_of_turns_or_channels_shows_any() -> None:
    run = taken(text="A SECRET", feedback="A SECRET")
    Run.objects.update(prompt="")
    say(run.channel, "Visitor", "A SECRET")  # type: ignore[arg-type]  # of this turn there is one
    visitor = signed_in(staff("agents.view_run", "agents.view_channel"))

    for url in (list_of(Run), page_of(run), list_of(Channel)):
        assert "SECRET" not in read(visitor, url)


@pytest.mark.parametrize("given", [{"items": [1, 2]}, {"text": ["Hi", "there"]}, {"": None}])
def test_what_a_model_asked_of_a_tool_is_shown_whatever_its_json(root: Client, given: dict[str, Any]) -> None:
    run = taken()
    entry = run.run_messages.filter(role="assistant").earliest("number")
    entry.content["tool_calls"][0]["input"] = given
    entry.save()

    text = plain(read(root, page_of(run)))
    assert all(str(value) in text for value in given.values())


def test_a_turn_that_waits_is_cancelled(root: Client) -> None:
    run = Run.objects.create(agent=make_agent(), channel=make_channel())
    url = reverse("admin:agents_run_cancel", args=[run.pk])
    assert f'formaction="{url}"' in read(root, page_of(run))
    answer = root.post(url, {"cancel": "1"}, follow=True).content.decode()

    assert f"Turn {run.pk} is cancelled." in answer
    assert url not in answer
    run.refresh_from_db()
    assert (run.status, run.stop_reason) == ("cancelled", "cancelled")


def test_stopping_asks_a_running_turn_and_leaves_an_ended_one_alone(root: Client) -> None:
    running = Run.objects.create(agent=make_agent(), channel=make_channel(), status="running", lease_owner="somebody")
    ended = Run.objects.create(agent=make_agent("bob"), status="completed")
    said = [
        root.post(reverse("admin:agents_run_cancel", args=[run.pk]), follow=True).content.decode()
        for run in (running, ended)
    ]

    assert f"Turn {running.pk} ends before its next step." in said[0]
    assert "It was asked to stop" in said[0]
    assert f"turn {ended.pk} has ended already: completed." in said[1]
    running.refresh_from_db()
    ended.refresh_from_db()
    assert (running.status, running.cancel_requested, ended.status) == ("running", True, "completed")


def test_the_number_of_queries_grows_neither_with_turns_nor_with_steps(root: Client) -> None:
    run = taken()
    urls = [list_of(Run), page_of(run)]
    few = [len(queries(root, url)) for url in urls]
    for number in range(4):
        taken()
        step = RunStep.objects.create(run=run, number=50 + number, kind="tool_call", detail={"tool": "do_nothing"})
        message = run.channel.messages.earliest("pk") if run.channel else None
        RunMessage.objects.create(run=run, number=50 + number, role="tool", content={}, step=step, message=message)

    assert [len(queries(root, url)) for url in urls] == few
