"""Import a transcript: check all of the file, then store it in batches. One bad line, and nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from agents.kit.files.json_input import begins_like_json
from agents.kit.files.source import Source
from agents.kit.files.times import zone
from agents.kit.text.tags import TAG_KEY
from agents.kit.text.wording import counted
from agents.models import Import, Message
from agents.transcripts.prepare import OnUnknownSpeaker, Prepared, Preparer, Speakers, Targets
from agents.transcripts.readers import FORMATS, detect
from agents.transcripts.readers.csv_table import check_fields
from agents.transcripts.records import NotThere, OptionError, bad_tag_key
from agents.transcripts.store import Key, Rights, check_rights, count_batch, link_orphans, write_batch

BATCH = 1000
AUTO = "auto"
DAY_FIRST, MONTH_FIRST = "day-first", "month-first"
CHECKING, COMPARING, IMPORTING = "Checking", "Comparing", "Importing"
Progress = Callable[[str, int, int], None]  # called with what is being done, how much of it, and how much there is


class Speaker(BaseModel):
    """A speaker of a file: the slug of the agent, None for an outsider or a user, and how often they speak."""

    agent: str | None
    messages: int


class ImportReport(BaseModel):
    """What an import did, or would do. ``read = imported + duplicates + skipped + system_prompts``.

    `first_sent_at` and `last_sent_at` are ISO 8601 in UTC, empty where no message has a time; `undated` counts those without one.
    """

    format: str
    channels: list[str]
    read: int
    imported: int
    duplicates: int
    skipped: int
    system_prompts: int
    other_author: int
    speakers: dict[str, Speaker]
    replaced_characters: int
    cut_texts: int
    replies_without_parent: int
    dry_run: bool
    skipped_by_reason: dict[str, int]
    first_sent_at: str
    last_sent_at: str
    undated: int
    warnings: list[str]
    skipped_lines: dict[str, list[int]] = Field(default={}, exclude=True)  # for the console's page


_NOTES = {  # counts of a report that are worth a note: one, and many
    "other_author": (
        "message is stored under another author and keeps it; another channel would have it under this one",
        "messages are stored under another author and keep it; another channel would have them under this one",
    ),
    "system_prompts": ("system prompt, which is not a message", "system prompts, which are not messages"),
    "undated": ("message without a time", "messages without a time"),
    "replaced_characters": (
        "character that cannot be stored, replaced by U+FFFD",
        "characters that cannot be stored, replaced by U+FFFD",
    ),
    "cut_texts": ("text cut for its length", "texts cut for their length"),
    "replies_without_parent": ("reply whose parent is not there", "replies whose parent is not there"),
}


def count_notes(report: Mapping[str, Any]) -> list[str]:
    """Return what a dumped report counts that is worth a note, such as ``2 messages without a time``; nothing for what did not happen."""
    return [counted(report[key], one, many) for key, (one, many) in _NOTES.items() if report.get(key)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How a transcript is read.

    Attributes:
        format: One of `FORMATS`, or ``auto``.
        channel: Its name; several conversations become ``name``, ``name-2`` …; empty = as the file says.
        speaker_map: Speaker or role -> agent slug; an empty slug: never an agent.
        tags: Put on every message, over those of the file.
        columns: For CSV: our field, or ``tags.NAME``, to the file's column; for JSON Lines to the key of an object.
        time_zone: For times without an offset; empty = the TIME_ZONE setting.
        dates: For logs with dates such as 01/02/2026: ``day-first`` or ``month-first``; empty = as the file suggests.
    """

    format: str = AUTO
    channel: str = ""
    speaker_map: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    time_zone: str = ""
    dates: str = ""


def read_columns(parts: Iterable[str]) -> dict[str, str]:
    """Return `ReadOptions.columns` of what was given with ``--columns``: lists such as ``text=body,speaker=who``.

    Raises:
        OptionError: As `pair`.
    """
    return dict(pair(text, "--columns", "FIELD=COLUMN") for part in parts for text in part.split(",") if text)


def read_speakers(parts: Iterable[str]) -> dict[str, str]:
    """Return `ReadOptions.speaker_map` of what was given with ``--map``: ``SPEAKER=SLUG``. A speaker's name may hold an equals sign.

    Raises:
        OptionError: As `pair`.
    """
    return dict(pair(part, "--map", "SPEAKER=SLUG", last=True) for part in parts)


def pair(text: str, option: str, form: str, *, last: bool = False) -> tuple[str, str]:
    """Split what was given with an option at the first ``=``, with `last` at the last.

    Raises:
        OptionError: There is no ``=``, or nothing before it; names the form that is allowed.
    """
    key, equals, value = text.rpartition("=") if last else text.partition("=")
    if not equals or not key.strip():
        raise OptionError(f"{option} {text!r}: write it as {form}")
    return key.strip(), value.strip()


@dataclass(frozen=True, slots=True)
class PreparedTranscript:
    """A transcript that is being read: its messages, and the preparer that makes and counts them."""

    preparer: Preparer
    messages: Iterator[Prepared]


class Transcript:
    """A file that is about to be read, with options that are checked. Reading it twice gives the same messages."""

    def __init__(self, path: Path, options: ReadOptions, *, name: str = "") -> None:
        """Check the options and detect the format.

        Args:
            path: The file.
            options: How it is read.
            name: What the file is called in errors, and without its ending in channels that it does not name; default its path.

        Raises:
            FileError: There is no such file, or its format is not recognised.
            OptionError: Unknown format, time zone or order of dates, a tag key that is not allowed, columns of a file that is neither
                CSV nor JSON Lines, or an unknown field of them, or an order of dates for one that is no chat log.
        """
        if options.format != AUTO and options.format not in FORMATS:
            raise OptionError(f"unknown format {options.format!r}; allowed: {AUTO}, {', '.join(FORMATS)}")
        if options.dates not in ("", DAY_FIRST, MONTH_FIRST):
            raise OptionError(f"--dates {options.dates!r}: allowed: {DAY_FIRST}, {MONTH_FIRST}")
        self.options = options
        self.source = Source(path, name=name, dates=options.dates, accepts_windows=True)
        self.format = self._format()
        for key in options.tags:
            if not TAG_KEY.fullmatch(key):
                raise OptionError(f"--tag: {bad_tag_key(key)}")
        if options.columns and self.format not in ("csv", "jsonl"):
            raise OptionError(
                f"columns are for CSV and JSON Lines; this file is to be read as {self.format}", option="--columns:"
            )
        check_fields(options.columns)
        if options.dates and self.format != "chat":
            raise OptionError(
                f"the order of dates is for chat logs; this file is to be read as {self.format}", option="--dates:"
            )
        try:
            self.zone = zone(options.time_zone)
        except ValueError as error:
            raise OptionError(str(error)) from None

    def _format(self) -> str:
        """Return the format that was asked for, else what the named columns say, else the detected one.

        With columns a file that is no JSON is CSV. JSON is JSON Lines where they say which key holds the text or who speaks.
        """
        columns = self.options.columns
        if self.options.format != AUTO:
            return self.options.format
        if columns and not begins_like_json(self.source.head().lstrip()):
            return "csv"
        if "text" in columns or "speaker" in columns:
            return "jsonl"
        return detect(self.source)

    def prepare(self, on_unknown: OnUnknownSpeaker | None = None) -> PreparedTranscript:
        """Begin to read the messages. Without `on_unknown` an unknown agent is an error."""
        preparer = Preparer(
            path=self.source.name,
            speakers=Speakers(self.options.speaker_map, on_unknown=on_unknown),
            targets=Targets(wished=self.options.channel, stem=self.source.stem),
            tags=self.options.tags,
            zone=self.zone,
        )
        records = FORMATS[self.format].read(self.source, self.options.columns)
        return PreparedTranscript(preparer, preparer.messages(records))


def import_transcript(
    path: Path,
    options: ReadOptions,
    *,
    name: str = "",
    dry_run: bool = False,
    rights: Rights | None = None,
    job: Import | None = None,
    progress: Progress = lambda _what, _done, _total: None,
    on_new: Callable[[Sequence[Message]], None] | None = None,
) -> ImportReport:
    """Import a transcript file; importing it again adds nothing.

    It is read twice: all of it is checked before the first message is stored, in batches of `BATCH`.

    Args:
        path: The file.
        options: How it is read.
        name: What the file is called; default its path.
        dry_run: Check and count, store nothing.
        rights: Of the user who uploaded it; by default every one.
        job: The import that the stored messages belong to; None: to none, so that they cannot be undone together.
        progress: Called with the step, and how far it is: in bytes while checking, then in messages.
        on_new: Called with the messages that are stored, inside the transaction that stores them.

    Raises:
        FileError: The file is malformed, or more than a fifth of it was not understood; nothing was stored.
        NotEntitled: It needs more than `rights`; nothing was stored.
        OptionError: Unknown format, time zone, column or agent, or a mapping for a speaker who does not occur.
    """
    transcript = Transcript(path, options, name=name)
    checked = _read_and_check(transcript, rights or Rights(), progress)
    counts = checked.counts
    step = COMPARING if dry_run else IMPORTING
    imported = 0
    duplicates = 0
    other_author = 0
    orphans: list[tuple[int, Key]] = []
    progress(step, 0, counts.messages)
    messages = transcript.prepare().messages
    while batch := list(islice(messages, BATCH)):
        result = count_batch(batch) if dry_run else write_batch(batch, job=job, on_new=on_new)
        imported += result.imported
        duplicates += result.duplicates
        other_author += result.other_author
        orphans += result.orphans
        progress(step, imported + duplicates, counts.messages)
    return ImportReport(
        format=transcript.format,
        channels=counts.channels,
        read=counts.read,
        imported=imported,
        duplicates=duplicates,
        other_author=other_author,
        skipped=sum(counts.skipped.values()),
        skipped_by_reason=counts.skipped,
        system_prompts=counts.system_prompts,
        speakers={
            name: Speaker(agent=counted.slug, messages=counted.messages) for name, counted in counts.speakers.items()
        },
        replaced_characters=checked.cleaner.replaced,
        cut_texts=checked.cleaner.cut,
        replies_without_parent=link_orphans(orphans),
        dry_run=dry_run,
        **counts.times(),
        undated=counts.undated,
        warnings=[str(warning) for warning in counts.warnings()],
        skipped_lines=counts.skipped_lines,
    )


def _read_and_check(transcript: Transcript, rights: Rights, progress: Progress) -> Preparer:
    """Read all of a file without storing anything; return what counted it.

    Raises:
        FileError: The file is malformed, was changed meanwhile, or more than a fifth of it was not understood.
        NotEntitled: It needs more than `rights`.
        OptionError: An unknown agent, or a mapping for a speaker who does not occur.
    """
    source = transcript.source
    prepared = transcript.prepare()
    for number, _ in enumerate(prepared.messages):
        if number % BATCH == 0:
            progress(CHECKING, source.bytes_read, source.size)
    checked = prepared.preparer
    checked.counts.check_understood(source.name)
    unused = checked.speakers.unused()
    if unused:
        names = ", ".join(repr(name) for name in list(checked.counts.speakers)[:20])
        raise NotThere(
            f"{unused[0]!r}: no such speaker or role in {source.name}; its speakers: {names or 'none'}", option="--map"
        )
    check_rights(checked.counts.authors, rights)
    source.check_unchanged()
    return checked
