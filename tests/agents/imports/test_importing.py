"""Files that are handed in are checked, agreed to and imported by a worker; nothing is lost, stored twice or left half done."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import call_command

from agents.imports.choices import Choices, NewAgent
from agents.imports.control import NotNow, agree, check_again
from agents.models import Agent, Channel, Import, ImportChunk, Message, PersonaVersion, owner_name
from tests.agents.imports.handing_in import PERSONA, file, handed_in, lines, somebody, work
from tests.console import staff
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db

TALK = lines(("Ada", "No."), ("Pat", "Is the ferry late?"), ("Ada", "Twenty minutes."))


def said(channel: str = "talk") -> list[tuple[str, str]]:
    rows = Message.objects.filter(channel__slug=channel).order_by("position")
    return [(row.author_name, row.text) for row in rows]


def imported(job: Import) -> Import:
    agree(job, without_agents=True)
    assert work()
    job.refresh_from_db()
    return job


def test_a_small_file_is_checked_where_it_comes_in_and_imported_by_a_worker() -> None:
    make_agent()
    job = handed_in(file(TALK))

    assert job.waits_for_decision
    assert (job.found["format"], job.found["imported"]) == ("jsonl", 3)
    assert [(s["name"], s["messages"], s["slug"]) for s in job.found["speakers"]] == [("Ada", 2, "ada"), ("Pat", 1, "")]
    assert said() == [], "nothing is imported before somebody agrees"
    assert not work(), "and no worker does it unasked"

    imported(job)

    assert job.is_done
    assert said() == [("Ada", "No."), ("Pat", "Is the ferry late?"), ("Ada", "Twenty minutes.")]
    assert (job.stored, job.result["imported"], job.result["spoke"]) == (3, 3, ["ada"])
    assert not ImportChunk.objects.exists(), "the file is not kept longer than it is needed"


def test_a_large_file_is_checked_by_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.imports.control.AT_ONCE", 10)
    job = handed_in(file(TALK))
    assert (job.status, job.step) == ("pending", "check")

    assert work()

    job.refresh_from_db()
    assert job.waits_for_decision


def test_it_does_what_the_command_does(tmp_path: Path) -> None:
    make_agent()
    text = lines(("Ada", "Yes."), ("Ada", "Yes."), ("Pat", "So."))
    job = imported(handed_in(file(text, "one.jsonl")))
    (tmp_path / "two.jsonl").write_text(text)
    call_command("import_transcript", tmp_path / "two.jsonl")

    assert said("one") == said("two")
    assert list(Message.objects.filter(channel__slug="one").values_list("external_id", flat=True)) == list(
        Message.objects.filter(channel__slug="two").values_list("external_id", flat=True)
    )
    assert job.stored == 3


def test_a_bad_line_is_named_and_nothing_is_stored() -> None:
    job = handed_in(file(TALK + '{"speaker": "Pat", "text": 5}\n' + TALK))

    assert (job.status, job.step) == ("failed", "check")
    assert job.error == "talk.jsonl, line 4: 'text' must be a text, got 5"
    assert job.found["problem"]["excerpt"][1] == [4, '{"speaker": "Pat", "text": 5}']
    with pytest.raises(NotNow, match="not waiting for a decision"):
        agree(job)
    assert not Channel.objects.exists()


def test_a_csv_whose_columns_are_not_known_is_read_once_they_are_chosen() -> None:
    job = handed_in(file("Wer,Was\nPat,Hello\nAda,No.\n", "t.csv"))
    assert job.status == "failed"
    assert job.found["header"] == ["Wer", "Was"]

    check_again(job, Choices(format="csv", columns={"speaker": "Wer", "text": "Was"}, channel="quay"))
    imported(job)

    assert said("quay") == [("Pat", "Hello"), ("Ada", "No.")]


def test_speakers_become_agents_new_agents_and_outsiders() -> None:
    user = somebody()
    make_agent("ada")
    job = handed_in(file(lines(("bot", "One."), ("Guide", "Two."), ("Ada", "Three."))), user=user)
    new = NewAgent("guide", "Guide", "You are the harbour guide.")
    check_again(job, Choices(agents={"bot": "ada", "Ada": ""}, made={"Guide": new}))
    assert not Agent.objects.filter(slug="guide").exists(), "checking makes nobody"

    imported(job)

    rows = Message.objects.order_by("position").values_list("agent__slug", "outsider")
    assert list(rows) == [("ada", ""), ("guide", ""), (None, "Ada")]
    version = PersonaVersion.objects.get(agent__slug="guide")
    assert (version.note, version.created_by, version.system_prompt) == (f"import {job.pk}", user, new.system_prompt)
    assert set(Channel.objects.get().memberships.values_list("agent__slug", flat=True)) == {"ada", "guide"}


def test_agents_that_a_file_names_and_that_do_not_exist_are_decided_by_a_person() -> None:
    make_agent("ada", display_name="The Clerk")
    make_agent("ben", display_name="The Clerk")
    text = (
        '{"plumbline": "transcript", "version": 1, "channel": "q"}\n{"agent": "guide", "text": "Fog."}\n'
        '{"speaker": "The Clerk", "text": "No."}\n'
    )
    job = handed_in(file(text))

    assert {s["name"]: s["why"] for s in job.found["speakers"]} == {
        "guide": "no agent 'guide'; agents: ada, ben",
        "The Clerk": "'The Clerk' is the display name of several agents (ada, ben)",
    }
    with pytest.raises(NotNow, match="first say who"):
        agree(job)
    check_again(job, Choices(agents={"guide": "", "The Clerk": "ben"}))
    imported(job)
    assert said("q") == [("guide", "Fog."), ("The Clerk", "No.")]
    assert Message.objects.get(text="No.").agent == Agent.objects.get(slug="ben")


def test_an_import_goes_only_as_far_as_the_rights_of_whoever_handed_it_in() -> None:
    make_agent()
    make_channel("talk")
    user = staff("agents.add_message", "agents.view_import")
    job = handed_in(file(TALK), user=user)

    assert "agents.add_channelmember" in job.found["refusal"]
    with pytest.raises(NotNow, match="only joins it"):
        agree(job)
    assert handed_in(file(PERSONA, "g.yaml"), user=user).error.startswith("Personas make agents")


def test_agreeing_twice_imports_once() -> None:
    job = handed_in(file(TALK))
    same = Import.objects.get(pk=job.pk)
    agree(job, without_agents=True)
    with pytest.raises(NotNow):
        agree(same, without_agents=True)
    assert work()
    assert not work()
    assert owner_name() != job.lease_owner
