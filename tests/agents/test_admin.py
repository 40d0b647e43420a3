"""The console's pages of the ground floor: who may do what, nothing hostile gets through, and no page grows with its rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.contrib.auth.models import Group, User
from django.db.models import Model
from django.test import Client
from django.utils import timezone

from agents.kit.models import LLMCall, LLMPayload, ModelPrice
from agents.models import Agent, Channel, ChannelMember, Message, Reaction, Run, RunMessage, RunStep
from agents.personas.persona import TraitValue
from tests.console import list_of, page_of, queries, read, signed_in, staff
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db

LISTS: tuple[type[Model], ...] = (Agent, Channel, Message, Run, LLMCall, ModelPrice, User, Group)
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


def pages() -> list[str]:
    """Every list, and one page of everything that is listed."""
    rows = [row for model in LISTS if (row := model._default_manager.order_by("pk").last()) is not None]
    transcripts = [page_of(channel, "transcript") for channel in Channel.objects.all()[:1]]
    return [*(list_of(model) for model in LISTS), *(page_of(row) for row in rows), *transcripts]


def test_logs_are_never_counted(root: Client) -> None:
    fill(3)

    for model in LOGS:
        counted = [
            sql
            for sql in queries(root, list_of(model))
            if re.match(rf'SELECT COUNT.*FROM "{model._meta.db_table}"', sql)
        ]
        assert all("LIMIT" in sql or '"id" IN (' in sql for sql in counted), counted  # or of rows whose keys are known


def test_the_menu_shows_what_one_may_view() -> None:
    menu = read(signed_in(staff("agents.view_agent", "kit.view_llmcall")), "/admin/")

    assert list_of(Agent) in menu
    assert list_of(LLMCall) in menu
    assert list_of(Message) not in menu
    assert list_of(User) not in menu


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


def test_no_page_needs_an_inline_script(root: Client) -> None:
    fill(1)
    Group.objects.create(name="editors")

    for url in ["/admin/", *pages()]:
        html = read(root, url)
        assert re.findall(r"<script(?![^>]*\bsrc=)[^>]*>", html) == [], url
        assert re.findall(r"""<[^>"']*\son[a-z]+\s*=""", html) == [], url
        assert re.findall(r"""(?:src|href)=["'](?:https?:)?//[^"']*""", html) == [], url


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
