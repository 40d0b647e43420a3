"""JSON Lines whose text is a whole dialogue, "Human: … Assistant: …", as in preference data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest

from agents.transcripts.json_input import json_values
from agents.transcripts.records import ReaderOptions, Record, Skipped, SourceMessage
from agents.transcripts.rows import Row
from agents.transcripts.source import Source

TEXT_KEYS = ("chosen", "transcript", "text", "dialogue", "prompt")
TURN = re.compile(r"(?:\A|\n)[ \t]*(Human|Assistant):[ \t]?")
ROLES = {"Human": "user", "Assistant": "assistant"}


def dialogue_key(value: object) -> str:
    """The key under which the dialogue stands; empty when this is no such object."""
    if isinstance(value, dict):
        for key in TEXT_KEYS:
            if isinstance(value.get(key), str) and "Human:" in value[key]:
                return key
    return ""


def read(source: Source, options: ReaderOptions) -> Iterator[Record]:
    """Read one conversation per object. Of ``chosen`` and ``rejected`` the chosen one is read, the other skipped."""
    for number, (line, value) in enumerate(json_values(source), start=1):
        row = Row(value, path=source.name, line=line, what="a conversation")
        key = dialogue_key(value)
        if not key:
            row.fail(f"no dialogue: expected 'Human: …' under one of {', '.join(map(repr, TEXT_KEYS))}")
        text = row.text(key) + (row.text("completion") if key == "prompt" else "")
        channel = row.name("id")
        yield from _turns(row, text, channel, number)
        if row.has("rejected"):
            yield Skipped("rejected alternative", line)


def _turns(row: Row, text: str, channel: str, number: int) -> Iterator[Record]:
    starts = list(TURN.finditer(text))
    if not starts or text[: starts[0].start()].strip():
        row.fail("the dialogue must begin with 'Human:' or 'Assistant:'")
    for start, following in zip_longest(starts, starts[1:]):
        said = text[start.end() : following.start() if following else len(text)].strip()
        if said:
            speaker = start.group(1)
            yield SourceMessage(
                speaker=speaker, role=ROLES[speaker], text=said, line=row.line, channel=channel, conversation=number
            )
        else:
            yield Skipped("empty message", row.line)
