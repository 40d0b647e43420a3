"""What is in the files, and what importing them would do: everything that a person looks at before they agree."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User

from agents.imports.choices import (
    READ_AS_PERSONAS,
    Choices,
    may_import_personas,
    may_import_transcripts,
    missing_for_personas,
)
from agents.imports.problems import NotPossible, not_possible
from agents.imports.uploads import stems_of
from agents.models import Import
from agents.persona import Outcome, UpsertResult
from agents.personas_io.reader import read_personas
from agents.personas_io.service import import_read
from agents.personas_io.shape import PersonaError
from agents.transcripts.importer import AUTO, ImportReport, Progress, import_transcript
from agents.transcripts.prepare import Prepared
from agents.transcripts.readers import detect
from agents.transcripts.readers.csv_table import delimiter
from agents.transcripts.records import OptionError, TranscriptError
from agents.transcripts.source import Source
from agents.transcripts.store import Needs, NotEntitled, rights_of

MOST_SPEAKERS = 100  # who can be told apart by hand
MOST_CHANNELS = 50
MOST_PERSONAS = 200
MOST_COLUMNS = 60
SAMPLE = 8  # messages
SAMPLE_CHARACTERS = 400
PERSONA_CHARACTERS = 1_500
PERSONA_ENDINGS = (".yaml", ".yml", ".md", ".png")
_EITHER = (".json", ".txt")
_PERSONAS = ", ".join((*PERSONA_ENDINGS, *_EITHER))


def kind_of(paths: Mapping[Path, str], wished: str) -> str:
    """Whether these files are a transcript or personas.

    Raises:
        NotPossible: Neither.
    """
    personas, transcript = Import.Kind.PERSONAS.value, Import.Kind.TRANSCRIPT.value
    if wished != AUTO:
        return personas if wished == READ_AS_PERSONAS else transcript
    path, name = next(iter(paths.items()))
    ending = path.suffix.lower()
    if len(paths) > 1 or ending in PERSONA_ENDINGS:
        return personas
    try:
        detect(Source(path))
    except TranscriptError as error:
        if ending in _EITHER and _reads_as_persona(path, name):
            return personas
        raise not_possible(error, path.parent) from None
    return transcript


def _reads_as_persona(path: Path, name: str) -> bool:
    try:
        return bool(read_personas(path, stems=stems_of({path: name})))
    except PersonaError:
        return False


def check(*, paths: Mapping[Path, str], choices: Choices, user: User, progress: Progress) -> tuple[str, dict[str, Any]]:
    """Read files whole, store nothing, and say what they hold.

    Returns:
        A kind of `Import`, and what was found.

    Raises:
        NotPossible: They cannot be imported as they are, with these choices or by this user.
    """
    kind = kind_of(paths, choices.format)
    if kind == Import.Kind.PERSONAS:
        return kind, check_personas(paths=paths, reset=choices.reset, user=user)
    return kind, check_transcript(paths=paths, choices=choices, user=user, progress=progress)


def check_personas(*, paths: Mapping[Path, str], reset: bool, user: User) -> dict[str, Any]:
    """What importing these personas would do."""
    if not may_import_personas(user):
        raise NotPossible(
            "Personas make agents and change them: that needs the permissions agents.add_agent and agents.change_agent."
        )
    path = personas_at(paths)
    try:
        values = read_personas(path, stems=stems_of(paths))
    except PersonaError as error:
        raise not_possible(error, next(iter(paths)).parent) from None
    results = import_read(personas=values, reset=reset, dry_run=True)
    if missing := missing_for_personas(user, values, results):
        raise NotPossible(f"What these files hold needs permissions that you do not have: {', '.join(missing)}.")
    personas = [
        {
            "slug": value.slug,
            "name": value.display_name,
            "outcome": result.outcome,
            "changed": list(result.changed),
            "traits": len(value.traits or ()),
            "text": value.system_prompt[:PERSONA_CHARACTERS],
        }
        for value, result in zip(values, results, strict=True)
    ]
    return {"personas": personas[:MOST_PERSONAS], **counted(results)}


def counted(results: Sequence[UpsertResult]) -> dict[str, Any]:
    """How many personas there are, what becomes of them, and of how many anything."""
    outcomes = Counter(str(result.outcome) for result in results)
    changed = outcomes[Outcome.CREATED] + outcomes[Outcome.UPDATED]
    return {"personas_total": len(results), "outcomes": dict(outcomes), "imported": changed}


def personas_at(paths: Mapping[Path, str]) -> Path:
    """What the service of `import_agents` is to read.

    Raises:
        NotPossible: Some of the files would be left out.
    """
    if len(paths) == 1:
        return next(iter(paths))
    for path, name in paths.items():
        if path.suffix.lower() not in (*PERSONA_ENDINGS, *_EITHER) or Path(name).stem.lower() == "readme":
            raise NotPossible(
                f"{name}: several files at once are read as personas, and this is none; allowed: {_PERSONAS}. "
                "Hand in one transcript at a time."
            )
    return next(iter(paths)).parent


@dataclass(slots=True)
class _Seen:
    """What comes by while a transcript is checked."""

    needs: Needs = field(default_factory=Needs)
    sample: list[dict[str, Any]] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    per_channel: Counter[str] = field(default_factory=Counter)

    def message(self, message: Prepared) -> None:
        self.needs.add(message)
        self.per_channel[message.target.slug] += 1
        if len(self.sample) < SAMPLE:
            self.sample.append(
                {
                    "slug": message.author.slug or "",
                    "outsider": message.author.outsider,
                    "text": message.text[:SAMPLE_CHARACTERS] + ("…" if len(message.text) > SAMPLE_CHARACTERS else ""),
                    "sent_at": message.sent_at.isoformat() if message.sent_at else "",
                    "channel": message.target.slug,
                }
            )

    def speaker(self, name: str, why: str) -> None:
        self.unknown[name] = why


def check_transcript(*, paths: Mapping[Path, str], choices: Choices, user: User, progress: Progress) -> dict[str, Any]:
    """What importing this transcript would do. Agents that are still to be made count as outsiders."""
    if len(paths) > 1:
        raise NotPossible("Hand in one transcript at a time: each becomes an import of its own.")
    if not may_import_transcripts(user):
        raise NotPossible("Handing in what was said needs the permission agents.add_message.")
    seen, (path, name) = _Seen(), next(iter(paths.items()))
    try:
        report = import_transcript(
            path=path,
            stem=Path(name).stem,
            dry_run=True,
            progress=progress,
            on_checked=seen.message,
            on_unknown=seen.speaker,
            **arguments(choices),
        )
    except (TranscriptError, OptionError) as error:
        raise not_possible(error, next(iter(paths)).parent) from None
    return _found(report, seen, user) | {"header": header_of(path, report.format)}


def arguments(choices: Choices) -> dict[str, Any]:
    """What `import_transcript` is told, with agents that are still to be made as outsiders."""
    return {
        "format": choices.format,
        "channel": choices.channel,
        "speaker_map": {**choices.agents, **dict.fromkeys(choices.made, "")},
        "tags": choices.tags,
        "columns": choices.columns,
        "time_zone": choices.time_zone,
    }


def _found(report: ImportReport, seen: _Seen, user: User) -> dict[str, Any]:
    try:
        seen.needs.check(rights_of(user))
        refusal = ""
    except NotEntitled as error:
        refusal = str(error)
    speakers: list[dict[str, Any]] = [
        {"name": name, "messages": count, "slug": slug or "", "why": seen.unknown.get(name, "")}
        for name, (slug, count) in report.speakers.items()
    ]
    speakers.sort(key=lambda speaker: (not speaker["why"], -speaker["messages"]))
    return {
        **shortened(report.as_json()),
        "channels": seen.per_channel.most_common(MOST_CHANNELS),
        "speakers": speakers[:MOST_SPEAKERS],
        "no_agent": bool(report.speakers) and not report.has_agent,
        "likely": report.likely_agents,
        "undecided": sum(bool(speaker["why"]) for speaker in speakers),
        "sample": seen.sample,
        "refusal": refusal,
    }


def shortened(told: Mapping[str, Any]) -> dict[str, Any]:
    """A report that a row can hold however many channels and speakers a file has."""
    return {
        **{name: value for name, value in told.items() if name not in ("speakers", "channels", "dry_run")},
        "channels_total": len(told["channels"]),
        "speakers_total": len(told["speakers"]),
    }


def header_of(path: Path, format: str) -> list[str]:
    """The columns of a CSV file; empty for every other."""
    if format != "csv" and path.suffix.lower() not in (".csv", ".tsv"):
        return []
    try:
        first = next(iter(Source(path).lines()), (0, ""))[1]
    except TranscriptError:
        return []
    names = next(csv.reader([first], delimiter=delimiter(first)), [])
    return [name.strip()[:100] for name in names[:MOST_COLUMNS]]


def without_other_speakers(choices: Choices, before: Choices) -> Choices:
    """The choices, with nobody told apart any more where the file is taken apart in another way than before."""
    return choices if choices.reads == before.reads else replace(choices, agents={}, made={})
