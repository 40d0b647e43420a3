"""Why files cannot be imported, in sentences for whoever handed them in: the file by its own name, the line and its text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from agents.personas_io.shape import PersonaError
from agents.transcripts.records import OptionError, TranscriptError
from agents.transcripts.source import Source

SHOWN = 200  # characters of a line
AROUND = 1  # lines before and after


class NotPossible(Exception):
    """Nothing was imported. `line` is 0 where no line is to blame; `excerpt` are lines of the file with their numbers."""

    def __init__(self, text: str, *, line: int = 0, excerpt: Iterable[tuple[int, str]] = ()) -> None:
        super().__init__(text)
        self.line, self.excerpt = line, list(excerpt)

    def with_names(self, names: Mapping[Path, str]) -> NotPossible:
        """The same with the names that files were given for those they have here."""
        text = str(self)
        for path, name in names.items():
            text = text.replace(path.name, name)
        return NotPossible(text, line=self.line, excerpt=self.excerpt)

    def as_json(self) -> dict[str, Any]:
        return {"line": self.line, "excerpt": self.excerpt}


def not_possible(error: TranscriptError | PersonaError | OptionError, folder: Path) -> NotPossible:
    """The same error without what only those who work at the machine know: folders, and options of a command."""
    if isinstance(error, OptionError):
        text = (
            _plain(str(error), folder)
            .replace("--map ", "speaker ")
            .replace("--tag: ", "")
            .replace("--columns: ", "columns: ")
        )
        return NotPossible(text.replace("--columns", "the columns"))
    name = Path(error.path).name
    where = f"{name}, line {error.line:,}: " if error.line else f"{name}: "
    reason = _plain(error.reason, folder)
    for command, here in _HERE:
        reason = reason.replace(command, here)
    return NotPossible(where + reason, line=error.line, excerpt=_excerpt(Path(error.path), error.line))


_HERE = (
    ("; name it: --format", "; say below how it is to be read"),
    ("say which: --columns ", "say below which it is: "),
    ("; use: manage.py import_agents", ""),
    ("--columns", "the columns"),
)


def _plain(text: str, folder: Path) -> str:
    return text.replace(f"{folder}/", "")


def _excerpt(path: Path, line: int) -> list[tuple[int, str]]:
    if not line or not path.is_file() or path.suffix.lower() == ".png":
        return []
    try:
        lines = islice(Source(path).lines(), max(0, line - 1 - AROUND), line + AROUND)
        shown = ((number, text.replace("\0", "\ufffd")) for number, text in lines)  # no database takes a NUL
        return [(number, text[:SHOWN] + ("…" if len(text) > SHOWN else "")) for number, text in shown]
    except TranscriptError:  # the line is no text at all
        return []
