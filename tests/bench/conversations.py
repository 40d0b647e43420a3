"""Real conversations to measure on: what each speaker said, in order, from files in any format that can be imported."""

from __future__ import annotations

from pathlib import Path

import yaml

SEED = Path(__file__).parents[2] / "agents" / "seed" / "conversations"
DRIFTING = {"michael", "dwight", "angela", "stanley", "kevin", "jim"}  # in build 41, as planted
Speech = dict[str, list[str]]  # by speaker


def example_speech() -> Speech:
    """What the example agents say, in order of time; without the build in which some were made to drift."""
    rows = []
    for path in sorted(SEED.glob("*.yaml")):
        for message in yaml.safe_load(path.read_text(encoding="utf-8"))["messages"]:
            speaker = message.get("author")
            if speaker and not (speaker in DRIFTING and message["build"] == "41"):
                rows.append((message["day"], message["time"], message["id"], speaker, message["text"]))
    speech: Speech = {}
    for *_, speaker, text in sorted(rows):
        speech.setdefault(speaker, []).append(text)
    return speech


def speech_of(path: Path) -> Speech:
    """What each speaker of a transcript says, in its order; in different conversations a name is a different speaker.

    Raises:
        FileError: It is no transcript in a known format.
    """
    from agents.kit.files.source import Source
    from agents.transcripts.readers import FORMATS, detect
    from agents.transcripts.records import SourceMessage

    source = Source(path)
    records = [r for r in FORMATS[detect(source)].read(source, {}) if isinstance(r, SourceMessage)]
    several = len({(r.channel, r.conversation) for r in records}) > 1
    speech: Speech = {}
    for record in records:
        if record.kind not in ("system", "stimulus") and record.text.strip():
            where = f" ({record.channel or record.conversation})" if several else ""
            speech.setdefault(f"{record.speaker}{where}", []).append(record.text)
    return speech
