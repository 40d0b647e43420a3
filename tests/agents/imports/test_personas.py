"""Personas that are handed in are recognised, shown with what they would change, and imported all or none."""

from __future__ import annotations

from typing import Any

import pytest

from agents.imports.jobs import cancel, preview, undo
from agents.imports.reading import Choices
from agents.imports.uploads import write_into
from agents.models import Agent, Import, PersonaVersion
from agents.persona import save_persona
from tests.agents.imports.uploading import PERSONA, file, imported, lines, submit, uploaded, work

pytestmark = pytest.mark.django_db

CARD = '{"spec": "chara_card_v2", "data": {"name": "Wraith", "description": "Speaks of weather."}}'


def test_several_files_are_personas_and_are_imported_together() -> None:
    job = uploaded(
        file(PERSONA, "guide.yaml"), file("# The Ghost\nYou are a ghost.", "ghost.md"), file(CARD, "card.json")
    )

    assert job.kind == "personas"
    assert job.contents["outcomes"] == {"created": 3}
    assert {p["slug"] for p in job.contents["personas"]} == {"guide", "ghost", "wraith"}
    assert not Agent.objects.exists()

    imported(job)
    assert (job.status == "completed", job.stored, job.result["outcomes"]) == (True, 3, {"created": 3})
    versions = PersonaVersion.objects.values_list("agent__slug", "note")
    assert set(versions) == {(slug, "import") for slug in ("guide", "ghost", "wraith")}


@pytest.mark.parametrize(("name", "text"), [("one.json", CARD), ("prompt.txt", "You are a ghost.\nSpeak softly.\n")])
def test_a_single_file_that_is_no_transcript_is_read_as_a_persona(name: str, text: str) -> None:
    assert uploaded(file(text, name)).kind == "personas"


@pytest.mark.parametrize("name", ["ghost.md", "ghost.txt", "ghost.yaml"])
def test_a_file_of_nul_bytes_is_no_persona(name: str) -> None:
    job = uploaded(file("\0" * 64, name))

    assert (job.status, job.contents.get("personas")) == ("failed", None)
    assert name in job.error


def test_a_transcript_named_txt_stays_a_transcript() -> None:
    job = uploaded(file("[2026-03-01 09:12] Pat: Hello\n[2026-03-01 09:13] Ada: No.\n", "chat.txt"))

    assert (job.kind, job.contents["format"], job.contents["new"]) == ("transcript", "chat", 2)


def test_an_edited_persona_is_kept_unless_somebody_says_otherwise() -> None:
    imported(uploaded(file(PERSONA, "guide.yaml")))
    agent = Agent.objects.get()
    agent.system_prompt = "You are somebody else."
    save_persona(agent=agent, note="by hand")
    job = uploaded(file(PERSONA, "guide.yaml"), user=Import.objects.get().created_by)
    assert job.contents["outcomes"] == {"kept_edited": 1}

    preview(job, Choices(reset=True))
    assert job.contents["outcomes"] == {"updated": 1}
    imported(job, reset=True)

    agent.refresh_from_db()
    assert agent.system_prompt.startswith("You are the harbour guide.")
    assert PersonaVersion.objects.filter(agent=agent).count() == 3


def test_one_bad_file_and_no_persona_is_imported() -> None:
    job = uploaded(file(PERSONA, "guide.yaml"), file("display_name: X\nsystem_promt: no\n", "bad.yaml"))

    assert job.status == "failed"
    assert job.error.startswith("bad.yaml")
    assert "plumbline-import" not in job.error
    assert not Agent.objects.exists()


@pytest.mark.parametrize("name", ["talk.jsonl", "README.md"])
def test_a_file_that_would_be_left_out_is_named(name: str) -> None:
    job = uploaded(file(PERSONA, "guide.yaml"), file(lines(("Pat", "Hello")), name))

    assert job.status == "failed"
    assert job.error.startswith(f"{name}: several files at once are read as personas")


def test_personas_cancelled_at_the_last_moment_are_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    job = uploaded(file(PERSONA, "guide.yaml"))
    submit(job)

    def cancelled_first(*given: Any, **more: Any) -> Any:
        cancel(Import.objects.get(pk=job.pk))
        return write_into(*given, **more)

    monkeypatch.setattr("agents.imports.jobs.write_into", cancelled_first)
    assert work()

    job.refresh_from_db()
    assert (job.status, job.result) == ("cancelled", {})
    assert not Agent.objects.exists()


@pytest.mark.parametrize("tail", ["system_prompt: *a9", "traits: *a9", "a10: &a10 [*a10]"])
def test_a_file_whose_aliases_stand_for_millions_of_values_is_refused_at_once(tail: str) -> None:
    levels = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    job = uploaded(file("\n".join(["display_name: X", *levels, tail]), "bomb.yaml"))

    assert job.status == "failed"
    assert job.error == "bomb.yaml: its aliases stand for more than 1,000,000 values; write them out"


def test_a_few_aliases_are_read() -> None:
    text = "- {slug: a, display_name: A, system_prompt: &p You are dry.}\n- {slug: b, display_name: B, system_prompt: *p}\n"

    assert uploaded(file(text, "two.yaml")).contents["outcomes"] == {"created": 2}


def test_undoing_deletes_new_agents_and_restores_changed_ones() -> None:
    user = imported(uploaded(file(PERSONA, "guide.yaml"))).created_by
    both = imported(uploaded(file(PERSONA.replace("Dry", "Wet"), "guide.yaml"), file(CARD, "card.json"), user=user))
    assert both.result["outcomes"] == {"updated": 1, "created": 1}

    undo(both)
    assert work()

    assert "Dry" in Agent.objects.get().system_prompt
    assert PersonaVersion.objects.count() == 3
