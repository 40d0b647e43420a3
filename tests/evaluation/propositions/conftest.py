"""A team's folder of propositions, and an agent they are about."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django import Settings

from agents.personas.persona import TraitValue
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drafting.proposing import make_ada


@pytest.fixture
def team(propositions: PropositionFolder, settings: Settings, tmp_path: Path) -> PropositionFolder:
    folder = tmp_path / "team"
    folder.mkdir()
    settings.PROPOSITION_DIRS = [folder]
    make_ada(traits=[TraitValue("concise", strength=0.9)])
    return PropositionFolder(folder)
