"""Changing a file that others may be changing, too: nothing is written over what was not read, and nobody reads half a file."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

STALE_AFTER = 30.0  # seconds after which a half-written file is a dead process's


class CannotWrite(Exception):
    """Why a file was not written, for people. The file is as it was."""


def read_bytes(path: Path) -> bytes | None:
    """What stands in a file; None when there is none.

    Raises:
        CannotWrite: It cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotWrite(f"{path} cannot be read: {error.strerror or error}") from None


def replace_file(path: Path, content: bytes, *, expected: bytes | None) -> None:
    """Put `content` in the place of `expected` in one step; other processes that do the same wait their turn.

    Args:
        path: The file; a link is followed. Missing folders are made.
        content: What it shall hold.
        expected: What it held when it was read; None = there was no such file.

    Raises:
        CannotWrite: The file changed since it was read, somebody is writing it, or the folder cannot be written to.
    """
    path = path.resolve()
    draft = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _exclusive(draft)
    except FileExistsError:
        raise CannotWrite(f"{path} is being written by somebody else just now; try again") from None
    except OSError as error:
        raise CannotWrite(f"{path.parent} cannot be written to: {error.strerror or error}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            if read_bytes(path) != expected:
                raise CannotWrite(f"{path} was changed meanwhile by somebody else; look at it again")
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if expected is not None:
            draft.chmod(path.stat().st_mode & 0o777)
        draft.replace(path)  # from here on a file of that name is somebody else's
    except BaseException as error:
        with suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError):
            raise CannotWrite(f"{path} cannot be written: {error.strerror or error}") from None
        raise


def _exclusive(draft: Path) -> int:
    """The half-written file, opened so that no other process can have it open: it is the lock as well."""
    try:
        return os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileExistsError:
        with suppress(FileNotFoundError):
            if time.time() - draft.stat().st_mtime < STALE_AFTER:
                raise
            draft.unlink()
        return os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
