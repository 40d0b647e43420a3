"""The files of imports: stored in pieces, written out for reading, deleted when they are no longer needed."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from django.conf import settings
from django.core.files import File
from django.core.files.uploadhandler import FileUploadHandler, StopUpload
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from agents.models import Import, ImportChunk

MOST_OF_STRANGERS = 5  # files of a form of a user who is not signed in, or who has a token: that is known later
CHUNK = 1024 * 1024
DROPPED_AT_ONCE = 50  # pieces
NAME_LIMIT = 100
_MARK = "plumbline.files_too_large"
_ODD = re.compile(r"[^\w .()+,@-]")


class LimitedUploads(FileUploadHandler):
    """Runs before Django's own handlers: stops reading when the files of a form exceed `IMPORT_MOST_BYTES` together."""

    def __init__(self, request: HttpRequest | None = None) -> None:
        super().__init__(request)
        self._bytes = 0
        self._files = 0

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        """Begin a file. A form is read before its sender is known: few files of a stranger are read, for each holds a file open."""
        super().new_file(*args, **kwargs)
        self._files += 1
        user = getattr(self.request, "user", None)
        if self._files > MOST_OF_STRANGERS and not (user is not None and user.is_authenticated):
            raise StopUpload(connection_reset=False)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        self._bytes += len(raw_data)
        if self._bytes > settings.IMPORT_MOST_BYTES:
            if self.request is not None:
                self.request.META[_MARK] = True
            raise StopUpload(connection_reset=False)
        return raw_data

    def file_complete(self, file_size: int) -> Any:
        return None


def files_were_too_large(request: HttpRequest) -> bool:
    """Return whether the files of this form were not stored because of their size."""
    return bool(request.META.get(_MARK))


def plain_name(name: str) -> str:
    """Return the name of a file without its folder and without what could do harm in one; its ending stays."""
    without_folder = PurePosixPath(name.replace("\\", "/")).name
    plain = _ODD.sub("_", without_folder).strip(" .") or "file"
    if len(plain) <= NAME_LIMIT:
        return plain
    path = PurePosixPath(plain)
    ending = path.suffix[:10]
    return path.stem[: NAME_LIMIT - len(ending)] + ending


def store(job: Import, upload: File[bytes]) -> None:
    """Store a file in pieces of 1 MiB, whatever the pieces in which it comes; inside the caller's transaction."""
    upload.seek(0)
    number = 0
    while piece := upload.read(CHUNK):
        ImportChunk.objects.create(of=job, number=number, content=piece)
        number += 1


def write_out(job: Import, path: Path) -> Path | None:
    """Write the file of an import to a path; None when its content is gone."""
    written = 0
    with path.open("wb") as out:
        pieces = ImportChunk.objects.filter(of=job).order_by("number").values_list("content", flat=True)
        for content in pieces.iterator(chunk_size=4):
            written += out.write(content)
    return path if written == job.size else None


def is_stored(job: Import) -> bool:
    """Return whether the file's content is still there."""
    return ImportChunk.objects.filter(of=job).exists()


def drop(job: Import) -> None:
    """Delete the content of an import's file; its name and size stay."""
    _drop(ImportChunk.objects.filter(of=job))


def drop_old() -> str:
    """Delete what was not imported within `IMPORT_KEEP_DAYS`; a chore. Returns a sentence when there was any."""
    before = timezone.now() - timedelta(days=settings.IMPORT_KEEP_DAYS)
    dropped = _drop(ImportChunk.objects.filter(Q(of__created_at__lt=before) & ~Q(of__status__in=Import.OPEN)))
    return f"{dropped} pieces of files dropped that were not imported" if dropped else ""


def _drop(pieces: QuerySet[ImportChunk]) -> int:
    """Delete pieces in batches, so that each statement is short; return how many there were."""
    dropped = 0
    while chosen := list(pieces.values_list("pk", flat=True)[:DROPPED_AT_ONCE]):
        dropped += ImportChunk.objects.filter(pk__in=chosen).delete()[0]
    return dropped
