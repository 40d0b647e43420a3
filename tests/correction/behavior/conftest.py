"""What the tests of effects share: a request that was applied, and the agent it was made to."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pytest_django import Settings

from tests.correction.behavior import changed as changes
from tests.correction.behavior import measured
from tests.llm_server import LLMServer


@pytest.fixture
def changed(llm_server: LLMServer, settings: Settings, tmp_path: Path) -> changes.Changed:
    return partial(changes.changed, llm_server, settings, tmp_path / "p")


@pytest.fixture
def clerk(settings: Settings, tmp_path: Path) -> measured.Clerk:
    return partial(measured.clerk, settings, tmp_path / "p")
