"""What the tests of the evaluation floor share: a folder of propositions, and answers of a judge."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from pytest_django import Settings

from agents.models import Agent
from tests.factories import speaking


@pytest.fixture(autouse=True)
def _no_waiting(settings: Settings) -> None:
    """The SDK's retries wait half a second and more."""
    settings.LLM_EVALUATION_RETRIES = 0


class PropositionFolder:
    """A folder that settings name instead of the shipped one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, text: str) -> Path:
        """Write a file, e.g. ``adherence/_default.yaml``, and return its path."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
        return path

    def claims(self, name: str, *ids: str, extra: str = "") -> Path:
        """A file of plain claims, each with the fields of `extra` (a YAML flow mapping's inside)."""
        rows = "\n".join(
            f"  - {{id: {i}, claim: 'claim {i} of {{{{agent_name}}}}'{extra and ', ' + extra}}}" for i in ids
        )
        return self.write(name, f"dimension: {Path(name).parent.name}\npropositions:\n{rows}\n")


@pytest.fixture
def propositions(settings: Settings, tmp_path: Path) -> PropositionFolder:
    """An empty folder of propositions; nothing that is shipped is read."""
    folder = tmp_path / "propositions"
    folder.mkdir()
    settings.PROPOSITIONS_DIR, settings.PROPOSITION_DIRS = folder, []
    return PropositionFolder(folder)


@pytest.fixture
def ada(propositions: PropositionFolder) -> Agent:
    """An agent with three messages and two propositions."""
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    agent = speaking("ada", ["No.", "Never.", "Why?"])
    return agent


@pytest.fixture
def chatty(propositions: PropositionFolder) -> Agent:
    """An agent with thirty messages and one proposition: thirty calls."""
    propositions.claims("adherence/_default.yaml", "voice")
    agent = speaking("chatty", [f"line {n}" for n in range(30)])
    return agent


@pytest.fixture
def one_claim(propositions: PropositionFolder) -> PropositionFolder:
    """One claim of self-consistency, judged without the persona."""
    propositions.claims("consistency/_default.yaml", "same", extra="include_personas: false")
    return propositions
