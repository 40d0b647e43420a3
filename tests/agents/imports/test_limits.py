"""What may be handed in: how much, by whom, and what a file can cost."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from agents.admin.personas import AgentForm
from agents.imports import uploads
from agents.imports.control import MOST_UNFINISHED, NotNow, agree, discard
from agents.models import Agent, Import, ImportChunk, PersonaVersion
from tests.agents.imports.handing_in import ADD, PERSONA, file, handed_in, lines, somebody, work
from tests.console import signed_in
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

PARTS = PERSONA + "traits: [{name: dry}]\nmemory_blocks: [{label: notes}]\n"
ALL = tuple(f"agents.{act}_{part}" for act in ("add", "change", "delete") for part in ("trait", "memoryblock"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [" + "1," * 1_000_100 + "1]", "holds more than 1,000,000 values"),
        ("a: " + "[" * 400 + "]" * 400, "YAML nested too deep"),
        ("a: " + "x" * (2 * 1024 * 1024), "larger than 2 MiB, the most for YAML"),
        ("a: 2026-13-45", "not valid YAML"),
    ],
)
def test_yaml_that_costs_too_much_is_refused_by_a_worker_or_at_once(text: str, reason: str) -> None:
    job = handed_in(file(text, "bomb.yaml"))
    if len(text) > 64 * 1024:
        assert (job.status, work()) == ("pending", True)
        job.refresh_from_db()

    assert job.status == "failed"
    assert re.match(f"bomb.yaml: .*{reason}", job.error)


def test_a_new_persona_needs_the_permissions_for_its_parts() -> None:
    assert "agents.add_memoryblock, agents.add_trait" in handed_in(file(PARTS, "guide.yaml")).error
    adder = somebody("agents.add_trait", "agents.add_memoryblock", username="adder")
    assert handed_in(file(PARTS, "guide.yaml"), user=adder).found["outcomes"] == {"created": 1}


def test_overwriting_a_persona_needs_what_the_agents_page_needs() -> None:
    adder = somebody("agents.add_trait", "agents.add_memoryblock", username="adder")
    agree(handed_in(file(PARTS, "guide.yaml"), user=adder))
    assert work()
    changed = PARTS.replace("dry}", "wet}")

    assert "agents.delete_trait" in handed_in(file(changed, "guide.yaml"), user=adder).error
    assert list(Agent.objects.get().traits.values_list("name", flat=True)) == ["dry"]
    entitled = somebody(*ALL, username="entitled")
    assert handed_in(file(changed, "guide.yaml"), user=entitled).found["outcomes"] == {"updated": 1}


def test_a_permission_taken_away_after_the_check_stops_the_import() -> None:
    adder = somebody("agents.add_trait", "agents.add_memoryblock", username="adder")
    job = handed_in(file(PARTS, "guide.yaml"), user=adder)
    agree(job)
    adder.user_permissions.clear()
    adder.groups.clear()
    assert work()

    job.refresh_from_db()
    assert job.status == "failed"
    assert not Agent.objects.exists()


def test_the_version_an_import_makes_says_who_handed_it_in() -> None:
    job = handed_in(file(PERSONA, "guide.yaml"))
    agree(job)
    assert work()
    assert PersonaVersion.objects.get().created_by == job.created_by


def test_who_has_ten_unfinished_imports_is_told_what_to_discard() -> None:
    user = somebody()
    jobs = [handed_in(file(lines(("Pat", "Hello"))), user=user) for _ in range(MOST_UNFINISHED)]

    answer = signed_in(user).post(ADD, {"files": [file(lines(("Pat", "Hello")))]})

    assert f"discard some first, e.g. import {jobs[0].pk}" in answer.content.decode()
    assert Import.objects.count() == MOST_UNFINISHED
    discard(jobs[0])
    assert handed_in(file(lines(("Pat", "Hello"))), user=user).status == "completed"


def test_who_keeps_too_many_bytes_is_told_what_to_discard(settings: Settings) -> None:
    user = somebody()
    handed_in(file(lines(("Pat", "Hello" * 20))), user=user)
    settings.IMPORT_MOST_BYTES = 10

    with pytest.raises(NotNow, match="of at most 50: import or discard some first"):
        handed_in(file("x"), user=user)
    assert handed_in(file("x"), user=somebody(username="other"))


def test_what_a_worker_took_up_meanwhile_is_not_discarded() -> None:
    job = handed_in(file(lines(("Pat", "Hello"))))
    Import.objects.filter(pk=job.pk).update(status="running")  # the object still says: completed

    with pytest.raises(NotNow, match="running"):
        discard(job)
    assert ImportChunk.objects.exists()


def test_files_lie_under_names_of_our_own_and_are_called_by_the_given_ones(tmp_path: object) -> None:
    long = "漢" * 90 + ".yaml"
    job = handed_in(file(PERSONA, long), file("You are a ghost.", "The Ghost.md"))
    assert {p["slug"] for p in job.found["personas"]} == {"guide", "the-ghost"}
    assert [path.name for path in uploads.write_into(tmp_path, job)] == ["0001.yaml", "0002.md"]  # type: ignore[arg-type]

    wrong = handed_in(file("display_name: X\n", long), user=job.created_by)
    assert wrong.error.startswith(f"{long}")


def test_a_channel_without_a_name_is_called_as_the_file_was() -> None:
    make_agent()
    job = handed_in(file(lines(("Ada", "No."), ("Pat", "Hello")), "harbour talk.jsonl"))
    assert [name for name, _ in job.found["channels"]] == ["harbour-talk"]


def test_an_error_of_the_machine_does_not_tell_its_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_more: object) -> None:
        raise OSError(28, "No space left on device", "/srv/secret/0001.yaml")

    monkeypatch.setattr("agents.imports.work.write_into", full)
    assert handed_in(file(PERSONA, "guide.yaml")).error == "OSError: No space left on device"


def test_no_agent_has_the_id_that_stands_for_everybody() -> None:
    reason = "an agent's id cannot begin with an underscore"
    assert reason in handed_in(file(PERSONA.replace("guide", "_default", 1), "a.yaml")).error
    form = AgentForm({"slug": "_default", "display_name": "X", "system_prompt": "X", "max_turns": 5})
    assert reason in form.errors["slug"][0]


def test_no_speaker_becomes_an_agent_with_that_id(client: Client) -> None:
    user: User = somebody("agents.add_channelmember")
    job = handed_in(file(lines(("Ada", "No."))), user=user)
    given = {"s0-who": "new", "s0-slug": "_default", "s0-persona": "You are Ada.", "format": "auto"}
    page = signed_in(user).post(f"/admin/agents/import/{job.pk}/choose/", given).content.decode()
    assert "cannot begin with an underscore" in page
