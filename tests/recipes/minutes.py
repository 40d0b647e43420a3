"""Minutes of meetings as JSON: ``{"meeting": "…", "minutes": [["Pat", "Is the ferry late?"], …]}``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agents.kit.files.json_input import Row, json_values
from agents.kit.files.source import Source
from agents.transcripts.records import Record, SourceMessage


def is_minutes(value: dict[str, Any]) -> bool:
    """Whether it is the minutes of a meeting."""
    return {"meeting", "minutes"} <= set(value)


def read_minutes(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read one meeting per value: each line is a speaker and what was said."""
    for line, value in json_values(source):
        row = Row(value, path=source.name, line=line, what="a meeting")
        for speaker, text in row.list("minutes", required=True):
            yield SourceMessage(speaker=speaker, text=text, line=line, channel=row.text("meeting"))
