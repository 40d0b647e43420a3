"""The example data: whole, loaded once however often, never over a person's edits, and as its page says."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agents.models import Agent, Channel, ChannelMember, MemoryBlock, Message, PersonaVersion, Trait
from agents.seed import loader

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "seed-data.md").read_text(encoding="utf-8")
CAST = (
    *("michael", "jim", "dwight", "pam", "ryan", "stanley", "kevin", "angela"),
    *("oscar", "andy", "toby", "creed", "kelly", "phyllis", "meredith", "darryl"),
)
DRIFTING = {"michael", "dwight", "angela", "stanley", "kevin", "jim"}
NOW = datetime(2026, 11, 21, 15, 30, tzinfo=UTC)


def counts() -> dict[str, int]:
    models = (Agent, PersonaVersion, Trait, MemoryBlock, Channel, ChannelMember, Message)
    return {model.__name__: model.objects.count() for model in models}


# -- the files
def test_the_sixteen_agents_of_the_specification_are_there() -> None:
    assert sorted(persona.slug for persona in loader.personas()) == sorted(CAST)


def test_each_persona_is_whole() -> None:
    for persona in loader.personas():
        slug = persona.slug
        assert 150 <= len(persona.system_prompt.split()) <= 400, slug
        assert persona.display_name in persona.system_prompt, slug
        assert persona.traits is not None, slug
        assert len(persona.traits) >= 3, slug
        assert len({trait.name.casefold() for trait in persona.traits}) == len(persona.traits), slug
        assert {"personality", "relationships", "current_focus"} <= {block.label for block in persona.memory_blocks}, (
            slug
        )
        assert len(persona.sample_lines) >= 10, slug
        assert len(set(persona.sample_lines)) == len(persona.sample_lines), slug
        assert re.fullmatch("#[0-9a-f]{6}", persona.avatar_color), slug


def test_each_agent_says_at_least_twenty_things_over_several_weeks() -> None:
    said: dict[str, list[int]] = {}
    for conversation in loader.conversations():
        for message in conversation.messages:
            if message.author:
                said.setdefault(message.author, []).append(message.day)

    assert set(said) == set(CAST)
    for slug, days in said.items():
        assert len(days) >= 20, slug
        assert max(days) - min(days) >= 14, slug


def test_ids_are_unique_and_replies_answer_what_came_before() -> None:
    seen: Counter[str] = Counter()
    for conversation in loader.conversations():
        before: set[str] = set()
        moments = [(message.day, message.time) for message in conversation.messages]
        assert moments == sorted(moments), conversation.channel.slug
        for message in conversation.messages:
            assert bool(message.author) != bool(message.outsider), message.id
            assert message.author is None or message.author in conversation.members, message.id
            assert message.reply_to is None or message.reply_to in before, message.id
            assert message.build == ("40" if message.day <= -10 else "41"), message.id
            before.add(message.id)
            seen[message.id] += 1
    assert [name for name, count in seen.items() if count > 1] == []


# -- the page that describes them
def table(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading of the page, without its head."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`*") for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_page_counts_channels_and_messages_rightly() -> None:
    rows = {row[0]: row[1:] for row in table("Channels")}
    conversations = {c.channel.slug: c for c in loader.conversations()}

    assert set(rows) - {"total"} == set(conversations)
    for slug, conversation in conversations.items():
        builds = Counter(m.build for m in conversation.messages)
        outsiders = sum(bool(m.outsider) for m in conversation.messages)
        replies = sum(m.reply_to is not None for m in conversation.messages)
        expected = [conversation.channel.kind, len(conversation.members), builds["40"], builds["41"]]
        expected += [len(conversation.messages), outsiders, replies]
        assert rows[slug] == [str(value) for value in expected], slug
    assert rows["total"][4] == str(sum(len(c.messages) for c in conversations.values()))


def test_the_drift_the_page_lists_is_in_the_data() -> None:
    """Exactly the messages of build 41 of the six agents, by their ids."""
    listed: dict[str, set[str]] = {}
    for slug, ids in re.findall(r"^\* \*\*(\w+)\*\* - (.*)$", PAGE, re.MULTILINE):
        for channel, numbers in re.findall(r"`([\w-]+)` ([\d, ]+)", ids):
            listed.setdefault(slug, set()).update(
                f"{channel}-{number}" for number in numbers.replace(" ", "").split(",")
            )
    planted: dict[str, set[str]] = {}
    for conversation in loader.conversations():
        for message in conversation.messages:
            if message.author in DRIFTING and message.build == "41":
                planted.setdefault(message.author, set()).add(message.id)

    assert listed == planted
    assert {row[0] for row in table("Planted drift")} == DRIFTING


# -- loading
@pytest.mark.django_db
def test_seeding_again_adds_what_is_missing_and_nothing_else() -> None:
    first = loader.seed(now=NOW)
    before = counts()

    second = loader.seed(now=NOW + timedelta(days=3))

    assert counts() == before
    assert before["Agent"] == before["PersonaVersion"] == 16
    assert (first.agents, second.agents) == (Counter(created=16), Counter(unchanged=16))
    assert (first.messages_created, second.messages_created) == (before["Message"], 0)
    assert second.messages_present == before["Message"]

    general = Channel.objects.get(slug="general")
    position = general.next_position
    Message.objects.create(channel=general, position=position, outsider="A visitor", text="Hello?")
    Channel.objects.filter(pk=general.pk).update(next_position=position + 1)
    Message.objects.filter(external_id="general-001").delete()
    Channel.objects.get(slug="random").delete()

    third = loader.seed(now=NOW)

    assert counts() == {**before, "Message": before["Message"] + 1}
    assert third.messages_created == 1 + Message.objects.filter(channel__slug="random").count()
    assert Message.objects.get(text="Hello?").position == position
    assert Message.objects.get(external_id="general-001").position == position + 1


@pytest.mark.django_db
def test_dates_are_relative_to_the_day_of_seeding() -> None:
    loader.seed(now=NOW)

    message = Message.objects.get(external_id="dm-michael-dwight-001")
    assert message.sent_at == datetime(2026, 10, 24, 8, 10, tzinfo=UTC)
    assert message.tags == {"build": "40"}
    latest = Message.objects.order_by("-sent_at")[0].sent_at
    assert latest is not None
    assert latest < NOW
    reply = Message.objects.get(external_id="dm-michael-dwight-002")
    assert reply.parent == message
    assert (message.position, reply.position, reply.channel.kind) == (1, 2, "dm")
