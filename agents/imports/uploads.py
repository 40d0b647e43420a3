"""The files of imports: stored in pieces, written into a folder, deleted when they are no longer needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from django.conf import settings
from django.core.files import File
from django.core.files.uploadhandler import FileUploadHandler, StopUpload
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from agents.models import Import, ImportChunk, ImportFile

MOST_OF_STRANGERS = 5  # files of a form of a user who is not signed in, or who has a token: that is known later
_MARK = "plumbline.files_too_large"


class LimitedUploads(FileUploadHandler):
    """Runs before Django's own handlers: stops reading when the files of a form exceed `IMPORT_MOST_BYTES` together."""

    def __init__(self, request: HttpRequest | None = None) -> None:
        super().__init__(request)
        self._bytes, self._files = 0, 0

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        """A form is read before its sender is known: few files of a stranger are read, for each holds a file open."""
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
    """Whether the files of this form were not stored because of their size."""
    return bool(request.META.get(_MARK))


CHUNK = 1024 * 1024
DROPPED_AT_ONCE = 50  # pieces
NAME_LIMIT = 100
_ENDING = re.compile(r"\.[a-z0-9]{1,10}")
_ODD = re.compile(r"[^\w .()+,@-]")


class NotKept(Exception):
    """The content of a file is gone. Names it."""


def store(job: Import, uploads: Sequence[File[bytes]]) -> None:
    """Store files in pieces of 1 MiB, whatever the pieces in which they come; inside the caller's transaction."""
    for upload in uploads:
        file = ImportFile.objects.create(of=job, name=plain_name(upload.name or ""), size=0)
        size = 0
        upload.seek(0)
        while piece := upload.read(CHUNK):
            ImportChunk.objects.create(file=file, number=size // CHUNK, content=piece)
            size += len(piece)
        ImportFile.objects.filter(pk=file.pk).update(size=size)


def plain_name(name: str) -> str:
    """The name of a file without its folder and without what could do harm in one; its ending stays."""
    base = _ODD.sub("_", PurePosixPath(name.replace("\\", "/")).name).strip(" .") or "file"
    path = PurePosixPath(base)
    return base if len(base) <= NAME_LIMIT else path.stem[: NAME_LIMIT - len(path.suffix[:10])] + path.suffix[:10]


def write_into(
    folder: Path, job: Import, *, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> dict[Path, str]:
    """Write the files of an import into a folder under names of our own, in order; returns the given name of each path.

    Raises:
        NotKept: Their content is gone.
    """
    files = list(job.files.all())
    total, done = sum(file.size for file in files), 0
    paths: dict[Path, str] = {}
    for number, file in enumerate(files):
        ending = PurePosixPath(file.name).suffix.lower()
        path = folder / f"{number + 1:04}{ending if _ENDING.fullmatch(ending) else ''}"
        written = 0
        with path.open("wb") as out:
            pieces = ImportChunk.objects.filter(file=file).order_by("number").values_list("content", flat=True)
            for content in pieces.iterator(chunk_size=4):
                written += out.write(content)
                progress(done + written, total)
        if written != file.size:
            raise NotKept(f"{file.name} is not stored any more: upload it again")
        done += written
        paths[path] = file.name
    return paths


def stems_of(paths: Mapping[Path, str]) -> dict[Path, str]:
    """By file, its given name without the ending, of which names of agents and channels are made."""
    return {path: Path(name).stem for path, name in paths.items()}


def are_kept(job: Import) -> bool:
    """Whether the files' content is still there."""
    return ImportChunk.objects.filter(file__of=job).exists()


def drop(job: Import) -> None:
    """Delete the content of an import's files; their names and sizes stay."""
    _drop(ImportChunk.objects.filter(file__of=job))


def drop_old() -> str:
    """Delete what was not imported within `IMPORT_KEEP_DAYS`; a chore. Returns a sentence when there was any."""
    before = timezone.now() - timedelta(days=settings.IMPORT_KEEP_DAYS)
    old = Q(file__of__created_at__lt=before) & ~Q(file__of__status__in=Import.OPEN)
    dropped = _drop(ImportChunk.objects.filter(old))
    return f"{dropped} pieces of files dropped that were not imported" if dropped else ""


def _drop(pieces: QuerySet[ImportChunk]) -> int:
    dropped = 0
    while chosen := list(pieces.values_list("pk", flat=True)[:DROPPED_AT_ONCE]):
        dropped += ImportChunk.objects.filter(pk__in=chosen).delete()[0]
    return dropped
