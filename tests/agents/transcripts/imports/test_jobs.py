"""Uploaded transcripts are looked into, imported by a worker and undone; nothing is lost, stored twice or left half done."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.files.uploadhandler import StopUpload
from django.core.management import call_command
from django.test import RequestFactory
from django.utils import timezone
from pytest_django import Settings

from agents.erasure import find_outsider, forget
from agents.kit.registry import prunings
from agents.models import Agent, Channel, Import, ImportChunk, Message
from agents.transcripts.importer import ReadOptions
from agents.transcripts.imports import jobs, uploads
from agents.transcripts.imports.jobs import MOST_UNFINISHED, PREVIEWED, NotNow, cancel, discard, preview, undo
from agents.transcripts.store import write_batch
from tests.agents.transcripts.imports.uploading import (
    ADD,
    MAY_SAY,
    file,
    imported,
    lines,
    somebody,
    submit,
    uploaded,
    work,
)
from tests.agents.transcripts.test_exports import slack_zip
from tests.agents.transcripts.test_logs import stamped
from tests.console import page_of, read, signed_in, staff
from tests.factories import make_agent, make_channel, say

pytestmark = [pytest.mark.django_db, pytest.mark.databases_differ]

TALK = lines(("Ada", "No."), ("Pat", "Is the ferry late?"), ("Ada", "Twenty minutes."))
HEADER = '{"plumbline": "transcript", "version": 1, "channel": "q"}\n'


def said(channel: str = "talk") -> list[tuple[str, str]]:
    rows = Message.objects.filter(channel__slug=channel).order_by("position")
    return [(row.author_name, row.text) for row in rows]


def test_a_file_is_looked_into_and_imported_by_a_worker() -> None:
    make_agent()
    job = uploaded(file(TALK))

    contents = job.contents
    assert (job.status, contents["format"], contents["new"], contents["complete"]) == ("waiting", "jsonl", 3, True)
    assert [(s["name"], s["messages"], s["slug"]) for s in contents["speakers"]] == [("Ada", 2, "ada"), ("Pat", 1, "")]
    assert (said(), work()) == ([], False), "nothing is imported before it is submitted"

    imported(job)

    assert job.status == "completed"
    assert said() == [("Ada", "No."), ("Pat", "Is the ferry late?"), ("Ada", "Twenty minutes.")]
    assert (job.stored, job.result["imported"], job.result["spoke"]) == (3, 3, ["ada"])
    assert not ImportChunk.objects.exists(), "the file is not kept longer than it is needed"


def test_the_preview_says_that_a_table_is_in_the_encoding_of_windows_also_where_letters_come_late() -> None:
    table = "speaker;text\n" + "Ada;plain\n" * PREVIEWED + "Jörg;schön\n"
    job = uploaded(file(table.encode("cp1252"), "talk.csv"))

    [warning] = job.contents["warnings"]
    assert "Windows-1252" in warning
    assert "Jörg, schön" in warning
    assert imported(job).status == "completed"
    assert said()[-1] == ("Jörg", "schön")


def test_an_unknown_agent_after_the_preview_is_asked_for() -> None:
    make_agent()
    talk = HEADER + "".join(f'{{"agent": "ada", "text": "{n}"}}\n' for n in range(PREVIEWED))
    job = uploaded(file(talk + '{"agent": "guide", "text": "Fog."}\n'))
    assert (job.contents["messages"], job.contents["complete"]) == (PREVIEWED, False)

    imported(job)

    assert (job.status, Message.objects.count()) == ("failed", 0)
    assert next(s["name"] for s in job.contents["speakers"] if s["why"]) == "guide"
    assert imported(job, speaker_map={"guide": ""}).status == "completed"
    assert job.stored == PREVIEWED + 1


def test_it_does_what_the_command_does(tmp_path: Path) -> None:
    make_agent()
    text = lines(("Ada", "Yes."), ("Ada", "Yes."), ("Pat", "So."))
    job = imported(uploaded(file(text, "one.jsonl")))
    (tmp_path / "two.jsonl").write_text(text)
    call_command("import_transcript", tmp_path / "two.jsonl")

    ids = [list(Message.objects.filter(channel__slug=s).values_list("external_id", flat=True)) for s in ("one", "two")]
    assert said("one") == said("two")
    assert (ids[0] == ids[1], job.stored) == (True, 3)


def test_a_zip_of_slack_is_imported_as_it_is(tmp_path: Path) -> None:
    job = uploaded(file(slack_zip(tmp_path).read_bytes(), "export.zip"))
    assert (job.contents["format"], job.contents["new"]) == ("slack", 6)

    imported(job)

    assert (job.status, job.stored, job.result["undated"]) == ("completed", 6, 0)
    assert job.result["first_sent_at"] == "2026-01-01T00:00:00Z"


def test_lines_that_are_not_understood_are_warned_of_first() -> None:
    olga = somebody()
    job = uploaded(file(stamped(48, 2), "log.txt"), olga)
    assert "2 of 50 entries (4 %) were not understood, the first: line 49: 'what 0'" in job.contents["warnings"][0]
    assert read(signed_in(olga), page_of(job)).count("were not understood") == 1
    onlooker = staff("agents.view_import", username="onlooker")  # may not view messages, which a warning can quote
    assert "were not understood" not in read(signed_in(onlooker), page_of(job))

    imported(job)

    assert job.result["skipped_by_reason"] == {"line not understood": 2}
    assert "what 0" not in json.dumps([job.contents, job.result])
    assert "10 of 40 entries (25 %) were not understood" in uploaded(file(stamped(30, 10), "log.txt"), olga).error


def test_a_bad_line_is_named_and_nothing_is_stored() -> None:
    job = uploaded(file(TALK + '{"speaker": "Pat", "text": 5}\n' + TALK))

    assert (job.status, job.error) == ("failed", "talk.jsonl, line 4: 'text' must be a text, got 5")
    assert imported(job).status == "failed"
    assert not Channel.objects.exists()


def test_a_csv_with_unknown_columns_is_read_once_they_are_chosen() -> None:
    job = uploaded(file("Wer,Was,Build\nPat,Hello,41\nAda,No.,42\n", "t.csv"))
    assert (job.status, job.contents["header"]) == ("waiting", ["Wer", "Was", "Build"])
    assert "no column for 'text'" in job.error

    options: dict[str, Any] = {
        "format": "csv", "columns": {"speaker": "Wer", "text": "Was", "tags.Build": "Build"}, "channel": "quay",
    }  # fmt: skip
    preview(job, ReadOptions(**options))
    assert (job.status, job.contents["new"]) == ("waiting", 2)
    imported(job, **options)

    assert said("quay") == [("Pat", "Hello"), ("Ada", "No.")]
    assert [message.tags for message in Message.objects.order_by("position")] == [{"Build": "41"}, {"Build": "42"}]


def test_json_with_usual_names_as_keys_is_read_without_a_choice() -> None:
    rows = [
        {"author": name, "message": text, "timestamp": 1767607200, "build": "41"}
        for name, text in (("Pat", "Hello"), ("Ada", "No."))
    ]

    job = uploaded(file("\n".join(map(json.dumps, rows)), "quay.jsonl"))

    assert (job.status, job.contents["new"]) == ("waiting", 2)
    imported(job, **job.choices)
    assert said("quay") == [("Pat", "Hello"), ("Ada", "No.")]
    assert {message.tags["build"] for message in Message.objects.all()} == {"41"}


def test_a_key_with_a_usual_name_that_holds_objects_is_left_out() -> None:
    rows = [{"author": "Pat", "message": text, "date": {"$date": "2026-11-24T09:12:00Z"}} for text in ("Hello", "Oh")]

    job = uploaded(file("\n".join(map(json.dumps, rows)), "quay.jsonl"))

    assert (job.status, job.contents["new"], job.contents["undated"]) == ("waiting", 2, 2)


def test_unknown_agents_of_a_file_must_be_decided() -> None:
    make_agent("ada", display_name="The Clerk")
    make_agent("ben", display_name="The Clerk")
    job = uploaded(file(HEADER + '{"agent": "guide", "text": "Fog."}\n{"speaker": "The Clerk", "text": "No."}\n'))

    assert {s["name"]: s["why"] for s in job.contents["speakers"]} == {
        "guide": "no agent 'guide'; agents: ada, ben",
        "The Clerk": "'The Clerk' is the display name of several agents (ada, ben)",
    }
    with pytest.raises(NotNow, match="first say who"):
        submit(job)
    imported(job, speaker_map={"guide": "", "The Clerk": "ben"})
    assert said("q") == [("guide", "Fog."), ("The Clerk", "No.")]
    assert Message.objects.get(text="No.").agent == Agent.objects.get(slug="ben")


def test_an_import_goes_only_as_far_as_the_permissions_of_its_uploader() -> None:
    make_agent()
    make_channel("talk")
    job = uploaded(file(TALK), user=staff("agents.add_message", "agents.view_import"))

    assert "agents.add_channelmember" in job.contents["refusal"]
    with pytest.raises(NotNow, match="only joins it"):
        submit(job)


@pytest.mark.parametrize(
    ("lost", "reason"),
    [("permission", "needs the permission agents.add_message"), ("account", "has no account here any more")],
)
def test_who_may_not_import_any_more_imports_nothing(lost: str, reason: str) -> None:
    user = staff(*MAY_SAY)
    job = uploaded(file(TALK), user=user)
    submit(job)
    if lost == "permission":
        user.user_permissions.clear()
    else:
        User.objects.filter(pk=user.pk).update(is_active=False)

    assert work()

    job.refresh_from_db()
    assert (job.status, said()) == ("failed", [])
    assert reason in job.error


def test_submitting_twice_imports_once() -> None:
    job = uploaded(file(TALK))
    same = Import.objects.get(pk=job.pk)
    submit(job)
    with pytest.raises(NotNow):
        submit(same)
    assert work()
    assert not work()


@pytest.mark.parametrize("ends", ["killed", "cancelled"])
def test_an_import_that_is_interrupted_stores_nothing_twice_and_counts_right(
    monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    monkeypatch.setattr("agents.transcripts.importer.BATCH", 2)
    job = uploaded(file(lines(*((f"s{n}", "Hello.") for n in range(5)))))
    submit(job)
    written: list[int] = []

    def interrupted(batch: Any, **more: Any) -> Any:
        if written and ends == "killed":
            raise KeyboardInterrupt
        written.append(len(batch))
        result = write_batch(batch, **more)
        if len(written) == 1 and ends == "cancelled":
            cancel(Import.objects.get(pk=job.pk))
        return result

    with monkeypatch.context() as patch:
        patch.setattr("agents.transcripts.importer.write_batch", interrupted)
        if ends == "killed":
            with pytest.raises(KeyboardInterrupt):
                work()
        else:
            assert work()
            assert not work()
    job.refresh_from_db()
    assert (job.status, job.stored, len(said())) == ("pending" if ends == "killed" else "cancelled", 2, 2)

    if ends == "cancelled":
        submit(job)
    assert work()

    job.refresh_from_db()
    assert (job.status, job.stored, len(said())) == ("completed", 5, 5)


def test_a_crash_is_errored_names_no_path_and_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    job = uploaded(file(TALK))

    def full(*_args: object, **_more: object) -> None:
        raise OSError(28, "No space left on device", "/srv/secret/0001.yaml")

    with monkeypatch.context() as patch:
        patch.setattr("agents.transcripts.imports.jobs.write_out", full)
        imported(job)
    assert (job.status, job.error) == ("errored", "OSError: No space left on device")

    assert imported(job).status == "completed"
    assert len(said()) == 3


def test_an_import_is_undone_as_a_whole_and_nothing_else_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the worker is killed on the way."""
    monkeypatch.setattr(jobs, "UNDO_BATCH", 2)
    user = somebody()
    imported(uploaded(file(TALK), user=user))
    before = said()
    job = imported(uploaded(file(TALK + lines(("Guide", "Two."))), user=user))
    other = imported(uploaded(file(TALK, "b.jsonl"), user=user))
    assert (job.stored, len(said())) == (1, 4)

    undo(job)
    assert work()
    job.refresh_from_db()
    assert (job.status, job.stored, said()) == ("undone", 0, before)

    undo(other)
    calls: list[int] = []

    def killed(rows: Any) -> Any:
        calls.append(1)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "consequences", killed)
        with pytest.raises(KeyboardInterrupt):
            work()
    other.refresh_from_db()
    assert (len(said("b")), other.status) == (0 if not calls else 1, "pending")

    assert work()
    assert set(Channel.objects.values_list("slug", flat=True)) == {"talk"}
    other.refresh_from_db()
    with pytest.raises(NotNow, match="stored nothing"):
        undo(other)


def test_discarding_deletes_the_file_unless_a_worker_has_it() -> None:
    job = uploaded(file(TALK))
    Import.objects.update(status="running")  # the object still says: waiting
    with pytest.raises(NotNow, match="running"):
        discard(job)
    assert ImportChunk.objects.exists()

    Import.objects.update(status="waiting")
    discard(job)
    assert (job.status, job.contents, ImportChunk.objects.exists()) == ("cancelled", {}, False)
    with pytest.raises(NotNow, match="not stored any more"):
        submit(job)


def test_who_has_ten_unfinished_imports_is_told_what_to_discard() -> None:
    user = somebody()
    waiting = [uploaded(file(TALK), user=user) for _ in range(MOST_UNFINISHED)]

    answer = signed_in(user).post(ADD, {"files": [file(TALK)]})

    assert f"discard some first, e.g. import {waiting[0].pk}" in answer.content.decode()
    assert Import.objects.count() == MOST_UNFINISHED
    discard(waiting[0])
    assert uploaded(file(TALK), user=user).status == "waiting"


def test_of_a_stranger_s_form_few_files_are_read() -> None:
    """The form is read before its sender is known."""

    def upload_of(user: User | AnonymousUser, files: int) -> None:
        request = RequestFactory().post("/admin/login/")
        request.user = user
        handler = uploads.LimitedUploads(request)
        for number in range(files):
            handler.new_file("files", f"{number}.yaml", "text/yaml", None, None, None)

    upload_of(AnonymousUser(), uploads.MOST_OF_STRANGERS)
    with pytest.raises(StopUpload):
        upload_of(AnonymousUser(), uploads.MOST_OF_STRANGERS + 1)
    upload_of(User(username="ann"), 100)


@pytest.mark.parametrize("size", [1, 1024 * 1024, 2 * 1024 * 1024 + 17])
def test_files_come_out_as_they_went_in(tmp_path: Path, size: int) -> None:
    content = (bytes(n % 251 for n in range(1000)) * (size // 1000 + 1))[:size]
    job = Import.objects.create(name="a.bin", size=size)
    uploads.store(job, file(content, "a.bin"))

    path = uploads.write_out(job, tmp_path / "a.bin")

    assert path is not None
    assert path.read_bytes() == content
    ImportChunk.objects.filter(number=0).delete()
    assert uploads.write_out(job, tmp_path / "a.bin") is None


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\talks\\chat.csv", "chat.csv"),
        ("..", "file"),
        ("a\x00b\n.json", "a_b_.json"),
        ("x" * 300 + ".jsonl", "x" * 94 + ".jsonl"),
    ],
)
def test_the_name_of_a_file_can_do_no_harm(name: str, kept: str) -> None:
    assert uploads.plain_name(name) == kept


def test_what_nobody_imports_is_dropped_after_days_and_pruned(settings: Settings) -> None:
    settings.IMPORT_KEEP_DAYS = 7
    old, new = uploaded(file(TALK, "old.jsonl")), uploaded(file(TALK, "new.jsonl"), user=somebody(username="nina"))
    Import.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(days=8))

    assert "1 pieces" in uploads.drop_old()

    assert (uploads.is_stored(old), uploads.is_stored(new)) == (False, True)
    with pytest.raises(NotNow, match="not stored any more"):
        submit(old)
    assert uploads.drop_old() == ""
    rule = next(rule for rule in prunings() if rule.tables[0] == "imports")
    assert rule.tables == ["imports", "import_chunks"]
    assert rule.rows(timezone.now() + timedelta(days=1)).count() == 2


def test_the_preview_of_a_long_file_says_that_no_key_holds_times() -> None:
    messages = [{"speaker": "Ada", "text": f"No {number}.", "stamp": number} for number in range(PREVIEWED + 1)]

    job = uploaded(file("".join(json.dumps(message) + "\n" for message in messages)))

    assert job.contents["complete"] is False
    [warning] = job.contents["warnings"]
    assert "not used: stamp" in warning


def test_a_file_that_cannot_be_read_is_pruned_like_one_that_waits() -> None:
    unreadable = uploaded(file('{"speaker": "Ada", "text"', "broken.jsonl"))
    rule = next(rule for rule in prunings() if rule.tables[0] == "imports")

    assert unreadable.status == "failed"
    assert not rule.rows(timezone.now() - timedelta(days=1)).exists()
    assert rule.rows(timezone.now() + timedelta(days=1)).get() == unreadable


def test_a_person_who_is_forgotten_is_in_no_upload_either() -> None:
    name, text = "Marla Quint", "My boiler has leaked since the third of March."
    say(make_channel(), name, text)
    waiting = uploaded(file(lines((name, text), ("Ada", f"{name} wrote: {text}")), f"{name}.jsonl"))
    preview(waiting, ReadOptions(speaker_map={name: ""}))
    uploaded(file(f'{{"speaker": "{name}", "text"', "b.jsonl"), user=waiting.created_by)
    imported(uploaded(file(lines((name, "Short.")), "c.jsonl"), user=waiting.created_by))

    assert list(forget(find_outsider(name)))

    stored = json.dumps(list(Import.objects.values()), default=str)
    assert name not in stored
    assert "boiler" not in stored
    assert not ImportChunk.objects.exists()
    assert not [row for row in forget(find_outsider(name), dry_run=True) if row.keys]


def test_a_column_of_builds_becomes_a_tag_without_being_asked_for() -> None:
    job = uploaded(file("time,speaker,text,Build\n2026-11-01T10:00:00Z,Ada,No.,41\n", "log.csv"))

    assert job.choices["columns"] == {"tags.build": "Build"}
    imported(job, columns=job.choices["columns"])
    assert Message.objects.get().tags == {"build": "41"}


def test_a_column_of_builds_that_is_left_out_stays_left_out() -> None:
    job = uploaded(file("time,speaker,text,Build\n2026-11-01T10:00:00Z,Ada,No.,41\n", "log.csv"))
    jobs.preview(job, ReadOptions())

    assert job.choices["columns"] == {}
