"""Conversations of ParlAI as its scripts log them: JSON Lines with ``dialog``, a list of exchanges of acts.

Read: https://github.com/facebookresearch/ParlAI, parlai/utils/conversations.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agents.transcripts.json_input import Row, json_values
from agents.transcripts.records import Record, Skipped, SourceMessage, TranscriptError
from agents.transcripts.source import Source


def is_parlai(value: dict[str, Any]) -> bool:
    """Whether it is a conversation of ParlAI."""
    dialog = value.get("dialog")
    acts = (
        [act for pair in dialog for act in (pair if isinstance(pair, list) else [pair])]
        if isinstance(dialog, list)
        else []
    )
    return bool(acts) and isinstance(acts[0], dict) and {"id", "text"} & set(acts[0]) != set()


def read_parlai(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read one conversation per line; context before it is a system prompt."""
    number = 0
    for number, (line, value) in enumerate(json_values(source), start=1):
        row = Row(value, path=source.name, line=line, what="a conversation")
        for context in row.list("context") if row.has("context") else []:
            text = row.child(context, "'context'").text("text")
            yield (
                SourceMessage(speaker="system", kind="system", text=text, line=line)
                if text.strip()
                else Skipped("empty message", line)
            )
        for pair in row.list("dialog"):
            for act in pair if isinstance(pair, list) else [pair]:
                one = row.child(act, "an act")
                text, speaker = one.text("text"), one.name("id") or one.name("speaker")
                if not text.strip():
                    yield Skipped("empty message", line)
                    continue
                if not speaker:
                    one.fail("an act has a text but no 'id', which names its speaker")
                yield SourceMessage(speaker=speaker, text=text, line=line, conversation=number)
    if not number:
        raise TranscriptError(source.name, 0, "the file holds no conversation")
