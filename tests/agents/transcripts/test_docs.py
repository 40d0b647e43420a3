"""The examples of the pages of transcripts and personas in docs/reference work, and nothing is left out."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from pathlib import Path

import pytest
from django.conf import settings

from agents.management.commands import export_transcript, import_agents, import_transcript
from agents.transcripts.exporter import EXPORTS
from agents.transcripts.readers import FORMATS
from tests.agents.transcripts.helpers import make_agent, run_json, write

REFERENCE = settings.BASE_DIR / "docs" / "reference"
PERSONAS = (REFERENCE / "personas.md").read_text()
TRANSCRIPTS = "\n".join(page.read_text() for page in sorted(REFERENCE.glob("transcript*.md")))
SECTIONS = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^#)", f"{TRANSCRIPTS}\n#", re.MULTILINE | re.DOTALL))
BY_ROLE = {"openai", "sharegpt", "hh", "chatgpt", "langfuse", "langsmith", "tau2", "scenario"}
EXAMPLES = [
    (name, text) for name, section in SECTIONS.items() for text in re.findall(r"```\w+\n(.*?)```", section, re.DOTALL)
]


def test_every_format_has_a_section_with_an_example() -> None:
    assert sorted(SECTIONS) == sorted(FORMATS)
    assert {name for name, _ in EXAMPLES} == set(FORMATS)
    assert all(f"`{name}`" in TRANSCRIPTS for name in EXPORTS)


@pytest.mark.django_db
@pytest.mark.parametrize(("name", "text"), EXAMPLES)
def test_examples_are_recognised_and_their_agent_is_found(tmp_path: Path, name: str, text: str) -> None:
    make_agent("harbour-guide", "Harbour Guide")
    options = {"map": ["assistant=harbour-guide"]} if name in BY_ROLE else {}
    report = run_json("import_transcript", write(tmp_path, "example", text), **options)
    assert (report["format"], report["imported"]) == (name, 2)
    assert "harbour-guide" in {entry["agent"] for entry in report["speakers"].values()}


@pytest.mark.django_db
def test_the_persona_example_is_a_persona(tmp_path: Path) -> None:
    yaml = re.findall(r"```yaml\n(.*?)```", PERSONAS, re.DOTALL)[-1]
    assert run_json("import_agents", write(tmp_path, "guide.yaml", yaml))["created"] == 1


@pytest.mark.parametrize("command", [import_agents, import_transcript, export_transcript])
def test_every_option_is_on_a_page(command: object) -> None:
    parser = ArgumentParser()
    command.Command().add_arguments(parser)  # type: ignore[attr-defined]
    options = {option for action in parser._actions for option in action.option_strings} - {"-h", "--help"}
    assert [option for option in sorted(options) if option not in PERSONAS + TRANSCRIPTS] == []
