"""A short ``make chaos``: everything that may fail does so once, under a load of all kinds of work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import installed


@pytest.mark.slow
@pytest.mark.service
def test_failing_workers_broker_database_and_model_lose_double_or_invent_nothing(tmp_path: Path) -> None:
    with installed(tmp_path, seed=1) as chaos:
        broken = chaos.play(seconds=5, say=print)

        assert not broken
        assert min(chaos.done.values()) >= 1
