"""An SQLite file with every migration applied, for tests that start processes of their own."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from django.conf import settings


def migrated_in(folder: Path) -> Path:
    """The file in `folder`, made by whoever comes first, also of several test processes."""
    file, draft = folder / "migrated.sqlite3", folder / "draft.sqlite3"
    with (folder / "migrated.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            environment = os.environ | {
                "DATABASE_URL": f"sqlite:///{draft}",
                "DJANGO_SETTINGS_MODULE": "project.settings",
            }
            command = [sys.executable, "manage.py", "migrate", "-v0"]
            subprocess.run(command, env=environment, cwd=settings.BASE_DIR, check=True, timeout=300)
            draft.rename(file)
    return file
