"""Databases with the tables of the models, for tests that start processes of their own.

Running every migration takes several times as long; `test_migrations` does that, and shows that both give the same tables.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from django.conf import settings

from tests import zygote

# In a process of its own, because the database's address is read at import. It records the migrations as applied.
TABLES = """
import django
django.setup()
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings
migrations = MigrationLoader(None).disk_migrations
with override_settings(MIGRATION_MODULES=dict.fromkeys((config.label for config in apps.get_app_configs()), None)):
    call_command("migrate", run_syncdb=True, verbosity=0, skip_checks=True)
recorder = MigrationRecorder(connection)
recorder.ensure_schema()
recorder.migration_qs.bulk_create(recorder.Migration(app=app, name=name) for app, name in migrations)
"""


def make_tables(url: str) -> None:
    """Make all tables in an empty database."""
    environment = os.environ | {"DATABASE_URL": url, "DEBUG": "1", "DJANGO_SETTINGS_MODULE": "project.settings"}
    command = [sys.executable, "-c", TABLES]
    done = zygote.run(command, env=environment, cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def migrated_in(folder: Path) -> Path:
    """Return the SQLite file in `folder`; the first of several test processes makes it."""
    file, draft = folder / "migrated.sqlite3", folder / "draft.sqlite3"
    with (folder / "migrated.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            make_tables(f"sqlite:///{draft}")
            draft.rename(file)
    return file
