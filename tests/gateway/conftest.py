"""One gateway for all tests of a module that leave it alive: it takes half a minute to start."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.proxy import litellm_python
from tests.gateway.stack import Gateway


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[Gateway]:
    litellm_python()
    folder = tmp_path_factory.mktemp("gateway")
    database = shutil.copy(migrated_file, folder / "db.sqlite3")
    with Gateway(folder, f"sqlite:///{database}") as running:
        yield running
