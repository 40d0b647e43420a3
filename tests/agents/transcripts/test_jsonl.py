"""Our own JSON Lines, with a header line and without."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from agents.models import Channel, Message
from tests.agents.transcripts.helpers import make_agent, run_json, said, write

pytestmark = pytest.mark.django_db
HEADER = '{"plumbline": "transcript", "version": 1, "channel": "sales", "name": "Sales floor", "kind": "private"'


def test_messages_get_their_author_channel_and_order(tmp_path: Path) -> None:
    mara = make_agent("mara", "Mara Lind")
    path = write(
        tmp_path,
        "talk.jsonl",
        '{"channel": "lobby", "agent": "Mara Lind", "role": "agent", "text": "Morning."}\n'
        '{"channel": "lobby", "agent": "USER", "role": "stimulus", "text": "Who is there?"}\n'
        '{"channel": "lobby", "agent": "MARA", "role": "agent", "text": "Only me."}\n',
    )
    report = run_json("import_transcript", path)
    assert said("lobby") == [("Mara Lind", "Morning."), ("USER", "Who is there?"), ("Mara Lind", "Only me.")]
    assert list(Message.objects.order_by("position").values_list("position", "agent")) == [
        (1, mara.pk),
        (2, None),
        (3, mara.pk),
    ]
    assert Channel.objects.get().next_position == 4
    assert report["format"] == "jsonl"
    assert (report["read"], report["imported"], report["duplicates"], report["skipped"]) == (3, 3, 0, 0)
    assert report["speakers"]["USER"] == {"agent": None, "messages": 1}
    assert report["speakers"]["Mara Lind"] == {"agent": "mara", "messages": 1}


def test_a_header_makes_the_channel_as_it_was(tmp_path: Path) -> None:
    make_agent("mara")
    make_agent("quiet")
    path = write(
        tmp_path,
        "talk.jsonl",
        HEADER + ', "topic": "Deals", "tags": {"team": "north"}, "members": ["quiet", "mara"]}\n'
        '{"id": "m1", "agent": "mara", "text": "Sold."}\n',
    )
    run_json("import_transcript", path)
    channel = Channel.objects.get()
    assert (channel.slug, channel.name, channel.kind, channel.topic) == ("sales", "Sales floor", "private", "Deals")
    assert channel.tags == {"team": "north"}
    assert sorted(channel.memberships.values_list("agent__slug", flat=True)) == ["mara", "quiet"]


def test_importing_again_adds_only_what_is_new_and_the_same_words_twice_are_two_messages(tmp_path: Path) -> None:
    one, two = '{"id": "a", "speaker": "Ann", "text": "One."}\n', '{"speaker": "Ann", "text": "Yes."}\n'
    for text, counts in ((one + two, (2, 0)), (one + two, (0, 2)), (one + two * 3, (2, 2))):
        report = run_json("import_transcript", write(tmp_path, "talk.jsonl", text))
        assert (report["imported"], report["duplicates"]) == counts
    assert said() == [("Ann", "One."), *[("Ann", "Yes.")] * 3]


def test_replies_find_their_parent_also_when_it_comes_later(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "talk.jsonl",
        '{"id": "1", "speaker": "A", "text": "first", "reply_to": "2"}\n{"id": "2", "speaker": "B", "text": "second"}\n'
        '{"id": "3", "speaker": "A", "text": "third", "reply_to": "2"}\n{"id": "4", "speaker": "A", "text": "x", "reply_to": "gone"}\n',
    )
    report = run_json("import_transcript", path)
    parents = dict(Message.objects.values_list("external_id", "parent__external_id"))
    assert parents == {"1": "2", "2": None, "3": "2", "4": None}
    assert report["replies_without_parent"] == 1


def test_an_import_that_was_killed_before_it_linked_replies_is_completed_by_the_next(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "talk.jsonl",
        '{"id": "1", "speaker": "A", "text": "x", "reply_to": "2"}\n{"id": "2", "speaker": "B", "text": "y"}\n',
    )
    run_json("import_transcript", path)
    Message.objects.update(parent=None)
    report = run_json("import_transcript", path)
    assert (report["imported"], report["replies_without_parent"]) == (0, 0)
    assert Message.objects.get(external_id="1").parent == Message.objects.get(external_id="2")


def test_a_user_is_found_by_username_and_an_outsider_stays_one_though_an_agent_has_the_name(
    tmp_path: Path, django_user_model: type
) -> None:
    django_user_model.objects.create_user("ines")  # type: ignore[attr-defined]
    make_agent("mara")
    rows = (
        '{"user": "ines", "text": "Hi."}\n{"user": "nobody", "text": "Ho."}\n{"outsider": "Mara", "text": "Another."}\n'
    )
    run_json("import_transcript", write(tmp_path, "talk.jsonl", rows))
    authors = Message.objects.order_by("position").values("user__username", "outsider", "agent")
    assert [tuple(row.values()) for row in authors] == [
        ("ines", "", None),
        (None, "nobody", None),
        (None, "Mara", None),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"agent": "mara", "text": "x"', "not valid JSON"),
        ("[1]", "a message must be a JSON object, got a list"),
        ('{"agent": "mara"}', "a message has no 'text'"),
        ('{"agent": "mara", "text": 7}', "'text' must be a text, got 7"),
        ('{"agent": "mara", "text": "x", "mood": "good"}', "unknown key 'mood'; allowed: agent, channel"),
        ('{"agent": "mara", "user": "u", "text": "x"}', "a message has one author, but 'agent' and 'user' are given"),
        ('{"agent": "marra", "text": "x"}', "no agent 'marra'; nearest: mara"),
        ('{"agent": "mara", "text": "x", "sent_at": "yesterday"}', "'sent_at': 'yesterday' is no time"),
        ('{"agent": "mara", "text": "x", "sent_at": "0001-01-01T00:00:00+14:00"}', "out of range"),
        ('{"agent": "mara", "text": "x", "tags": {"build": 41}}', "'tags': the value of 'build' must be a text"),
        ('{"agent": "mara", "text": "x", "tags": {"a b": "41"}}', "'tags': tag key 'a b'; allowed: a letter"),
        ('{"agent": "mara", "text": "x", "payload": []}', "'payload' must be an object, got a list"),
        ('{"agent": "mara", "text": "x", "payload": {"n": NaN}}', "NaN is not JSON"),
        ('{"agent": "mara", "text": "x", "payload": {"n": 1e999}}', "the number 1e999 is too large"),
        ('{"agent": "mara", "text": "x", "payload": {"n": ' + "9" * 5000 + "}}", "not valid JSON"),
        ('{"agent": "mara", "text": "x", "synthetic": "yes"}', "'synthetic' must be true or false, got 'yes'"),
        ('{"agent": "mara", "text": "x", "payload": ' + '{"a":' * 70 + "1" + "}" * 71, "nested deeper than 64 levels"),
        ('{"agent": "mara", "text": "x", "payload": ' + "[" * 100_000, "JSON nested too deep"),
        ('{"id": "ok", "agent": "mara", "text": "other words"}', "the id 'ok' was used before for another message"),
        ('{"outsider": "' + "n" * 201 + '", "text": "x"}', "a speaker's name of more than 200 characters"),
        ('{"id": "' + "n" * 201 + '", "agent": "mara", "text": "x"}', "an id of more than 200 characters"),
    ],
)
def test_one_bad_line_is_named_and_nothing_is_imported(tmp_path: Path, line: str, reason: str) -> None:
    make_agent("mara")
    path = write(tmp_path, "talk.jsonl", HEADER + '}\n{"id": "ok", "agent": "mara", "text": "fine"}\n\n' + line + "\n")
    with pytest.raises(CommandError) as error:
        call_command("import_transcript", path)
    assert f"{path}, line 4: " in str(error.value)
    assert reason in str(error.value)
    assert "Nothing was imported." in str(error.value)
    assert not Message.objects.exists()
    assert not Channel.objects.exists()


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ('"version": 2', "'version' must be 1, got 2"),
        (
            '"version": 1, "kind": "secret"',
            "'kind' must be one of public, private, dm, debate, experiment, got 'secret'",
        ),
    ],
)
def test_an_unknown_version_or_channel_kind_is_refused(tmp_path: Path, header: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        call_command("import_transcript", write(tmp_path, "t.jsonl", f'{{"plumbline": "transcript", {header}}}\n'))


def test_a_copy_of_a_channel_does_not_steal_idempotency_keys(tmp_path: Path) -> None:
    path = write(tmp_path, "talk.jsonl", '{"id": "1", "speaker": "A", "text": "x", "idempotency_key": "k1"}\n')
    run_json("import_transcript", path, channel="one")
    run_json("import_transcript", path, channel="two")
    assert dict(Message.objects.values_list("channel__slug", "idempotency_key")) == {"one": "k1", "two": None}
