"""Uploaded files are looked into, imported by a worker, corrected and undone; nothing is lost, stored twice or left half done."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone

from agents.imports import jobs
from agents.imports.jobs import NotNow, authors_of, cancel, discard, preview, reassign, undo
from agents.imports.reading import PREVIEWED, Choices, NewAgent
from agents.models import Agent, Channel, Import, ImportChunk, Message, PersonaVersion, Run
from agents.transcripts.store import write_batch
from tests.agents.imports.uploading import (
    MAY_SAY,
    PERSONA,
    file,
    imported,
    lines,
    somebody,
    submit,
    uploaded,
    work,
)
from tests.console import staff
from tests.factories import make_agent, make_channel

pytestmark = [pytest.mark.django_db, pytest.mark.databases_differ]

TALK = lines(("Ada", "No."), ("Pat", "Is the ferry late?"), ("Ada", "Twenty minutes."))
GUIDE = NewAgent("guide", "Guide", "You are the guide.")


def said(channel: str = "talk") -> list[tuple[str, str]]:
    rows = Message.objects.filter(channel__slug=channel).order_by("position")
    return [(row.author_name, row.text) for row in rows]


def test_a_file_is_looked_into_and_imported_by_a_worker() -> None:
    make_agent()
    job = uploaded(file(TALK))

    assert (job.status, job.contents["format"], job.contents["new"], job.contents["complete"]) == (
        "waiting",
        "jsonl",
        3,
        True,
    )
    assert [(s["name"], s["messages"], s["slug"]) for s in job.contents["speakers"]] == [
        ("Ada", 2, "ada"),
        ("Pat", 1, ""),
    ]
    assert (said(), work()) == ([], False), "nothing is imported before it is submitted"

    imported(job)

    assert job.status == "completed"
    assert said() == [("Ada", "No."), ("Pat", "Is the ferry late?"), ("Ada", "Twenty minutes.")]
    assert (job.stored, job.result["imported"], job.result["spoke"]) == (3, 3, ["ada"])
    assert not ImportChunk.objects.exists(), "the file is not kept longer than it is needed"


def test_of_a_long_file_the_beginning_is_shown_and_all_is_imported() -> None:
    make_agent()
    talk = lines(*((who, f"{n}") for n in range(PREVIEWED) for who in ("Ada", "Pat")), ("Late", "Hello."))
    job = uploaded(file(talk))
    assert (job.contents["messages"], job.contents["complete"]) == (PREVIEWED, False)

    imported(job)

    assert (job.status, job.stored) == ("completed", 2 * PREVIEWED + 1)


def test_an_unknown_agent_after_the_preview_stops_the_import_and_is_asked_for() -> None:
    make_agent()
    head = '{"plumbline": "transcript", "version": 1, "channel": "q"}\n'
    talk = (
        head
        + "".join(f'{{"agent": "ada", "text": "{n}"}}\n' for n in range(PREVIEWED))
        + '{"agent": "guide", "text": "Fog."}\n'
    )
    job = imported(uploaded(file(talk)))

    assert (job.status, Message.objects.count()) == ("failed", 0)
    assert next(s["name"] for s in job.contents["speakers"] if s["why"]) == "guide"
    assert imported(job, agents={"guide": ""}).status == "completed"


def test_it_does_what_the_command_does(tmp_path: Path) -> None:
    make_agent()
    text = lines(("Ada", "Yes."), ("Ada", "Yes."), ("Pat", "So."))
    job = imported(uploaded(file(text, "one.jsonl")))
    (tmp_path / "two.jsonl").write_text(text)
    call_command("import_transcript", tmp_path / "two.jsonl")

    ids = [list(Message.objects.filter(channel__slug=s).values_list("external_id", flat=True)) for s in ("one", "two")]
    assert said("one") == said("two")
    assert (ids[0] == ids[1], job.stored) == (True, 3)


def test_a_bad_line_is_named_and_nothing_is_stored() -> None:
    job = uploaded(file(TALK + '{"speaker": "Pat", "text": 5}\n' + TALK))

    assert (job.status, job.error) == ("failed", "talk.jsonl, line 4: 'text' must be a text, got 5")
    assert job.contents["problem"]["excerpt"][1] == [4, '{"speaker": "Pat", "text": 5}']
    assert imported(job).status == "failed"
    assert not Channel.objects.exists()


def test_a_csv_whose_columns_are_not_known_is_read_once_they_are_chosen_and_columns_become_tags() -> None:
    job = uploaded(file("Wer,Was,Build\nPat,Hello,41\nAda,No.,42\n", "t.csv"))
    assert (job.status, job.contents["header"]) == ("failed", ["Wer", "Was", "Build"])

    choices = {"format": "csv", "columns": {"speaker": "Wer", "text": "Was", "tags.Build": "Build"}, "channel": "quay"}
    preview(job, Choices(**choices))  # type: ignore[arg-type]
    assert (job.status, job.contents["new"]) == ("waiting", 2)
    imported(job, **choices)

    assert said("quay") == [("Pat", "Hello"), ("Ada", "No.")]
    assert [message.tags for message in Message.objects.order_by("position")] == [{"Build": "41"}, {"Build": "42"}]


def test_speakers_become_agents_new_agents_and_outsiders() -> None:
    user = somebody()
    make_agent("ada")
    job = uploaded(file(lines(("bot", "One."), ("Guide", "Two."), ("Ada", "Three."))), user=user)
    choices = Choices(agents={"bot": "ada", "Ada": ""}, made={"Guide": GUIDE})
    preview(job, choices)
    assert not Agent.objects.filter(slug="guide").exists(), "a preview makes no agent"

    imported(job, agents=choices.agents, made=choices.made)

    rows = Message.objects.order_by("position").values_list("agent__slug", "outsider")
    assert list(rows) == [("ada", ""), ("guide", ""), (None, "Ada")]
    version = PersonaVersion.objects.get(agent__slug="guide")
    assert (version.note, version.created_by, version.system_prompt) == (f"import {job.pk}", user, GUIDE.system_prompt)
    assert set(Channel.objects.get().memberships.values_list("agent__slug", flat=True)) == {"ada", "guide"}


def test_agents_that_a_file_names_and_that_do_not_exist_must_be_decided() -> None:
    make_agent("ada", display_name="The Clerk")
    make_agent("ben", display_name="The Clerk")
    text = (
        '{"plumbline": "transcript", "version": 1, "channel": "q"}\n{"agent": "guide", "text": "Fog."}\n'
        '{"speaker": "The Clerk", "text": "No."}\n'
    )
    job = uploaded(file(text))

    assert {s["name"]: s["why"] for s in job.contents["speakers"]} == {
        "guide": "no agent 'guide'; agents: ada, ben",
        "The Clerk": "'The Clerk' is the display name of several agents (ada, ben)",
    }
    with pytest.raises(NotNow, match="first say who"):
        submit(job)
    imported(job, agents={"guide": "", "The Clerk": "ben"})
    assert said("q") == [("guide", "Fog."), ("The Clerk", "No.")]
    assert Message.objects.get(text="No.").agent == Agent.objects.get(slug="ben")


def test_an_import_goes_only_as_far_as_the_permissions_of_its_uploader() -> None:
    make_agent()
    make_channel("talk")
    user = staff("agents.add_message", "agents.view_import")
    job = uploaded(file(TALK), user=user)

    assert "agents.add_channelmember" in job.contents["refusal"]
    with pytest.raises(NotNow, match="only joins it"):
        submit(job)
    assert uploaded(file(PERSONA, "g.yaml"), user=user).error.startswith("Personas make agents")


def test_submitting_twice_imports_once() -> None:
    job = uploaded(file(TALK))
    same = Import.objects.get(pk=job.pk)
    submit(job)
    with pytest.raises(NotNow):
        submit(same)
    assert work()
    assert not work()


@pytest.mark.parametrize("lost", ["permission", "account"])
def test_who_may_not_import_any_more_imports_nothing(lost: str) -> None:
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
    reasons = {"permission": "a permission was removed", "account": "has no account here any more"}
    assert reasons[lost] in job.error


def test_a_worker_that_dies_half_way_loses_nothing_and_the_count_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.transcripts.importer.BATCH", 2)
    job = uploaded(file(lines(*((f"s{n}", "Hello.") for n in range(5)))))
    submit(job)
    written: list[int] = []

    def dying(batch: Any, **more: Any) -> Any:
        if written:
            raise KeyboardInterrupt
        written.append(len(batch))
        return write_batch(batch, **more)

    with monkeypatch.context() as patch:
        patch.setattr("agents.transcripts.importer.write_batch", dying)
        with pytest.raises(KeyboardInterrupt):
            work()
    job.refresh_from_db()
    assert (job.status, job.stored, len(said())) == ("pending", 2, 2)

    assert work()

    job.refresh_from_db()
    assert (job.status, job.stored, len(said())) == ("completed", 5, 5)


def test_an_import_that_is_cancelled_stores_nothing_more_and_the_same_upload_can_be_submitted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agents.transcripts.importer.BATCH", 2)
    job = uploaded(file(lines(*((f"s{n}", "Hello.") for n in range(6)))))
    submit(job)

    def cancelling(batch: Any, **more: Any) -> Any:
        result = write_batch(batch, **more)
        if Message.objects.count() == 2:
            cancel(Import.objects.get(pk=job.pk))
        return result

    with monkeypatch.context() as patch:
        patch.setattr("agents.transcripts.importer.write_batch", cancelling)
        assert work()
    job.refresh_from_db()
    assert (job.status, job.stored, len(said())) == ("cancelled", 2, 2)
    assert not work()

    imported(job)
    assert (job.status, job.stored, len(said())) == ("completed", 6, 6)


def test_a_crash_is_errored_names_no_path_and_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    job = uploaded(file(TALK))

    def full(*_args: object, **_more: object) -> None:
        raise OSError(28, "No space left on device", "/srv/secret/0001.yaml")

    with monkeypatch.context() as patch:
        patch.setattr("agents.imports.jobs.write_into", full)
        imported(job)
    assert (job.status, job.error) == ("errored", "OSError: No space left on device")

    assert imported(job).status == "completed"
    assert len(said()) == 3


def test_the_import_of_a_lost_worker_is_done_by_the_next() -> None:
    job = uploaded(file(TALK))
    submit(job)
    Import.objects.update(
        status="running", lease_owner="elsewhere:1:x", lease_expires_at=timezone.now() - timedelta(minutes=1)
    )

    assert work()
    assert len(said()) == 3


def test_an_agent_made_meanwhile_is_not_given_other_words() -> None:
    job = uploaded(file(lines(("Guide", "Two."))))
    submit(job, made={"Guide": GUIDE})
    make_agent("guide")

    assert work()

    job.refresh_from_db()
    assert "made by another user" in job.error
    assert said() == []


def test_no_agent_is_left_behind_by_an_import_that_was_refused() -> None:
    user = somebody()
    make_channel("talk")
    job = uploaded(file(lines(("Guide", "Two."), ("Ada", "No."))), user=user)
    submit(job, made={"Guide": GUIDE})
    make_agent("ada")  # which would have to join the channel
    user.user_permissions.remove(*user.user_permissions.filter(codename="add_channelmember"))

    assert work()

    job.refresh_from_db()
    assert job.status == "failed"
    assert not Agent.objects.filter(slug="guide").exists()


def undone(job: Import) -> Import:
    undo(job)
    assert work()
    job.refresh_from_db()
    return job


def test_an_import_is_undone_as_a_whole_and_nothing_else_goes() -> None:
    make_agent()
    imported(uploaded(file(TALK)))
    before = said()
    user = Import.objects.get().created_by
    assert user is not None
    job = uploaded(file(TALK + lines(("Guide", "Two."))), user=user)
    other = uploaded(file(lines(("Pat", "Elsewhere.")), "b.jsonl"), user=user)
    imported(job, made={"Guide": GUIDE})
    imported(other)
    assert (job.stored, len(said())) == (1, 4)

    undone(job)

    assert (job.status, job.stored, said()) == ("undone", 0, before)
    assert not Agent.objects.filter(slug="guide").exists()
    undone(other)
    assert set(Channel.objects.values_list("slug", flat=True)) == {"talk"}
    with pytest.raises(NotNow, match="stored nothing"):
        undo(other)


def test_undoing_keeps_an_agent_that_was_used_since() -> None:
    job = imported(uploaded(file(lines(("Guide", "Two.")))), made={"Guide": GUIDE})
    Run.objects.create(agent=Agent.objects.get())

    undone(job)

    assert (job.status, job.result["kept_agents"]) == ("undone", ["guide"])
    assert not Message.objects.exists()


def test_an_undo_that_was_killed_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "UNDO_BATCH", 2)
    job = imported(uploaded(file(TALK)))
    undo(job)
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "_delete_unused", _killing(jobs._delete_unused, after=1))
        with pytest.raises(KeyboardInterrupt):
            work()
    assert (Message.objects.count(), Import.objects.get().status) == (1, "pending")

    assert work()

    assert (Message.objects.count(), Import.objects.get().status) == (0, "undone")


def _killing(function: Callable[..., Any], *, after: int) -> Callable[..., Any]:
    calls: list[int] = []

    def killed(*args: Any) -> Any:
        calls.append(1)
        if len(calls) > after:
            raise KeyboardInterrupt
        return function(*args)

    return killed


def test_an_author_can_be_changed_afterwards() -> None:
    user = somebody()
    job = imported(uploaded(file(TALK), user=user))
    guide = make_agent("guide")
    rows = authors_of(job)
    assert [(row["outsider"], row["messages"]) for row in rows] == [("Ada", 2), ("Pat", 1)]

    which = {key: rows[0][key] for key in ("agent_id", "user_id", "outsider")}
    assert reassign(job, author=which, agent=guide, outsider="", user=user) == 2

    assert said() == [("Guide", "No."), ("Pat", "Is the ferry late?"), ("Guide", "Twenty minutes.")]
    assert guide.memberships.count() == 1
    theirs = {"agent_id": guide.pk, "user_id": None, "outsider": ""}
    with pytest.raises(NotNow, match="1 to 200 characters, got 0"):
        reassign(job, author=theirs, agent=None, outsider="", user=user)
    assert reassign(job, author=theirs, agent=None, outsider="A clerk", user=user) == 2
    assert [name for name, _ in said()] == ["A clerk", "Pat", "A clerk"]


def test_an_agent_joins_a_channel_by_a_change_of_author_only_with_that_permission() -> None:
    job = imported(uploaded(file(TALK), user=somebody()))
    plain = staff("agents.add_message", username="plain")
    with pytest.raises(NotNow, match="add_channelmember"):
        reassign(job, author={"outsider": "Ada"}, agent=make_agent("guide"), outsider="", user=plain)


def test_discarding_deletes_the_files_unless_a_worker_has_them() -> None:
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
