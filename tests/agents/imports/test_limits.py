"""What may be handed in: how much, by whom, and what a file can cost."""

from __future__ import annotations

import re

import pytest
from pytest_django import Settings

from agents.admin.personas import AgentForm
from agents.imports import uploads
from agents.imports.jobs import MOST_UNFINISHED, NotNow, discard
from agents.models import Agent, Import, PersonaVersion
from tests.agents.imports.uploading import ADD, PERSONA, file, imported, lines, somebody, submit, uploaded, work
from tests.console import signed_in

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
    job = uploaded(file(text, "bomb.yaml"))
    if len(text) > 64 * 1024:
        assert job.contents["unread"]
        imported(job)

    assert job.status == "failed"
    assert re.match(f"bomb.yaml: .*{reason}", job.error)


def test_personas_need_the_permissions_that_an_agents_page_needs_for_its_parts() -> None:
    assert "agents.add_memoryblock, agents.add_trait" in uploaded(file(PARTS, "guide.yaml")).error
    adder = somebody("agents.add_trait", "agents.add_memoryblock", username="adder")
    job = uploaded(file(PARTS, "guide.yaml"), user=adder)
    assert job.contents["outcomes"] == {"created": 1}
    assert PersonaVersion.objects.count() == 0
    imported(job)
    assert PersonaVersion.objects.get().created_by == adder
    changed = PARTS.replace("dry}", "wet}")

    assert "agents.delete_trait" in uploaded(file(changed, "guide.yaml"), user=adder).error
    assert list(Agent.objects.get().traits.values_list("name", flat=True)) == ["dry"]
    entitled = somebody(*ALL, username="entitled")
    assert uploaded(file(changed, "guide.yaml"), user=entitled).contents["outcomes"] == {"updated": 1}


def test_a_permission_taken_away_after_the_check_stops_the_import() -> None:
    adder = somebody("agents.add_trait", "agents.add_memoryblock", username="adder")
    job = uploaded(file(PARTS, "guide.yaml"), user=adder)
    submit(job)
    adder.user_permissions.clear()
    adder.groups.clear()
    assert work()

    job.refresh_from_db()
    assert job.status == "failed"
    assert not Agent.objects.exists()


def test_who_has_ten_unfinished_imports_is_told_what_to_discard() -> None:
    user = somebody()
    jobs = [uploaded(file(lines(("Pat", "Hello"))), user=user) for _ in range(MOST_UNFINISHED)]

    answer = signed_in(user).post(ADD, {"files": [file(lines(("Pat", "Hello")))]})

    assert f"discard some first, e.g. import {jobs[0].pk}" in answer.content.decode()
    assert Import.objects.count() == MOST_UNFINISHED
    discard(jobs[0])
    assert uploaded(file(lines(("Pat", "Hello"))), user=user).status == "waiting"


def test_who_keeps_too_many_bytes_is_told_what_to_discard(settings: Settings) -> None:
    user = somebody()
    uploaded(file(lines(("Pat", "Hello" * 20))), user=user)
    settings.IMPORT_MOST_BYTES = 10

    with pytest.raises(NotNow, match="of at most 50: import or discard some first"):
        uploaded(file("x"), user=user)
    assert uploaded(file("x"), user=somebody(username="other"))


def test_files_lie_under_names_of_our_own_and_are_called_by_the_given_ones(tmp_path: object) -> None:
    long = "漢" * 90 + ".yaml"
    job = uploaded(file(PERSONA, long), file("You are a ghost.", "The Ghost.md"))
    assert {p["slug"] for p in job.contents["personas"]} == {"guide", "the-ghost"}
    assert [path.name for path in uploads.write_into(tmp_path, job)] == ["0001.yaml", "0002.md"]  # type: ignore[arg-type]

    wrong = uploaded(file("display_name: X\n", long), user=job.created_by)
    assert wrong.error.startswith(f"{long}")


def test_no_agent_has_the_id_that_stands_for_everybody() -> None:
    reason = "an agent's id cannot begin with an underscore"
    assert reason in uploaded(file(PERSONA.replace("guide", "_default", 1), "a.yaml")).error
    form = AgentForm({"slug": "_default", "display_name": "X", "system_prompt": "X", "max_turns": 5})
    assert reason in form.errors["slug"][0]
