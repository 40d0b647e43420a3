"""The migrations run from nothing, on the configured kind of database. All other tests make their tables from the models."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from tests import zygote

pytestmark = [pytest.mark.databases_differ, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def empty_database(transactional_db: None, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without tables."""
    if connection.vendor == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.sqlite3'}"
        return
    name = f"empty_{uuid.uuid4().hex}"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    server = connection.settings_dict
    user = server["USER"] + (f":{server['PASSWORD']}" if server["PASSWORD"] else "")
    yield f"postgres://{user}@{server['HOST']}:{server['PORT']}/{name}"
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_every_migration_applies_to_an_empty_database_and_gives_the_tables_of_the_models(empty_database: str) -> None:
    environment = os.environ | {"DATABASE_URL": empty_database}
    for words in (["migrate", "-v0"], ["makemigrations", "--check", "--dry-run"]):
        done = zygote.run(
            [sys.executable, "manage.py", *words],
            env=environment,
            cwd=settings.BASE_DIR,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
