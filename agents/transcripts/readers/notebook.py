"""What the cells of a Jupyter notebook printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agents.transcripts.json_input import json_values
from agents.transcripts.records import TranscriptError
from agents.transcripts.source import Source


def is_notebook(value: dict[str, Any]) -> bool:
    """Whether this JSON object is a notebook."""
    return "nbformat" in value and isinstance(value.get("cells"), list)


def printed_outputs(source: Source) -> Iterator[Iterator[tuple[int, str]]]:
    """Yield each output of the cells that is text, in order, as (line number, line); lines are numbered through from 1."""
    _, value = next(json_values(source), (0, None))
    if not isinstance(value, dict) or not is_notebook(value):
        raise TranscriptError(source.name, 1, "JSON, but no Jupyter notebook")
    number = 1
    for cell in value["cells"]:
        for output in _list(cell, "outputs"):
            lines = _text(output).split("\n")
            yield enumerate(lines, start=number)
            number += len(lines)


def _list(value: Any, key: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _text(output: Any) -> str:
    """The text of an output: what it streamed, or the plain form of what it displayed."""
    if not isinstance(output, dict):
        return ""
    data = output.get("data")
    text = output.get("text") if not isinstance(data, dict) else data.get("text/plain")
    if isinstance(text, list):
        text = "".join(part for part in text if isinstance(part, str))
    return text if isinstance(text, str) else ""
