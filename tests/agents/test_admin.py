"""The console's pages of agents and conversations: what may be deleted, odd characters, and logs that are never counted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.db.models import Model
from django.test import Client
from django.utils import timezone

from agents.kit.models import LLMCall, LLMPayload, ModelPrice
from agents.models import Agent, Channel, ChannelMember, Message, Reaction, Run, RunMessage, RunStep
from agents.personas.persona import TraitValue
from tests.console import list_of, page_of, queries, read
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db

LOGS: tuple[type[Model], ...] = (Message, Run, LLMCall)
REVERSED = "abc\u202edesrever\u202c"


def fill(number: int, start: int = 0, *, text: str = "Good morning.", name: str = "") -> None:
    """`number` rows of everything the ground floor lists."""
    for n in range(start, start + number):
        agent = make_agent(f"agent-{n}", display_name=name, title=name, traits=[TraitValue(name=f"dry {name}")])
        channel = make_channel(f"channel-{n}", name=name)
        Channel.objects.filter(pk=channel.pk).update(topic=text, tags={"build": text})
        ChannelMember.objects.create(channel=channel, agent=agent)
        first = say(channel, agent, text, sent_at=timezone.now(), tags={"build": text}, payload={"poll": text})
        say(channel, name or "A visitor", text, parent=first)
        Reaction.objects.create(message=first, agent=agent, emoji="+1")
        run = Run.objects.create(
            agent=agent, channel=channel, trigger=first, status="errored", error=text, trace=[text]
        )
        RunStep.objects.create(run=run, number=1, kind="model_call", detail={"text": text})
        RunMessage.objects.create(run=run, number=1, role="assistant", content={"text": text})
        call = LLMCall.objects.create(
            role="actor",
            purpose="turn",
            model=name or "m",
            provider="anthropic",
            status="malformed",
            error=text,
            agent=agent,
        )
        LLMPayload.objects.create(call=call, request={"prompt": text}, reply=text)
        ModelPrice.objects.create(
            model=f"m-{n}", effective_from="2026-10-01", source=text,
            input_usd=1, output_usd=2, cache_write_usd=1, cache_read_usd=1,
        )  # fmt: skip


def test_logs_are_never_counted(root: Client) -> None:
    fill(3)

    for model in LOGS:
        counted = [
            sql
            for sql in queries(root, list_of(model))
            if re.match(rf'SELECT COUNT.*FROM "{model._meta.db_table}"', sql)
        ]
        assert all("LIMIT" in sql or '"id" IN (' in sql for sql in counted), counted  # or of rows whose keys are known


def test_characters_that_reorder_text_are_shown_as_code_points(root: Client) -> None:
    fill(1, text=REVERSED)
    message, channel = Message.objects.order_by("pk")[0], Channel.objects.get()

    for url in (
        list_of(Message),
        page_of(message),
        page_of(channel, "transcript"),
        list_of(Channel),
        page_of(Run.objects.get()),
    ):
        html = read(root, url)
        assert "\u202e" not in re.sub(r"<title>.*?</title>|<h1.*?</h1>", "", html, flags=re.S), url
        assert "U+202E" in html, url


def test_an_agent_can_be_deleted_only_if_it_never_spoke(root: Client) -> None:
    spoke, silent = make_agent("spoke"), make_agent("silent")
    say(make_channel(), spoke, "Hello.")

    assert root.post(page_of(spoke, "delete"), {"post": "yes"}).status_code == 403
    assert root.post(page_of(silent, "delete"), {"post": "yes"}).status_code == 302
    assert [agent.slug for agent in Agent.objects.all()] == ["spoke"]


def test_a_channel_with_messages_stays(root: Client) -> None:
    busy, empty = make_channel("busy"), make_channel("empty")
    say(busy, "A visitor", "Hello.")

    assert root.post(page_of(busy, "delete"), {"post": "yes"}).status_code == 403
    assert root.post(page_of(empty, "delete"), {"post": "yes"}).status_code == 302
    assert Channel.objects.get() == busy


def test_a_member_cannot_be_added_twice(root: Client) -> None:
    channel, ada = make_channel(), make_agent()
    values = {"name": "office", "slug": "office", "kind": "public", "topic": "", "tags": "{}"}
    rows = {"memberships-TOTAL_FORMS": "2", "memberships-INITIAL_FORMS": "0"}
    twice = {f"memberships-{n}-agent": str(ada.pk) for n in range(2)}
    response = root.post(page_of(channel), {**values, **rows, **twice})

    assert "This member is in the channel already." in response.content.decode()
    assert root.post(page_of(channel), {**values, **rows, "memberships-0-agent": str(ada.pk)}).status_code == 302
    assert [member.agent for member in channel.memberships.all()] == [ada]


def test_the_kit_alone_knows_the_theme() -> None:
    root = Path(__file__).resolve().parents[2]
    sources = [path for app in ("agents", "evaluation", "correction", "project") for path in (root / app).rglob("*.py")]
    knowing = [path for path in sources if re.search(r"^\s*(?:from|import) unfold", path.read_text(), flags=re.M)]

    assert {path.parent.relative_to(root).as_posix() for path in knowing} == {"agents/kit/console"}
    templates = [path for app in ("agents", "evaluation", "correction") for path in (root / app).rglob("*.html")]
    assert not [path for path in templates if re.search(r"""["']unfold/|load [^%]*unfold""", path.read_text())]
