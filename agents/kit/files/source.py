"""The file a reader reads: decoded text by lines, from the start each time, or as a whole."""

from __future__ import annotations

import codecs
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

MAX_LINE = 16 * 1024 * 1024
"""Longest line accepted, in bytes."""

MAX_MESSAGE = MAX_LINE
"""Longest message put together from lines, in characters: a log that is none must not fill the memory."""

MAX_MEMBER = 256 * 1024 * 1024
"""Largest file inside a zip that is read, in bytes: it is held in memory."""

MAX_ARCHIVE = 1024 * 1024 * 1024
"""Most that all files of a zip may take unpacked, in bytes."""

MOST_PACKED = 200
"""How many times its size a zip of more than 16 MiB unpacked may unpack to; exports of chats come to some 30 times."""


class FileError(Exception):
    """A file that cannot be read as what it should be.

    Attributes:
        line: 0 = the file.
        problem: Where and why, without the advice which option of a command may help.
    """

    def __init__(self, path: str, line: int, reason: str, *, advice: str = "") -> None:
        self.path, self.line, self.reason = path, line, reason
        self.problem = f"{path}, line {line}: {reason}" if line else f"{path}: {reason}"
        super().__init__(f"{self.problem}; {advice}" if advice else self.problem)


WINDOWS = "cp1252"  # what Excel on Windows saves CSV in, in Western Europe and America


def _can_be(raw: bytes, encoding: str) -> bool:
    """Return whether these bytes are a text in an encoding."""
    try:
        raw.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


class Source:
    """A text file in UTF-8, with or without BOM."""

    def __init__(self, path: Path, *, name: str = "", dates: str = "", accepts_windows: bool = False) -> None:
        """Open nothing yet, only look at the first bytes.

        Args:
            path: The file.
            name: What it is called in errors; default its path.
            dates: ``day-first`` or ``month-first`` for dates such as 01/02/2026; empty: as the file suggests.
            accepts_windows: Whether a file named as a table (``.csv``, ``.tsv``) may be `WINDOWS`; its reader says so (`windows_line`).

        Raises:
            FileError: No regular, readable file is there.
        """
        self.path = path
        self.name = name or str(path)
        self.dates = dates
        self.stem = Path(self.name).stem
        self._accepts_windows = accepts_windows and Path(self.name).suffix.lower() in (".csv", ".tsv")
        self.bytes_read = 0
        try:
            if not path.is_file():
                raise FileError(self.name, 0, "is a folder, not a file" if path.is_dir() else "no such file")
            self.state = self._state()
            with path.open("rb") as file:
                head = file.read(4)
        except OSError as error:
            raise FileError(self.name, 0, error.strerror or str(error)) from None
        self.size = self.state[0]
        self.start = head
        self.is_zip = head == b"PK\x03\x04"
        self._bom = 3 if head.startswith(codecs.BOM_UTF8) else 0

    def _state(self) -> tuple[int, int]:
        stat = self.path.stat()
        return stat.st_size, stat.st_mtime_ns

    def check_unchanged(self) -> None:
        """Raise when the file was written to since this object was made: what was checked must be what is imported."""
        if self._state() != self.state:
            raise FileError(
                self.name, 0, "the file changed while it was being read; import it again when it is complete"
            )

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (line number from 1, text without its newline). Only "\\n", or "\\r\\n", ends a line."""
        for number, text in self.raw_lines():
            yield number, text.removesuffix("\n").removesuffix("\r")

    def raw_lines(self) -> Iterator[tuple[int, str]]:
        """Yield (line number from 1, text with its newline), from the start of the file each time.

        Raises:
            FileError: A line is longer than MAX_LINE, or not UTF-8 (nor `WINDOWS`, where that is accepted); after the lines before it.
        """
        self.bytes_read = self._bom
        with self.path.open("rb") as file:
            file.seek(self._bom)
            number = 0
            while raw := file.readline(MAX_LINE + 1):
                number += 1
                self.bytes_read += len(raw)
                if len(raw) > MAX_LINE:
                    raise FileError(self.name, number, f"longer than {MAX_LINE:,} bytes")
                yield number, self._decoded(raw, number)

    def _decoded(self, raw: bytes, number: int) -> str:
        """Return the text of a line.

        Raises:
            FileError: It is not UTF-8, nor `WINDOWS` where that is accepted.
        """
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            if self.windows_line is None:
                where = f"byte 0x{raw[error.start]:02x} at column {error.start + 1}"
                raise FileError(self.name, number, f"not valid UTF-8 ({where}); save the file as UTF-8") from None
        return raw.decode(WINDOWS)

    @cached_property
    def windows_line(self) -> tuple[int, str] | None:
        """Return number and text of the first line that says that the file is `WINDOWS`; None where it is UTF-8, or refused.

        A line in UTF-8 that is not ASCII says that it is a broken file in UTF-8 instead, and a NUL byte that it is UTF-16.
        """
        if not self._accepts_windows or self._bom:
            return None
        first = None
        number = 0
        with self.path.open("rb") as file:
            while raw := file.readline(MAX_LINE):
                number += 1
                if b"\x00" in raw:
                    return None
                if raw.isascii():
                    continue
                if _can_be(raw, "utf-8") or not _can_be(raw, WINDOWS):
                    return None
                first = first or (number, raw.decode(WINDOWS))
        return first

    def members(self) -> list[str]:
        """Return the names of the files in a zip.

        Raises:
            FileError: It is damaged, or too large when it is unpacked.
        """
        with self._zip() as archive:
            files = [info for info in archive.infolist() if not info.is_dir()]
        size = sum(info.file_size for info in files)
        most = min(MAX_ARCHIVE, max(MAX_LINE, MOST_PACKED * self.size))
        if size > most:
            raise FileError(self.name, 0, f"{size:,} bytes when it is unpacked; allowed for its size: {most:,}")
        return [info.filename for info in files]

    def member(self, name: str) -> str:
        """Return the text of a file in a zip.

        Raises:
            FileError: It is damaged, encrypted, too large, or not UTF-8.
        """
        path = f"{self.name}, {name}"
        with self._zip() as archive:
            try:
                with archive.open(name) as file:
                    content = file.read(MAX_MEMBER + 1)
                    text = content.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise FileError(path, 0, f"not valid UTF-8 ({error.reason})") from None
            except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, RuntimeError, OSError) as error:
                raise FileError(path, 0, f"cannot be read from the zip ({error})") from None
        if len(content) > MAX_MEMBER:
            raise FileError(path, 0, f"larger than {MAX_MEMBER:,} bytes")
        return text

    @contextmanager
    def _zip(self) -> Iterator[zipfile.ZipFile]:
        """Open the file as a zip; its own errors, also those inside the block, become a FileError of the file."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                yield archive
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
            raise FileError(self.name, 0, f"not a zip that can be read ({error})") from None

    def check_message(self, line: int, size: int) -> None:
        """Raise when the message that begins on this line has more than `MAX_MESSAGE` characters."""
        if size > MAX_MESSAGE:
            raise FileError(self.name, line, f"a message of more than {MAX_MESSAGE:,} characters")

    def head(self, characters: int = 64 * 1024) -> str:
        """Return the first characters of the file, newlines as they are; all of it where it is shorter.

        Raises:
            FileError: They are not UTF-8; names the line.
        """
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                text = file.read(characters)
        except UnicodeError as error:
            if self.windows_line is None:
                for _ in self.raw_lines():  # finds the line that is not UTF-8, and raises
                    pass
                raise FileError(self.name, 0, f"not valid UTF-8 ({error})") from None
            with self.path.open(encoding=WINDOWS, newline="") as file:
                text = file.read(characters)
        if len(text) < characters:
            self.bytes_read = self.size
        return text
