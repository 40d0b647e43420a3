"""The invariants of `tests.chaos`, after half a minute of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import installed

pytestmark = pytest.mark.service


def test_nothing_is_lost_said_twice_or_made_up_while_everything_fails(tmp_path: Path) -> None:
    with installed(tmp_path, seed=1) as chaos:
        assert chaos.play(25, print) == {}
        assert chaos.done["waves of work"] > 1
