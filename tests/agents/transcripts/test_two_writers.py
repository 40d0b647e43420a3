"""Two processes that import into the same channel at the same time."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from django.conf import settings

from tests import zygote
from tests.agents.transcripts.helpers import write

SCRIPT = """
import sys, django; django.setup()
from pathlib import Path
from agents.transcripts import importer
importer.BATCH = 20
print("ready", flush=True); sys.stdin.readline()
report = importer.import_transcript(Path(sys.argv[1]), importer.ReadOptions(channel="shared"))
print(report.imported, report.duplicates)
"""


def python(code: str, environment: dict[str, str], *args: Path) -> subprocess.Popen[str]:
    return zygote.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        env=environment, cwd=settings.BASE_DIR, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_positions_are_taken_once_and_shared_messages_stored_once(tmp_path: Path, database_file: Path) -> None:
    environment = os.environ | {
        "DATABASE_URL": f"sqlite:///{database_file}",
        "DJANGO_SETTINGS_MODULE": "project.settings",
    }
    shared = [{"id": f"s{n}", "speaker": "A", "text": f"shared {n}"} for n in range(200)]
    files = []
    for who in ("x", "y"):
        own = [{"id": f"{who}{n}", "speaker": who, "text": f"own {n}"} for n in range(200)]
        rows = [row for pair in zip(own, shared, strict=True) for row in pair]
        files.append(write(tmp_path, f"{who}.jsonl", "\n".join(map(json.dumps, rows))))
    writers = [python(SCRIPT, environment, file) for file in files]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    results = []
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        out, _ = writer.communicate(timeout=60)
        assert writer.returncode == 0
        results.append(tuple(map(int, out.split())))
    assert sum(imported for imported, _ in results) == 600
    assert sum(duplicates for _, duplicates in results) == 200
    with closing(sqlite3.connect(database_file)) as database:
        positions = [position for (position,) in database.execute("SELECT position FROM messages ORDER BY position")]
        assert positions == list(range(1, 601))
        assert database.execute("SELECT slug, next_position FROM channels").fetchall() == [("shared", 601)]
