"""What uploaded files hold and what importing them would do: choices, permissions, and a look into the files that stores nothing."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from django.contrib.auth.models import AnonymousUser, User

from agents.imports.uploads import stems_of
from agents.models import Import
from agents.persona import Outcome, UpsertResult
from agents.personas_io.reader import import_read, read_personas
from agents.personas_io.shape import PersonaError, PersonaSpec
from agents.transcripts.importer import AUTO, BATCH, CHECKING, Progress, ReadOptions, Transcript
from agents.transcripts.prepare import Prepared
from agents.transcripts.readers import detect
from agents.transcripts.readers.csv_table import delimiter
from agents.transcripts.records import OptionError, TranscriptError
from agents.transcripts.source import Source
from agents.transcripts.store import JOINING, NotEntitled, check_rights, count_batch, rights_of

PREVIEWED = 2_000  # messages a preview reads; the worker reads all
MOST_SPEAKERS, MOST_CHANNELS, MOST_PERSONAS, MOST_COLUMNS = 100, 50, 200, 60  # that are shown
SAMPLE, SAMPLE_CHARACTERS, PERSONA_CHARACTERS = 8, 400, 1_500
PERSONA_ENDINGS = (".yaml", ".yml", ".md", ".png")
PERSONAS = "personas"
"""A choice beside the formats of transcripts: the files hold personas."""
_EITHER = (".json", ".txt")
_EXCERPT = 200  # characters of a line


@dataclass(frozen=True, slots=True)
class NewAgent:
    """An agent that is made for a speaker when the import begins."""

    slug: str
    display_name: str
    system_prompt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Everything about an import that can be chosen.

    Attributes:
        format: ``auto``, a format of transcripts, or ``personas``.
        channel: Name of the channel; empty = as the file says.
        agents: Speaker to agent slug; an empty slug: surely no agent. Speakers left out are looked up by name.
        made: Speaker to an agent that does not exist yet.
        tags: Put on every message.
        columns: For CSV: our field, or ``tags.NAME``, to the file's column.
        time_zone: For times without an offset; empty = the TIME_ZONE setting.
        reset: Of personas: overwrite those that were edited here.
        without_agents: Import a conversation in which no agent speaks, so that nothing in it can be measured.
    """

    format: str = AUTO
    channel: str = ""
    agents: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, NewAgent] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    time_zone: str = ""
    reset: bool = False
    without_agents: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, job: Import) -> Choices:
        """The choices that `as_json` stored with an import."""
        made = {name: NewAgent(**agent) for name, agent in job.choices.get("made", {}).items()}
        return cls(**{**job.choices, "made": made})

    def options(self, name: str, *, made: bool) -> ReadOptions:
        """What `import_transcript` takes, for a file with this name. Agents still to be made are outsiders unless `made`."""
        new = {speaker: agent.slug if made else "" for speaker, agent in self.made.items()}
        return {
            "format": self.format,
            "channel": self.channel,
            "speaker_map": {**self.agents, **new},
            "tags": self.tags,
            "columns": self.columns,
            "time_zone": self.time_zone,
            "stem": Path(name).stem,
        }


class NotPossible(Exception):
    """Nothing was imported. `line` is 0 where no line is to blame; `excerpt` are lines of the file with their numbers."""

    def __init__(self, text: str, *, line: int = 0, excerpt: Iterable[tuple[int, str]] = ()) -> None:
        super().__init__(text)
        self.line, self.excerpt = line, list(excerpt)

    def as_json(self) -> dict[str, Any]:
        return {"line": self.line, "excerpt": self.excerpt}


def not_possible(
    error: TranscriptError | PersonaError | OptionError | NotEntitled, names: Mapping[Path, str]
) -> NotPossible:
    """The same error for a person in a browser: files by their given names, no folders, no options of a command."""
    path, line = Path(getattr(error, "path", "")), getattr(error, "line", 0)
    text = str(error)
    if isinstance(error, TranscriptError | PersonaError):
        text = f"{path.name}, line {line:,}: {error.reason}" if line else f"{path.name}: {error.reason}"
    for command, here in (
        ("; name it: --format", "; say below how it is to be read"),
        ("say which: --columns ", "say below which it is: "),
        ("; use: manage.py import_agents", ""),
        ("--map ", "speaker "),
        ("--tag: ", ""),
        ("--columns: ", "columns: "),
        ("--columns", "the columns"),
        *((f"{file.parent}/", "") for file in names),
        *((file.name, name) for file, name in names.items()),
    ):
        text = text.replace(command, here)
    return NotPossible(text, line=line, excerpt=_excerpt(path, line))


def _excerpt(path: Path, line: int) -> list[tuple[int, str]]:
    """A line with its neighbours."""
    if not line or not path.is_file() or path.suffix.lower() == ".png":
        return []
    try:
        lines = islice(Source(path).lines(), max(0, line - 2), line + 1)
        # No database stores a NUL.
        return [(number, _shortened(text.replace("\0", "\ufffd"), _EXCERPT)) for number, text in lines]
    except TranscriptError:  # the line is no text at all
        return []


def may_import_transcripts(user: User | AnonymousUser) -> bool:
    """Whether they may upload messages; which channels and agents it may concern, `agents.transcripts.store` says."""
    return user.has_perm("agents.add_message")


def may_import_personas(user: User | AnonymousUser) -> bool:
    """Whether they may upload personas, which make agents and change them."""
    return user.has_perm("agents.add_agent") and user.has_perm("agents.change_agent")


def may_make_speakers(user: User | AnonymousUser) -> bool:
    """Whether they may have agents made for speakers, which join the channels they speak in."""
    return user.has_perm("agents.add_agent") and user.has_perm(JOINING)


def _kind_of(paths: Mapping[Path, str], format: str) -> str:
    """Whether these files are a transcript or personas; several files are personas. Raises `NotPossible`: neither."""
    if format != AUTO:
        return Import.Kind.PERSONAS if format == PERSONAS else Import.Kind.TRANSCRIPT
    path = next(iter(paths))
    ending = path.suffix.lower()
    if len(paths) > 1 or ending in PERSONA_ENDINGS:
        return Import.Kind.PERSONAS
    try:
        detect(Source(path))
    except TranscriptError as error:
        with suppress(PersonaError):
            if ending in _EITHER and read_personas(path, stems=stems_of(paths)):
                return Import.Kind.PERSONAS
        raise not_possible(error, paths) from None
    return Import.Kind.TRANSCRIPT


def look(
    *,
    paths: Mapping[Path, str],
    choices: Choices,
    user: User,
    most: int | None = PREVIEWED,
    progress: Progress = lambda _what, _done, _total: None,
) -> tuple[str, dict[str, Any]]:
    """Read the files and say what importing them would do; stores nothing.

    Args:
        paths: Where they are, with the names they were uploaded under.
        choices: How they are read.
        user: With whose permissions they are to be imported.
        most: Messages of a transcript that are read; None = all.
        progress: Called with how far it is.

    Returns:
        A kind of `Import`, and what the files hold, for its column `contents`.

    Raises:
        NotPossible: They cannot be imported as they are, with these choices or by this user.
    """
    kind = _kind_of(paths, choices.format)
    if kind == Import.Kind.PERSONAS:
        values, results = read_and_import_personas(paths=paths, reset=choices.reset, user=user, dry_run=True)
        texts = {value.slug: value.system_prompt[:PERSONA_CHARACTERS] for value in values}
        return kind, persona_rows(results, texts)
    if len(paths) > 1:
        raise NotPossible("Upload one transcript at a time: each becomes an import of its own.")
    if not may_import_transcripts(user):
        raise NotPossible("Uploading messages needs the permission agents.add_message.")
    (path, name), *_ = paths.items()
    try:
        return kind, {**_transcript(path, name, choices, user, most, progress), "header": header_of(path)}
    except (TranscriptError, OptionError) as error:
        raise not_possible(error, paths) from None


def _transcript(
    path: Path, name: str, choices: Choices, user: User, most: int | None, progress: Progress
) -> dict[str, Any]:
    transcript = Transcript(path=path, **choices.options(name, made=False))
    unknown: dict[str, str] = {}
    preparer, messages = transcript.messages(unknown.__setitem__)
    tally, channels, sample = preparer.tally, Counter[str](), list[Prepared]()
    new, complete = 0, True
    while batch := list(islice(messages, BATCH)):
        channels.update(message.target.slug for message in batch)
        sample += batch[: SAMPLE - len(sample)]
        new += count_batch(batch).imported
        progress(CHECKING, transcript.source.bytes_read, transcript.source.size)
        if most is not None and tally.messages >= most:
            complete = False
            break
    refusal = ""
    try:
        check_rights(tally.authors, rights_of(user))
    except NotEntitled as error:
        refusal = str(error)
    speakers: list[dict[str, Any]] = [
        {"name": speaker, "messages": count, "slug": slug or "", "why": unknown.get(speaker, "")}
        for speaker, (slug, count) in tally.speakers.items()
    ]
    speakers.sort(key=lambda row: (not row["why"], -row["messages"]))
    no_agent = bool(tally.speakers) and not choices.made and not tally.has_agent
    return {
        "format": transcript.format,
        "complete": complete,
        "messages": tally.messages,
        "new": new,
        "speakers": speakers[:MOST_SPEAKERS],
        "speakers_total": len(speakers),
        "undecided": sum(bool(row["why"]) for row in speakers),
        "no_agent": no_agent,
        "likely": tally.likely_agents() if no_agent else {},
        "channels": channels.most_common(MOST_CHANNELS),
        "channels_total": len(channels),
        "skipped_by_reason": dict(tally.skipped),
        "system_prompts": tally.system_prompts,
        "replaced_characters": preparer.cleaner.replaced,
        "cut_texts": preparer.cleaner.cut,
        "sample": [
            {
                "slug": message.author.slug,
                "outsider": message.author.outsider,
                "text": _shortened(message.text, SAMPLE_CHARACTERS),
                "sent_at": message.sent_at.isoformat() if message.sent_at else "",
            }
            for message in sample
        ],
        "refusal": refusal,
    }


def _shortened(text: str, limit: int) -> str:
    return text[:limit] + ("…" if len(text) > limit else "")


def header_of(path: Path) -> list[str]:
    """The columns of a CSV file; empty for every other."""
    if path.suffix.lower() not in (".csv", ".tsv"):
        return []
    try:
        first = next(iter(Source(path).lines()), (0, ""))[1]
    except TranscriptError:
        return []
    names = next(csv.reader([first], delimiter=delimiter(first)), [])
    return [name.strip()[:100] for name in names[:MOST_COLUMNS]]


def read_and_import_personas(
    *, paths: Mapping[Path, str], reset: bool, user: User, dry_run: bool
) -> tuple[list[PersonaSpec], list[UpsertResult]]:
    """Import personas with the permissions of `user`, all or none; inside the caller's transaction unless `dry_run`.

    Raises:
        NotPossible: Nothing was changed.
    """
    if not may_import_personas(user):
        raise NotPossible(
            "Personas make agents and change them: that needs the permissions agents.add_agent and agents.change_agent."
        )
    first = next(iter(paths))
    for path, name in paths.items() if len(paths) > 1 else ():
        if path.suffix.lower() not in (*PERSONA_ENDINGS, *_EITHER) or Path(name).stem.lower() == "readme":
            raise NotPossible(
                f"{name}: several files at once are read as personas, and this is none; allowed: "
                f"{', '.join((*PERSONA_ENDINGS, *_EITHER))}. Upload one transcript at a time."
            )
    try:
        values = read_personas(first if len(paths) == 1 else first.parent, stems=stems_of(paths))
    except PersonaError as error:
        raise not_possible(error, paths) from None
    results = import_read(personas=values, reset=reset, dry_run=dry_run, user=None if dry_run else user)
    needed = set()  # what an agent's page asks for its parts
    for persona, result in zip(values, results, strict=True):
        acts = {Outcome.CREATED: ("add",), Outcome.UPDATED: ("add", "change", "delete")}.get(result.outcome, ())
        has_traits = persona.traits is not None and (bool(persona.traits) or result.outcome != Outcome.CREATED)
        parts = ("trait",) * has_traits + ("memoryblock",) * bool(persona.memory_blocks)
        needed |= {f"agents.{act}_{part}" for act in acts for part in parts}
    if missing := sorted(name for name in needed if not user.has_perm(name)):
        raise NotPossible(f"What these files hold needs permissions that you do not have: {', '.join(missing)}.")
    return values, results


def persona_rows(results: Sequence[UpsertResult], texts: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What becomes, or became, of personas."""
    outcomes = Counter(str(result.outcome) for result in results)
    return {
        "personas": [
            {
                "slug": result.agent.slug,
                "name": result.agent.display_name,
                "outcome": result.outcome,
                "changed": list(result.changed),
                "text": (texts or {}).get(result.agent.slug, ""),
            }
            for result in results[:MOST_PERSONAS]
        ],
        "personas_total": len(results),
        "outcomes": dict(outcomes),
        "new": outcomes[Outcome.CREATED] + outcomes[Outcome.UPDATED],
    }
