"""What is exported can be imported again exactly."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from agents.kit.text.tags import TAG_KEY
from agents.models import Agent, Channel, ChannelMember, Message
from tests.agents.transcripts.helpers import exported, make_agent, run_json, said, write

texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=60)
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60)
tags = st.dictionaries(st.from_regex(TAG_KEY, fullmatch=True), texts, max_size=3)
payloads = st.dictionaries(
    texts,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=5,
    ),
    max_size=3,
)
times = st.none() | st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
messages = st.fixed_dictionaries(
    {
        "author": st.sampled_from(["agent", "other-agent", "user", "outsider"]),
        "outsider": names,
        "text": texts,
        "sent_at": times,
        "tags": tags,
        "payload": payloads,
        "synthetic": st.booleans(),
        "own_key": st.booleans(),
        "reply": st.none() | st.integers(0, 7),
    }
)


def store(rows: list[dict[str, Any]], ids: list[str]) -> Channel:
    """A channel with these messages, made without the importer."""
    channel = Channel.objects.create(
        slug="Room_1",
        name="Room 1 ☂",
        kind="private",
        topic="Any\nthing",
        tags={"b": "2", "a": "1"},
        inclusion_probability=0.125,
    )
    agents = [Agent.objects.create(slug=s, display_name=f"{s} =x", system_prompt="You are.") for s in ("ada", "bo")]
    user = User.objects.create(username="ines", first_name="Ines", last_name="O")
    stored: list[Message] = []
    for number, row in enumerate(rows):
        author: dict[str, Any] = {"outsider": row["outsider"]}
        if row["author"] == "user":
            author = {"user": user}
        elif row["author"] != "outsider":
            author = {"agent": agents[row["author"] == "agent"]}
            ChannelMember.objects.get_or_create(channel=channel, agent=author["agent"])
        fields = {key: row[key] for key in ("text", "sent_at", "tags", "payload", "synthetic")}
        key = f"key {number}" if row["own_key"] else None
        stored.append(
            Message.objects.create(
                channel=channel, position=number + 1, external_id=ids[number], idempotency_key=key, **author, **fields
            )
        )
    for row, message in zip(rows, stored, strict=True):
        if row["reply"] is not None and stored[row["reply"] % len(stored)] != message:
            message.parent = stored[row["reply"] % len(stored)]
            message.save()
    Channel.objects.update(next_position=len(rows) + 1)
    return channel


def everything() -> list[dict[str, Any]]:
    """Every field of every message that is no database id, and not when its row was made."""
    return [
        dict(row)
        for row in Message.objects.order_by("position").values(
            "channel__slug", "channel__name", "channel__inclusion_probability",
            "channel__kind", "channel__topic", "channel__next_position", "position", "external_id",
            "agent__slug", "user__username", "outsider", "parent__external_id", "text", "payload", "sent_at", "synthetic",
            "idempotency_key", "tags",
        )
    ]  # fmt: skip


class RoundTrip(TestCase):
    @given(st.lists(st.tuples(messages, names), min_size=1, max_size=5, unique_by=lambda m: m[1]))
    def test_export_import_export_gives_identical_bytes(self, rows: list[tuple[dict[str, Any], str]]) -> None:
        store([row for row, _ in rows], [name for _, name in rows])
        for form, ending in (("jsonl", "jsonl"), ("csv", "csv")):
            first, before = exported("Room_1", format=form), everything()
            assert len(before) == len(rows)
            if form == "jsonl":
                Channel.objects.all().delete()
            else:
                Message.objects.all().delete()
                Channel.objects.update(next_position=1)
            with tempfile.TemporaryDirectory() as folder:
                report = run_json("import_transcript", write(Path(folder), f"any.{ending}", first))
            assert (report["format"], report["imported"]) == (form, len(rows))
            assert exported("Room_1", format=form).encode() == first.encode()
            assert everything() == before


@pytest.mark.django_db
def test_a_cell_that_looks_like_a_formula_is_guarded_and_comes_back(tmp_path: Path) -> None:
    words = ["=1+1", "+49", "-x", "@sum", "\ttab", "\rreturn", "'=quoted", "''-x", "plain", "'plain"]
    lines = "".join(json.dumps({"speaker": "=cmd()", "text": text}) + "\n" for text in words)
    run_json("import_transcript", write(tmp_path, "odd.jsonl", lines))
    table = exported("odd", format="csv")
    rows = list(csv.DictReader(io.StringIO(table, newline="")))
    assert [row["text"] for row in rows] == [
        "'=1+1", "'+49", "'-x", "'@sum", "'\ttab", "'\rreturn", "''=quoted", "'''-x", "plain", "'plain",
    ]  # fmt: skip
    assert all(cell[:1] not in set("=+-@\t\r") for row in rows for cell in row.values() if cell)
    Channel.objects.all().delete()
    run_json("import_transcript", write(tmp_path, "odd.csv", table))
    assert said() == [("=cmd()", text) for text in words]


@pytest.mark.django_db
def test_openai_export_has_the_agent_as_assistant_and_imports_again(tmp_path: Path) -> None:
    make_agent("mara", "Mara Lind")
    make_agent("bo")
    rows = '{"agent": "mara", "text": "Hi."}\n{"agent": "bo", "text": "Ho."}\n{"outsider": "Jo Doe", "text": "He."}\n'
    run_json("import_transcript", write(tmp_path, "talk.jsonl", rows))
    text = exported("talk", format="openai", agent="mara")
    assert json.loads(text) == {
        "messages": [
            {"role": "assistant", "content": "Hi."},
            {"role": "user", "name": "bo", "content": "Ho."},
            {"role": "user", "name": "Jo_Doe", "content": "He."},
        ]
    }
    run_json("import_transcript", write(tmp_path, "again.json", text), map=["assistant=mara"])
    assert said("again") == [("Mara Lind", "Hi."), ("Bo", "Ho."), ("Jo_Doe", "He.")]


@pytest.mark.django_db
def test_where_selects_by_tag_and_drops_replies_to_the_rest(tmp_path: Path) -> None:
    lines = (
        '{"id": "1", "speaker": "A", "text": "old", "tags": {"build": "40"}}\n'
        '{"id": "2", "speaker": "A", "text": "new", "tags": {"build": "41"}, "reply_to": "1"}\n'
        '{"id": "3", "speaker": "A", "text": "newer", "tags": {"build": "41"}, "reply_to": "2"}\n'
    )
    run_json("import_transcript", write(tmp_path, "talk.jsonl", lines))
    rows = [json.loads(line) for line in exported("talk", where=["build=41"]).splitlines()[1:]]
    assert [(row["text"], row["reply_to"]) for row in rows] == [("new", None), ("newer", "2")]


@pytest.mark.django_db
def test_out_writes_a_file_that_is_complete_or_not_there(tmp_path: Path) -> None:
    run_json("import_transcript", write(tmp_path, "talk.jsonl", '{"speaker": "A", "text": "x"}\n'))
    assert exported("talk", out=tmp_path / "copy.jsonl") == ""
    assert (tmp_path / "copy.jsonl").read_text() == exported("talk")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.jsonl", "talk.jsonl"]
