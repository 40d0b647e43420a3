"""Files are kept in pieces as they came, under harmless names, and no longer than they are needed."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from pytest_django import Settings

from agents.imports import uploads
from agents.imports.jobs import NotNow, preview
from agents.imports.reading import Choices
from agents.models import Import, ImportChunk, ImportFile
from agents.ops.erasure import find_outsider, forget
from agents.registry import prunings
from tests.agents.imports.uploading import file, lines, somebody, submit, uploaded, work
from tests.factories import make_channel, say

pytestmark = pytest.mark.django_db

TALK = lines(("Ada", "No."), ("Pat", "Is the ferry late?"), ("Ada", "Twenty minutes."))


@pytest.mark.parametrize("size", [0, 1, 1024 * 1024, 2 * 1024 * 1024 + 17])
def test_files_come_out_as_they_went_in(tmp_path: Path, size: int) -> None:
    content = bytes(n % 251 for n in range(1000)) * (size // 1000 + 1)
    job = Import.objects.create(kind="transcript")
    uploads.store(job, [file(content[:size], "a.bin"), file("second", "a.bin")])

    first, second = uploads.write_into(tmp_path, job)

    assert first.read_bytes() == content[:size]
    assert second.read_text() == "second"
    assert ImportChunk.objects.filter(file__name="a.bin").count() == -(-size // (1024 * 1024)) + 1


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\talks\\chat.csv", "chat.csv"),
        ("..", "file"),
        ("a\x00b\n.json", "a_b_.json"),
        ("x" * 300 + ".jsonl", "x" * 94 + ".jsonl"),
    ],
)
def test_the_name_of_a_file_can_do_no_harm(name: str, kept: str) -> None:
    assert uploads.plain_name(name) == kept


def test_what_nobody_imports_is_dropped_after_days(settings: Settings) -> None:
    settings.IMPORT_KEEP_DAYS = 7
    old, new = uploaded(file(TALK, "old.jsonl")), uploaded(file(TALK, "new.jsonl"), user=somebody(username="nina"))
    Import.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(days=8))

    assert "1 pieces" in uploads.drop_old()

    assert not uploads.are_kept(old)
    assert uploads.are_kept(new)
    with pytest.raises(NotNow, match="not stored any more"):
        submit(old)
    assert uploads.drop_old() == ""


def test_old_imports_are_pruned_with_their_files() -> None:
    uploaded(file(TALK))
    later = timezone.now() + timedelta(days=1)
    rule = next(rule for rule in prunings() if rule.tables[0] == "imports")

    assert rule.tables == ["imports", "import_files", "import_chunks"]
    assert rule.rows(later).count() == 1


def test_a_person_who_is_forgotten_is_in_no_upload_either() -> None:
    name, text = "Marla Quint", "My boiler has leaked since the third of March."
    say(make_channel(), name, text)
    waiting = uploaded(file(lines((name, text), ("Ada", f"{name} wrote: {text}")), f"{name}.jsonl"))
    preview(waiting, Choices(agents={name: ""}))
    failed = uploaded(file(f'{{"speaker": "{name}", "text"', "b.jsonl"), user=waiting.created_by)
    done = uploaded(file(lines((name, "Short.")), "c.jsonl"), user=waiting.created_by)
    submit(done)
    assert work()

    assert list(forget(find_outsider(name)))

    kept = json.dumps([list(model.objects.values()) for model in (Import, ImportFile)], default=str)
    assert name not in kept
    assert "boiler" not in kept
    assert not ImportChunk.objects.exists()
    with pytest.raises(NotNow, match="not stored any more"):
        submit(waiting)
    failed.refresh_from_db()
    assert failed.status == "failed"
    assert list(forget(find_outsider(name), dry_run=True))
    assert not [found for found in forget(find_outsider(name), dry_run=True) if found.keys]
