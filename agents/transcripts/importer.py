"""Import a transcript: check the whole file, then store it in batches. One bad line, and nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict, Unpack

from agents.models import Import, Message
from agents.models.conversations import TAG_KEY
from agents.transcripts.json_input import bad_tag_key
from agents.transcripts.prepare import Answering, Likely, Prepared, Preparer, Speakers, Targets, Unknown, likely_agents
from agents.transcripts.readers import READERS, detect
from agents.transcripts.records import OptionError, ReaderOptions, zone
from agents.transcripts.source import Source
from agents.transcripts.store import BatchResult, Key, Needs, Rights, count_batch, link_orphans, write_batch

BATCH = 1000
AUTO = "auto"
CHECKING, COMPARING, IMPORTING = "Checking", "Comparing", "Importing"
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it, and how much there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import did, or would do. ``read = imported + duplicates + skipped + system_prompts``.

    `likely_agents` are guesses, made only where no speaker is an agent.
    """

    format: str
    channels: list[str]
    read: int
    imported: int
    duplicates: int
    skipped: Mapping[str, int]
    system_prompts: int
    other_author: int
    speakers: Mapping[str, tuple[str | None, int]]
    likely_agents: Mapping[str, Likely]
    replaced_characters: int
    cut_texts: int
    replies_without_parent: int
    dry_run: bool

    @property
    def has_agent(self) -> bool:
        """Whether an agent says anything in it."""
        return any(slug for slug, _ in self.speakers.values())

    def as_json(self) -> dict[str, Any]:
        """The object that ``--json`` prints."""
        return {
            "format": self.format,
            "channels": self.channels,
            "read": self.read,
            "imported": self.imported,
            "duplicates": self.duplicates,
            "other_author": self.other_author,
            "skipped": sum(self.skipped.values()),
            "skipped_by_reason": dict(self.skipped),
            "system_prompts": self.system_prompts,
            "speakers": {name: {"agent": slug, "messages": count} for name, (slug, count) in self.speakers.items()},
            "replaced_characters": self.replaced_characters,
            "cut_texts": self.cut_texts,
            "replies_without_parent": self.replies_without_parent,
            "dry_run": self.dry_run,
        }


class ReadOptions(TypedDict, total=False):
    """How a transcript is read, see `import_transcript`."""

    format: str
    channel: str
    speaker_map: Mapping[str, str] | None
    tags: Mapping[str, str] | None
    columns: Mapping[str, str] | None
    time_zone: str
    stem: str


@dataclass(slots=True, kw_only=True)
class Transcript:
    """A file that is about to be read, with options that are checked. Reading it twice gives the same messages."""

    source: Source
    format: str
    channel: str
    speaker_map: Mapping[str, str]
    tags: Mapping[str, str]
    columns: Mapping[str, str]
    zone: tzinfo

    def messages(self, on_unknown: Unknown | None = None) -> tuple[Preparer, Iterator[Prepared]]:
        """Its messages from the first on, and what counts them. Without `on_unknown` an unknown agent is an error."""
        preparer = Preparer(
            path=self.source.name,
            speakers=Speakers(self.speaker_map, on_unknown=on_unknown),
            targets=Targets(wished=self.channel, stem=self.source.stem),
            tags=self.tags,
            zone=self.zone,
        )
        return preparer, preparer.messages(READERS[self.format](self.source, ReaderOptions(columns=self.columns)))


def open_transcript(
    *,
    path: Path,
    format: str = AUTO,
    channel: str = "",
    speaker_map: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
    time_zone: str = "",
    stem: str = "",
) -> Transcript:
    """Check the options of an import and detect the format; the arguments are those of `import_transcript`.

    Raises:
        TranscriptError: There is no such file, or its format is not recognised.
        OptionError: Unknown format or time zone, a tag key that is not allowed, columns of a file that is no CSV.
    """
    if format != AUTO and format not in READERS:
        raise OptionError(f"unknown format {format!r}; allowed: {AUTO}, {', '.join(READERS)}")
    source = Source(path)
    source.stem = stem or source.stem
    used = ("csv" if columns else detect(source)) if format == AUTO else format
    for key in tags or {}:
        if not TAG_KEY.fullmatch(key):
            raise OptionError(f"--tag: {bad_tag_key(key)}")
    if columns and used != "csv":
        raise OptionError(f"--columns is for CSV; this file is to be read as {used}")
    try:
        local = zone(time_zone)
    except ValueError as error:
        raise OptionError(str(error)) from None
    return Transcript(
        source=source,
        format=used,
        channel=channel,
        speaker_map=speaker_map or {},
        tags=tags or {},
        columns=columns or {},
        zone=local,
    )


def import_transcript(
    *,
    path: Path,
    dry_run: bool = False,
    rights: Rights | None = None,
    job: Import | None = None,
    progress: Progress = lambda _what, _done, _total: None,
    on_new: Callable[[Sequence[Message]], None] | None = None,
    **options: Unpack[ReadOptions],
) -> ImportReport:
    """Import a transcript file; importing it again adds nothing.

    Args:
        path: The file.
        dry_run: Check and count, store nothing.
        rights: Of the user who uploaded it; by default every one.
        job: The import that the stored messages belong to.
        progress: Called with how far it is.
        on_new: Called with the messages that are stored, inside the transaction that stores them.
        options: ``format`` (one of `READERS`, or ``auto``) · ``channel`` (its name; several conversations become ``name``, ``name-2`` …;
            empty = as the file says) · ``speaker_map`` (speaker or role -> agent slug; an empty slug keeps the speaker an outsider) ·
            ``tags`` (put on every message, over those of the file) · ``columns`` (for CSV: our field -> the file's column) ·
            ``time_zone`` (for times without an offset; empty = the TIME_ZONE setting) · ``stem`` (names channels that the file does not
            name; empty = the name of the file without its ending).

    Raises:
        TranscriptError: The file is malformed; nothing was stored.
        NotEntitled: It needs more than `rights`; nothing was stored.
        OptionError: Unknown format, time zone, column or agent, or a mapping for a speaker who does not occur.
    """
    transcript = open_transcript(path=path, **options)
    source = transcript.source
    checked, messages = transcript.messages()
    needs, answering = Needs(), Answering()
    for number, message in enumerate(messages):
        needs.add(message)
        answering.add(message.target.slug, message.author.outsider)
        if number % BATCH == 0:
            progress(CHECKING, source.bytes_read, source.size)
    if unused := checked.speakers.unused():
        names = ", ".join(repr(name) for name in list(checked.tally.speakers)[:20])
        raise OptionError(
            f"--map {unused[0]!r}: no such speaker or role in {source.name}; its speakers: {names or 'none'}"
        )
    needs.check(rights or Rights())
    source.check_unchanged()
    _, messages = transcript.messages()
    doing = COMPARING if dry_run else IMPORTING
    total = _store(
        messages,
        write=count_batch if dry_run else partial(write_batch, job=job, on_new=on_new),
        report=lambda done: progress(doing, done, checked.tally.messages),
    )
    lost = link_orphans(total.orphans)
    speakers = checked.tally.speakers
    has_agent = any(slug for slug, _ in speakers.values())
    by_messages = sorted(speakers, key=lambda name: -speakers[name][1])
    return ImportReport(
        format=transcript.format,
        channels=checked.targets.slugs,
        read=checked.tally.read,
        imported=total.imported,
        duplicates=total.duplicates,
        other_author=total.other_author,
        skipped=checked.tally.skipped,
        system_prompts=checked.tally.system_prompts,
        speakers=speakers,
        likely_agents={} if has_agent else likely_agents(by_messages, answering=answering.speaker),
        replaced_characters=checked.cleaner.replaced,
        cut_texts=checked.cleaner.cut,
        replies_without_parent=lost,
        dry_run=dry_run,
    )


def _store(
    messages: Iterator[Prepared], *, write: Callable[[list[Prepared]], BatchResult], report: Callable[[int], None]
) -> BatchResult:
    imported = duplicates = other_author = 0
    orphans: list[tuple[int, Key]] = []
    report(0)
    while batch := list(islice(messages, BATCH)):
        result = write(batch)
        imported += result.imported
        duplicates += result.duplicates
        other_author += result.other_author
        orphans += result.orphans
        report(imported + duplicates)
    return BatchResult(imported, duplicates, other_author, tuple(orphans))
