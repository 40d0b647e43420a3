"""The migrations run from nothing, on the configured kind of database. All other tests make their tables from the models."""

from __future__ import annotations

import hashlib
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.db import connection, connections
from environ import Env

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


@pytest.mark.slow
def test_all_migrations_apply_to_an_empty_database_and_give_the_models_tables(empty_database: str) -> None:
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
    assert structure(empty_database) == structure()


def test_migrations_of_a_release_stay_as_installations_ran_them() -> None:
    released = (Path(__file__).parent / "released_migrations.sha256").read_text().splitlines()
    edited = []
    for line in released:
        digest, path = line.split()
        if hashlib.sha256((settings.BASE_DIR / path).read_bytes()).hexdigest() != digest:
            edited.append(path)
    assert released
    assert edited == [], "add a migration instead"


def structure(url: str = "") -> dict[str, Any]:
    """Return the columns, indexes and constraints of each model's table, in the database at `url` or in the test's own."""
    database = connection
    if url:
        database = connections.create_connection("default")
        database.settings_dict = {**connection.settings_dict, "NAME": Env.db_url_config(url)["NAME"]}
    models = [model._meta for model in apps.get_models(include_auto_created=True) if model._meta.managed]
    # Django's own migrations give the tables that join users and groups another kind of key.
    names = {model.db_table for model in models if model.app_label != "auth"}
    tables = {}
    with database.cursor() as cursor:
        for name in sorted(names):
            columns = database.introspection.get_table_description(cursor, name)
            constraints = database.introspection.get_constraints(cursor, name)
            tables[name] = (sorted(map(str, columns)), sorted(map(str, constraints.values())))
    if url:
        database.close()
    return tables
