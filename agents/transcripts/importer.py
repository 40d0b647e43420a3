"""Import a transcript: check all of the file, then store it in batches. One bad line, and nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypedDict, Unpack

from pydantic import BaseModel, Field

from agents.models import Import, Message
from agents.models.conversations import TAG_KEY
from agents.transcripts.json_input import bad_tag_key
from agents.transcripts.prepare import Likely, Prepared, Preparer, Speakers, Targets, Unknown
from agents.transcripts.readers import READERS, detect
from agents.transcripts.records import OptionError, zone
from agents.transcripts.source import Source
from agents.transcripts.store import Key, Rights, check_rights, count_batch, link_orphans, write_batch

BATCH = 1000
AUTO = "auto"
CHECKING, COMPARING, IMPORTING = "Checking", "Comparing", "Importing"
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it, and how much there is."""


class SpeakerCount(BaseModel):
    """Who a speaker is, and how much was said."""

    agent: str | None = Field(description="slug; null = an outsider or a user")
    messages: int


class ImportReport(BaseModel):
    """What an import did, or would do. ``read = imported + duplicates + skipped + system_prompts``.

    `--json` and the API show it. `likely_agents` are guesses, made only where no speaker is an agent.
    """

    format: str
    channels: list[str] = Field(description="slugs")
    read: int
    imported: int
    duplicates: int
    skipped: int
    system_prompts: int
    other_author: int = Field(description="duplicates that are stored under another author")
    speakers: dict[str, SpeakerCount]
    likely_agents: dict[str, Likely] = Field(exclude=True)
    replaced_characters: int
    cut_texts: int
    replies_without_parent: int
    dry_run: bool
    skipped_by_reason: dict[str, int]

    @property
    def has_agent(self) -> bool:
        """Whether an agent says anything in it."""
        return any(speaker.agent for speaker in self.speakers.values())


class ReadOptions(TypedDict, total=False):
    """How a transcript is read, see `import_transcript`."""

    format: str
    channel: str
    speaker_map: Mapping[str, str] | None
    tags: Mapping[str, str] | None
    columns: Mapping[str, str] | None
    time_zone: str
    stem: str


class Transcript:
    """A file that is about to be read, with options that are checked. Reading it twice gives the same messages."""

    def __init__(
        self,
        *,
        path: Path,
        format: str = AUTO,
        channel: str = "",
        speaker_map: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        columns: Mapping[str, str] | None = None,
        time_zone: str = "",
        stem: str = "",
    ) -> None:
        """Check the options and detect the format; the arguments are those of `import_transcript`.

        Raises:
            TranscriptError: There is no such file, or its format is not recognised.
            OptionError: Unknown format or time zone, a tag key that is not allowed, columns of a file that is no CSV.
        """
        if format != AUTO and format not in READERS:
            raise OptionError(f"unknown format {format!r}; allowed: {AUTO}, {', '.join(READERS)}")
        self.source = Source(path)
        self.source.stem = stem or self.source.stem
        self.format = ("csv" if columns else detect(self.source)) if format == AUTO else format
        for key in tags or {}:
            if not TAG_KEY.fullmatch(key):
                raise OptionError(f"--tag: {bad_tag_key(key)}")
        if columns and self.format != "csv":
            raise OptionError(f"--columns is for CSV; this file is to be read as {self.format}")
        try:
            self._zone = zone(time_zone)
        except ValueError as error:
            raise OptionError(str(error)) from None
        self._channel, self._speaker_map, self._tags, self._columns = (
            channel,
            speaker_map or {},
            tags or {},
            columns or {},
        )

    def messages(self, on_unknown: Unknown | None = None) -> tuple[Preparer, Iterator[Prepared]]:
        """Its messages from the first on, and what counts them. Without `on_unknown` an unknown agent is an error."""
        preparer = Preparer(
            path=self.source.name,
            speakers=Speakers(self._speaker_map, on_unknown=on_unknown),
            targets=Targets(wished=self._channel, stem=self.source.stem),
            tags=self._tags,
            zone=self._zone,
        )
        return preparer, preparer.messages(READERS[self.format](self.source, self._columns))


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
    transcript = Transcript(path=path, **options)
    source = transcript.source
    checked, messages = transcript.messages()
    for number, _ in enumerate(messages):
        if number % BATCH == 0:
            progress(CHECKING, source.bytes_read, source.size)
    if unused := checked.speakers.unused():
        names = ", ".join(repr(name) for name in list(checked.tally.speakers)[:20])
        raise OptionError(
            f"--map {unused[0]!r}: no such speaker or role in {source.name}; its speakers: {names or 'none'}"
        )
    check_rights(checked.tally.authors, rights or Rights())
    source.check_unchanged()
    _, messages = transcript.messages()
    imported = duplicates = other_author = 0
    orphans: list[tuple[int, Key]] = []
    doing = COMPARING if dry_run else IMPORTING
    progress(doing, 0, checked.tally.messages)
    while batch := list(islice(messages, BATCH)):
        result = count_batch(batch) if dry_run else write_batch(batch, job=job, on_new=on_new)
        imported += result.imported
        duplicates += result.duplicates
        other_author += result.other_author
        orphans += result.orphans
        progress(doing, imported + duplicates, checked.tally.messages)
    return ImportReport(
        format=transcript.format,
        channels=checked.targets.slugs,
        read=checked.tally.read,
        imported=imported,
        duplicates=duplicates,
        other_author=other_author,
        skipped=sum(checked.tally.skipped.values()),
        skipped_by_reason=dict(checked.tally.skipped),
        system_prompts=checked.tally.system_prompts,
        speakers={name: SpeakerCount(agent=slug, messages=n) for name, (slug, n) in checked.tally.speakers.items()},
        likely_agents=checked.tally.likely_agents(),
        replaced_characters=checked.cleaner.replaced,
        cut_texts=checked.cleaner.cut,
        replies_without_parent=link_orphans(orphans),
        dry_run=dry_run,
    )
