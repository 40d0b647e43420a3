"""Personas that are handed in are recognised, shown with what they would change, and imported all or none."""

from __future__ import annotations

from typing import Any

import pytest

from agents.imports.choices import Choices, choices_of
from agents.imports.control import agree, cancel, check_again
from agents.models import Agent, Import, PersonaVersion
from agents.persona import save_persona
from tests.agents.imports.handing_in import PERSONA, file, handed_in, lines, work

pytestmark = pytest.mark.django_db

CARD = '{"spec": "chara_card_v2", "data": {"name": "Wraith", "description": "Speaks of weather."}}'


def test_several_files_are_personas_and_are_imported_together() -> None:
    job = handed_in(
        file(PERSONA, "guide.yaml"), file("# The Ghost\nYou are a ghost.", "ghost.md"), file(CARD, "card.json")
    )

    assert job.kind == "personas"
    assert job.found["outcomes"] == {"created": 3}
    assert {p["slug"] for p in job.found["personas"]} == {"guide", "ghost", "wraith"}
    assert not Agent.objects.exists()


def test_personas_become_agents_with_a_version() -> None:
    job = handed_in(file(PERSONA, "guide.yaml"), file("# The Ghost\nYou are a ghost.", "ghost.md"))
    agree(job)
    assert work()

    job.refresh_from_db()
    assert (job.is_done, job.stored, job.result["outcomes"]) == (True, 2, {"created": 2})
    assert set(PersonaVersion.objects.values_list("agent__slug", "note")) == {("guide", "import"), ("ghost", "import")}


@pytest.mark.parametrize(("name", "text"), [("one.json", CARD), ("prompt.txt", "You are a ghost.\nSpeak softly.\n")])
def test_a_single_file_that_is_no_transcript_is_read_as_a_persona(name: str, text: str) -> None:
    assert handed_in(file(text, name)).kind == "personas"


@pytest.mark.parametrize("name", ["ghost.md", "ghost.txt", "ghost.yaml"])
def test_a_file_of_nul_bytes_is_no_persona(name: str) -> None:
    job = handed_in(file("\0" * 64, name))

    assert (job.is_done, job.found.get("personas")) == (False, None)
    assert name in job.error


def test_a_transcript_named_txt_stays_a_transcript() -> None:
    job = handed_in(file("[2026-03-01 09:12] Pat: Hello\n[2026-03-01 09:13] Ada: No.\n", "chat.txt"))

    assert (job.kind, job.found["format"], job.found["imported"]) == ("transcript", "chat", 2)


def test_an_edited_persona_is_kept_unless_somebody_says_otherwise() -> None:
    agree(handed_in(file(PERSONA, "guide.yaml")))
    assert work()
    agent = Agent.objects.get()
    agent.system_prompt = "You are somebody else."
    save_persona(agent=agent, note="by hand")
    job = handed_in(file(PERSONA, "guide.yaml"), user=Import.objects.get().created_by)
    assert job.found["outcomes"] == {"kept_edited": 1}

    check_again(job, Choices(reset=True))
    assert job.found["outcomes"] == {"updated": 1}
    agree(job)
    assert work()

    agent.refresh_from_db()
    assert agent.system_prompt.startswith("You are the harbour guide.")
    assert PersonaVersion.objects.filter(agent=agent).count() == 3


def test_one_bad_file_and_no_persona_is_imported() -> None:
    job = handed_in(file(PERSONA, "guide.yaml"), file("display_name: X\nsystem_promt: no\n", "bad.yaml"))

    assert job.status == "failed"
    assert job.error.startswith("bad.yaml")
    assert "plumbline-import" not in job.error
    assert not Agent.objects.exists()


@pytest.mark.parametrize("name", ["talk.jsonl", "README.md"])
def test_a_file_that_would_be_left_out_is_named(name: str) -> None:
    job = handed_in(file(PERSONA, "guide.yaml"), file(lines(("Pat", "Hello")), name))

    assert job.status == "failed"
    assert job.error.startswith(f"{name}: several files at once are read as personas")


def test_personas_cancelled_at_the_last_moment_are_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    job = handed_in(file(PERSONA, "guide.yaml"))
    agree(job)

    def cancelled_first(stored: dict[str, Any]) -> Choices:
        cancel(Import.objects.get(pk=job.pk))
        return choices_of(stored)

    monkeypatch.setattr("agents.imports.work.choices_of", cancelled_first)
    assert work()

    job.refresh_from_db()
    assert (job.status, job.result) == ("cancelled", {})
    assert not Agent.objects.exists()


@pytest.mark.parametrize("tail", ["system_prompt: *a9", "traits: *a9", "a10: &a10 [*a10]"])
def test_a_file_whose_aliases_stand_for_millions_of_values_is_refused_at_once(tail: str) -> None:
    levels = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    job = handed_in(file("\n".join(["display_name: X", *levels, tail]), "bomb.yaml"))

    assert job.status == "failed"
    assert job.error == "bomb.yaml: its aliases stand for more than 1,000,000 values; write them out"


def test_a_few_aliases_are_read() -> None:
    text = "- {slug: a, display_name: A, system_prompt: &p You are dry.}\n- {slug: b, display_name: B, system_prompt: *p}\n"

    assert handed_in(file(text, "two.yaml")).found["outcomes"] == {"created": 2}
