"""Recognise which uploaded files are personas and which are transcripts, by what they hold."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.core.files import File

from agents.kit.files.json_input import json_values
from agents.kit.files.source import FileError, Source
from agents.personas.formats import is_card, is_tinytroupe
from agents.personas.reader import SUFFIXES, YAML
from agents.transcripts.imports.uploads import plain_name
from agents.transcripts.readers import NotRecognised, detect

PERSONA_KEYS = {"system_prompt", "display_name", "agents"}
TRANSCRIPT, PERSONA = "transcript", "persona"


@dataclass(slots=True)
class SortedFiles:
    """Uploaded files by what they are."""

    transcripts: list[File[bytes]] = field(default_factory=list)
    personas: list[File[bytes]] = field(default_factory=list)


def sort_files(uploads: Sequence[File[bytes]], *, read_as: str = "") -> SortedFiles:
    """Return the files by what they are.

    Args:
        read_as: `TRANSCRIPT` or `PERSONA` makes all of them that; empty: what they hold decides.
    """
    files = SortedFiles()
    for upload in uploads:
        is_wanted_persona = read_as == PERSONA
        if is_wanted_persona or (read_as != TRANSCRIPT and is_persona(upload)):
            files.personas.append(upload)
        else:
            files.transcripts.append(upload)
    return files


def is_persona(upload: File[bytes]) -> bool:
    """Return whether a file holds personas: YAML and pictures do, JSON with a persona's keys, and texts that are no conversation."""
    name = plain_name(upload.name or "")
    suffix = Path(name).suffix.lower()
    if suffix in YAML or suffix == ".png":
        return True
    if suffix not in SUFFIXES:
        return False
    with tempfile.TemporaryDirectory(prefix="plumbline-import-") as folder:
        path = Path(folder) / f"file{suffix}"
        with path.open("wb") as out:
            out.writelines(upload.chunks())
        try:
            source = Source(path, name=name)
            detect(source)
        except NotRecognised:
            return suffix != ".json" or _holds_persona(source)
        except FileError:
            return False
    return False


def _holds_persona(source: Source) -> bool:
    """Return whether the first object of a JSON file is a persona, or has some; not where it is no JSON."""
    try:
        first: Any = next(json_values(source), (0, None))[1]
    except FileError:
        return False
    if not isinstance(first, dict):
        return False
    return is_card(first) or is_tinytroupe(first) or bool(PERSONA_KEYS & set(first))
