"""The migrations run from nothing, on the configured kind of database. All other tests make their tables from the models."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

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
    for words in (["migrate", "-v0"], ["migrate", "--check"], ["makemigrations", "--check", "--dry-run"]):
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            env=environment,
            cwd=settings.BASE_DIR,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_messages_that_are_there_get_their_place_in_time(empty_database: str) -> None:
    script = """
import django; django.setup()
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
executor = MigrationExecutor(connection)
executor.migrate([("agents", "0003_swarms")])
apps = executor.loader.project_state([("agents", "0003_swarms")]).apps
channel = apps.get_model("agents", "Channel").objects.create(slug="c", name="c")
for position, sent_at in enumerate(("2024-01-02T12:00:00Z", None), start=1):
    fields = {"outsider": "x", "external_id": str(position), "sent_at": sent_at}
    apps.get_model("agents", "Message").objects.create(channel=channel, position=position, **fields)
executor = MigrationExecutor(connection)
executor.migrate(executor.loader.graph.leaf_nodes())
from agents.models import Message
one, two = Message.objects.order_by("position")
assert one.said_at == one.sent_at and two.said_at == two.created_at, (one.said_at, two.said_at)
"""
    environment = os.environ | {"DATABASE_URL": empty_database, "DJANGO_SETTINGS_MODULE": "project.settings"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
