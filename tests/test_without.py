"""An app can be taken out: its folder and its lines in the settings are deleted, and what is left works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.without import copy_without, run

REMOVABLE = ("agents.debates", "agents.swarm", "agents.alerts", "evaluation.experiments")


@pytest.mark.parametrize("app", REMOVABLE)
def test_the_product_works_without_an_app(app: str, tmp_path: Path) -> None:
    copy = copy_without(app, tmp_path)

    run(copy, ["manage.py", "check"])
    run(copy, ["manage.py", "makemigrations", "--check", "--dry-run"])
    run(copy, ["manage.py", "migrate", "-v0"])
    run(copy, ["manage.py", "seed"])
    run(
        copy,
        [
            "-m",
            "pytest",
            "-q",
            "-x",
            "tests/test_registry.py",
            "tests/test_console_sidebar.py",
            "tests/api/test_schema.py",
        ],
    )
