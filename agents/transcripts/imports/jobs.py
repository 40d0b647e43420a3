"""What users do with an uploaded transcript (upload, answer, choose, cancel, discard, undo), and what a worker does for it."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.core.files import File
from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet
from django.utils import timezone

from agents.kit.files.json_input import begins_like_json
from agents.kit.files.source import FileError, Source
from agents.kit.models.lease import LeaseLost
from agents.kit.ops.deletion import consequences
from agents.kit.ops.telemetry import logging_about
from agents.kit.running import check_stop, retry_on_outage
from agents.kit.work.queues import do_next, wake_workers
from agents.models import Channel, ChannelMember, Import, ImportChunk, Message
from agents.transcripts.importer import AUTO, BATCH, PreparedTranscript, ReadOptions, Transcript, import_transcript
from agents.transcripts.imports.questions import BOT, NotAnAnswer, open_question, options_with, questions_of
from agents.transcripts.imports.uploads import drop, is_stored, plain_name, store, write_out
from agents.transcripts.prepare import Prepared, Preparer
from agents.transcripts.readers import UnknownKeys, detect
from agents.transcripts.readers.csv_table import columns_of, header_of, keys_of, usual_columns, usual_tags
from agents.transcripts.records import OptionError
from agents.transcripts.store import NotEntitled, check_rights, count_batch, rights_of

Status = Import.Status
LEASE = timedelta(minutes=5)  # a batch of messages takes a second, one large JSON document some more
REPORT_EVERY = 1.0  # seconds
UNDO_BATCH = 1_000  # messages
MOST_UNFINISHED = 10
PREVIEWED = 2_000  # messages a preview reads; the worker reads all
MOST_SPEAKERS, MOST_CHANNELS, MOST_COLUMNS = 100, 50, 60  # that are shown
SAMPLE, SAMPLE_CHARACTERS = 8, 400
EXAMPLES, EXAMPLE_CHARACTERS = 2, 120  # of a speaker
_AT_REST: dict[str, Any] = {"doing": "", "done": 0, "total": 0}


class NotNow(Exception):
    """The import is in another state than the user saw. Says which."""


class NotPossible(Exception):
    """Nothing was imported. Says why."""


def may_import(user: User | AnonymousUser) -> bool:
    """Return whether they may upload messages; which channels and agents it may concern, `agents.transcripts.store` says."""
    return user.has_perm("agents.add_message")


def stored_of(user: User) -> QuerySet[Import]:
    """Return the imports of a user whose file is still stored, the oldest first."""
    pieces = ImportChunk.objects.filter(of=OuterRef("pk"))
    return Import.objects.filter(Exists(pieces), created_by=user).order_by("pk")


def check_room(*, user: User, files: int) -> None:
    """Refuse files that would make more unfinished imports of a user than there may be.

    Raises:
        NotNow: More than `MOST_UNFINISHED`; names the oldest.
    """
    if files > MOST_UNFINISHED:
        raise NotNow(f"{files} conversations at once are more than {MOST_UNFINISHED}, the most there may be")
    unfinished = list(stored_of(user).values_list("pk", flat=True))
    if len(unfinished) + files > MOST_UNFINISHED:
        oldest = ", ".join(f"import {pk}" for pk in unfinished[:3])
        raise NotNow(
            f"you have {len(unfinished)} imports that are not done; at most {MOST_UNFINISHED} may be: import or discard some "
            f"first, e.g. {oldest}"
        )


def upload(*, upload: File[bytes], user: User) -> Import:
    """Store a file and what `preview` finds in it. A worker imports it after `submit`, with the permissions of `user`.

    Raises:
        NotNow: The user has `MOST_UNFINISHED` imports whose file is still stored.
    """
    check_room(user=user, files=1)
    with transaction.atomic():
        job: Import = Import.objects.create(
            name=plain_name(upload.name or ""), size=upload.size, created_by=user, choices=asdict(ReadOptions())
        )
        store(job, upload)
    preview(job, ReadOptions(), first=True)
    return job


def answer(job: Import, *, question_id: str, values: Sequence[str]) -> None:
    """Store the answer to a question about the file, and what the file holds with it.

    Raises:
        NotNow: The question is not asked or has no such answer; or the import is in progress or done, or its file is gone.
    """
    question = next((question for question in questions_of(job) if question.id == question_id), None)
    if question is None:
        raise NotNow("that question is not asked any more")
    try:
        options = options_with(job, question, values)
    except NotAnAnswer as error:
        raise NotNow(str(error)) from None
    preview(job, options, answers={**job.answers, question.id: list(values)})


def preview(
    job: Import, options: ReadOptions, *, answers: Mapping[str, Any] | None = None, first: bool = False
) -> None:
    """Store other choices and what the file holds with them, read up to `PREVIEWED` messages; at first columns with usual names are chosen.

    Who is who is forgotten when the file has other speakers with these choices. Where it cannot be read with them, the reason is stored,
    and the import as failed, unless the answer to a question may help.

    Raises:
        NotNow: The import is in progress or done, or its file is not stored any more.
    """
    answers = dict(job.answers if answers is None else answers)
    if _who_speaks(ReadOptions(**job.choices)) != _who_speaks(options):
        options = replace(options, speaker_map={})
        answers.pop(BOT, None)
    fields: dict[str, Any] = {"status": Import.WAITING, "error": "", "contents": {}}
    fields |= {"choices": asdict(options), "answers": answers}
    with tempfile.TemporaryDirectory(prefix="plumbline-import-") as folder:
        try:
            path = _written_out(job, folder)
            header = _columns(job, path)
            fields["contents"] = {"header": header}  # to choose among, also when it cannot be read with these
            fields["contents"]["columns"] = _column_values(job, path, header)
            usual = _usual_columns(job, path, header, fields["contents"]["columns"]) if first else {}
            if usual:
                options = replace(options, columns=usual)
                fields["choices"] = asdict(options)
            fields["contents"] |= _inspect(job, path, options, most=PREVIEWED)
        except NotPossible as problem:
            fields["error"] = str(problem)
            job.choices = fields["choices"]
            job.contents = fields["contents"]
            if open_question(questions_of(job)) is None:
                fields["status"] = Status.FAILED
    _change_while_editable(job, **fields)


def submit(job: Import, options: ReadOptions) -> None:
    """Have a worker import the file with these choices; what an earlier try stored is not stored twice.

    Raises:
        NotNow: The user lacks a permission, or `options` do not say who the unknown speakers are, as the preview found; or the import
            is in progress, done, or without its file.
    """
    if job.contents.get("refusal"):
        raise NotNow(job.contents["refusal"])
    undecided = [row["name"] for row in job.contents.get("speakers", ()) if row["why"]]
    if not set(undecided) <= set(options.speaker_map):
        raise NotNow("first say who the speakers are that no agent is known for")
    _change_while_editable(job, undoing=False, choices=asdict(options), **_to_be_taken_by_a_worker())
    wake_workers()


def cancel(job: Import) -> None:
    """Stop the worker. What is stored stays; the import can be submitted again while its file is stored.

    Raises:
        NotNow: It is not in progress.
    """
    _change_if_in(
        job, Import.OPEN, status=Status.CANCELLED, finished_at=timezone.now(), lease_owner="", lease_expires_at=None
    )


def discard(job: Import) -> None:
    """Delete the file of an import that is not done; what is stored stays.

    Raises:
        NotNow: It is in progress or done.
    """
    _change_while_editable(job, status=Status.CANCELLED, contents={}, finished_at=timezone.now())
    drop(job)


def undo(job: Import) -> None:
    """Have a worker delete the messages that the import stored, and the channels that are empty without them.

    Raises:
        NotNow: It is in progress, or stored nothing.
    """
    if not job.stored:
        raise NotNow(f"{job} stored nothing")
    _change_if_in(job, (*Import.FINAL, Import.WAITING), undoing=True, **_to_be_taken_by_a_worker())
    wake_workers()


def work_one(*, owner: str) -> bool:
    """Do the import that has waited longest; return whether there was one."""
    return do_next(Import, lambda job: _carry_out(job, owner), owner=owner, lease=LEASE)


def _carry_out(job: Import, owner: str) -> dict[str, Any] | None:
    """Import or undo a leased job, and delete its file.

    Returns:
        None when its end is stored; the columns of a failure that the user can repair, for which the file stays.

    Raises:
        LeaseLost: Another worker has it, or it was cancelled.
    """
    with logging_about(import_id=job.pk):
        try:
            carry_out = _undo if job.undoing else _import
            ended = carry_out(job, _Report(job, owner))
        except NotPossible as problem:
            return {"status": Status.FAILED, "error": str(problem), "contents": job.contents}
    quoting_the_file = ("sample", "warnings", "examples", "columns", "asks", "first_system_prompt")
    contents = {key: value for key, value in job.contents.items() if key not in quoting_the_file}
    if not job.finish(owner=owner, contents=contents, **_AT_REST, **ended):
        raise LeaseLost("another worker has it, or it was cancelled")
    drop(job)
    return None


def _import(job: Import, report: _Report) -> dict[str, Any]:
    """Import the file with the choices of its uploader; return how the work ends.

    Raises:
        NotPossible: It cannot be imported as it is or with these choices.
    """
    user = _uploader(job)
    options = ReadOptions(**job.choices)
    with tempfile.TemporaryDirectory(prefix="plumbline-import-") as folder:
        path = _written_out(job, folder)
        try:
            imported = import_transcript(
                path, options, name=job.name, rights=rights_of(user), job=job, progress=report, on_new=report.stored
            )
        except (FileError, OptionError, NotEntitled) as error:
            with suppress(NotPossible):  # an unknown speaker after the preview is asked for now
                job.contents |= _inspect(job, path, options, most=None)
            raise NotPossible(str(error) if isinstance(error, NotEntitled) else error.problem) from None
    result = imported.model_dump(exclude={"speakers", "dry_run", "warnings"})
    result |= {"channels": imported.channels[:MOST_CHANNELS], "channels_total": len(imported.channels)}
    agents = {speaker.agent for speaker in imported.speakers.values() if speaker.agent}
    result["skipped_lines"] = imported.skipped_lines
    result["spoke"] = sorted(agents)[:MOST_SPEAKERS]
    return {"status": Status.COMPLETED, "result": result}


def _undo(job: Import, report: _Report) -> dict[str, Any]:
    """Delete the messages of an import in batches, each whole or not at all; a killed undo goes on where it was.

    A channel that is empty then is deleted, too, if it was made since the import was, and has nothing but members.

    Returns:
        The columns with which the job ends.
    """
    total = Message.objects.filter(imported_by=job).count()
    deleted = 0
    while keys := list(Message.objects.filter(imported_by=job).values_list("pk", flat=True)[:UNDO_BATCH]):
        with transaction.atomic():
            report("Deleting", deleted, total)
            batch = Message.objects.filter(pk__in=keys)
            channels = list(batch.order_by().values_list("channel", flat=True).distinct())
            batch.delete()
            for channel in Channel.objects.filter(pk__in=channels, created_at__gte=job.created_at, messages=None):
                lost = consequences([channel])
                if not lost.protecting and not set(lost.deleted) - {ChannelMember}:
                    channel.delete()
        deleted += len(keys)
    return {"status": Import.UNDONE, "stored": 0}


class _Report:
    """Stores progress once a second, and extends the lease with it."""

    def __init__(self, job: Import, owner: str) -> None:
        self._import_id = job.pk
        self._owner = owner
        self._reported_at = float("-inf")
        self._doing = ""

    def __call__(self, doing: str, done: int, total: int) -> None:
        """Store what is being done and how far it is, at most once a second for the same step; extends the lease.

        Raises:
            LeaseLost: Another worker has the import, or it was cancelled.
            Stopped: The work has to stop.
        """
        check_stop()
        if doing == self._doing and time.monotonic() - self._reported_at < REPORT_EVERY:
            return
        self._doing = doing
        self._reported_at = time.monotonic()
        self._update(doing=doing, done=done, total=total, lease_expires_at=timezone.now() + LEASE)

    def stored(self, messages: Sequence[Message]) -> None:
        """Count messages inside the transaction that stores them: a worker that lost the import stores nothing more."""
        self._update(stored=F("stored") + len(messages))

    def _update(self, **fields: Any) -> None:
        leased_row = Import.objects.filter(pk=self._import_id, status=Status.RUNNING, lease_owner=self._owner)
        if not retry_on_outage(lambda: leased_row.update(**fields)):
            raise LeaseLost("another worker has it, or it was cancelled")


def _who_speaks(options: ReadOptions) -> tuple[str, ...]:
    """Return the choices by which the speakers of a file are read."""
    form = "csv" if options.format == AUTO else options.format  # columns alone say the form, too
    columns = [options.columns.get(name, "") for name in ("speaker", "role", "text")]
    return (form, *columns)


def _column_values(job: Import, path: Path, header: Sequence[str]) -> dict[str, Any]:
    """Return what the columns of a table or the keys of JSON hold, those that are shown; empty where there are none, or it is malformed."""
    if not header:
        return {}
    with suppress(FileError):
        columns = columns_of(Source(path, name=job.name, accepts_windows=True))
        return {name: columns[name].model_dump() for name in header if name in columns}
    return {}


def _columns(job: Import, path: Path) -> list[str]:
    """Return the columns of a CSV file, by its name or by what it holds, or the keys of JSON with the keys of no format; else nothing."""
    source = Source(path, name=job.name, accepts_windows=True)
    with suppress(FileError):
        try:
            is_csv = path.suffix in (".csv", ".tsv") or detect(source) == "csv"
        except UnknownKeys:
            return [name[:100] for name in keys_of(source)[:MOST_COLUMNS]]
        if is_csv:
            return [name[:100] for name in header_of(source)[:MOST_COLUMNS]]
    return []


def _usual_columns(job: Import, path: Path, header: list[str], values: Mapping[str, Any]) -> dict[str, str]:
    """Return what the columns usually hold, as far as the file's reader does not find it: of CSV the tags, of JSON every field.

    Keys of JSON that hold only objects or lists are left out, for these are no values of a field.
    """
    if not header:
        return {}
    if begins_like_json(Source(path, name=job.name, accepts_windows=True).head().lstrip()):
        return usual_columns([name for name in header if values.get(name, {}).get("examples")])
    return usual_tags(header)


@dataclass(slots=True)
class SpeakerContents:
    """What a speaker says in a file: with which role, in which channels, and how it begins."""

    role: str = ""
    channels: set[str] = field(default_factory=set)
    examples: list[str] = field(default_factory=list)

    def add(self, message: Prepared) -> None:
        self.role = self.role or message.role
        self.channels.add(message.target.slug)
        if len(self.examples) < EXAMPLES:
            self.examples.append(message.text[:EXAMPLE_CHARACTERS])


@dataclass(slots=True)
class FileContents:
    """What was read of a file.

    Attributes:
        prepared: Its preparer has counted the messages.
        unknown: Speaker to why it is not known who that is.
        channels: How many messages each channel has.
        sample: The first messages.
        speakers: What each speaker says, by name.
        new: How many messages are not stored yet.
        complete: Whether all of the file was read.
    """

    prepared: PreparedTranscript
    unknown: dict[str, str]
    channels: Counter[str] = field(default_factory=Counter)
    sample: list[Prepared] = field(default_factory=list)
    speakers: dict[str, SpeakerContents] = field(default_factory=dict)
    new: int = 0
    complete: bool = True


def _inspect(job: Import, path: Path, options: ReadOptions, *, most: int | None) -> dict[str, Any]:
    """Report what the file holds and what importing it would do; stores nothing.

    Args:
        most: Reading stops after about as many messages; None: all of the file is read.

    Raises:
        NotPossible: It cannot be imported as it is or with these choices.
    """
    try:
        transcript = Transcript(path, options, name=job.name)
        contents = _read_contents(transcript, most)
        preparer = contents.prepared.preparer
        counts = preparer.counts
        counts.check_understood(job.name)
    except (FileError, OptionError) as error:
        raise NotPossible(error.problem) from None
    speakers = _speaker_rows(contents)
    guesses = [guess for guess in counts.guesses if guess.question]
    return {
        "format": transcript.format,
        "complete": contents.complete,
        "messages": counts.messages,
        "new": contents.new,
        "speakers": speakers[:MOST_SPEAKERS],
        "speakers_total": len(speakers),
        "examples": {row["name"]: contents.speakers[row["name"]].examples for row in speakers[:MOST_SPEAKERS]},
        "undecided": sum(bool(row["why"]) for row in speakers),
        "no_agent": bool(speakers) and not any(row["slug"] for row in speakers),
        "channels": contents.channels.most_common(MOST_CHANNELS),
        "channels_total": len(contents.channels),
        "skipped_by_reason": dict(counts.skipped),
        "skipped_lines": counts.skipped_lines,
        **counts.times(),
        "undated": counts.undated,
        "without_zone": counts.without_zone,
        "first_without_zone": counts.first_without_zone.isoformat() if counts.first_without_zone else "",
        "asks": {guess.question: {"answer": guess.answer, "example": guess.example} for guess in guesses},
        "warnings": [warning.text for warning in counts.warnings() if not warning.question],
        "system_prompts": counts.system_prompts,
        "first_system_prompt": preparer.cleaner.text(counts.first_system_prompt),
        "replaced_characters": preparer.cleaner.replaced,
        "cut_texts": preparer.cleaner.cut,
        "sample": [_sample_row(message) for message in contents.sample],
        "refusal": _why_not_entitled(job, preparer),
    }


def _read_contents(transcript: Transcript, most: int | None) -> FileContents:
    """Read a file in batches until `most` messages were read (None: all of it); unknown speakers are noted, not refused.

    Raises:
        FileError: The file is malformed.
        OptionError: It has no such column.
    """
    unknown: dict[str, str] = {}
    contents = FileContents(transcript.prepare(unknown.__setitem__), unknown)
    counts = contents.prepared.preparer.counts
    while batch := list(islice(contents.prepared.messages, BATCH)):
        contents.channels.update(message.target.slug for message in batch)
        contents.sample += batch[: SAMPLE - len(contents.sample)]
        for message in batch:
            contents.speakers.setdefault(message.speaker, SpeakerContents()).add(message)
        contents.new += count_batch(batch).imported
        if most is not None and counts.messages >= most:
            contents.complete = False
            break
    return contents


def _why_not_entitled(job: Import, preparer: Preparer) -> str:
    """Return which permission the uploader lacks; empty where none."""
    try:
        check_rights(preparer.counts.authors, rights_of(_uploader(job)))
    except NotEntitled as error:
        return str(error)
    return ""


def _speaker_rows(contents: FileContents) -> list[dict[str, Any]]:
    """Return the speakers of a file, unknown ones first, then by how much they say."""
    rows: list[dict[str, Any]] = []
    for name, counted in contents.prepared.preparer.counts.speakers.items():
        speaker = contents.speakers[name]
        rows.append(
            {
                "name": name,
                "messages": counted.messages,
                "slug": counted.slug or "",
                "why": contents.unknown.get(name, ""),
                "role": speaker.role,
                "conversations": len(speaker.channels),
            }
        )
    return sorted(rows, key=lambda row: (not row["why"], -row["messages"]))


def _sample_row(message: Prepared) -> dict[str, str]:
    text = message.text
    if len(text) > SAMPLE_CHARACTERS:
        text = f"{text[:SAMPLE_CHARACTERS]}…"
    return {"author": message.author.slug or message.author.outsider or "a user", "text": text}


def _uploader(job: Import) -> User:
    user = User.objects.filter(pk=job.created_by_id, is_active=True).first() if job.created_by_id else None
    if user is None:
        raise NotPossible("The user who uploaded this has no account here any more: upload it again.")
    if not may_import(user):
        raise NotPossible(f"{user} may not import messages: that needs the permission agents.add_message.")
    return user


def _written_out(job: Import, folder: str) -> Path:
    path = write_out(job, Path(folder) / f"file{PurePosixPath(job.name).suffix.lower()[:10]}")
    if path is None:
        raise NotPossible(f"{job.name} is not stored any more: upload it again")
    return path


def _to_be_taken_by_a_worker() -> dict[str, Any]:
    """Return the columns of an import that waits for a worker, without what an earlier try left in them."""
    return {"status": Status.PENDING, "error": "", "finished_at": None, "started_at": None, **_AT_REST}


def _change_while_editable(job: Import, **fields: Any) -> None:
    """Change an import that waits for a person.

    Raises:
        NotNow: Its file is gone, or it is in progress or done.
    """
    if not is_stored(job):
        raise NotNow("the file is not stored any more: upload it again")
    _change_if_in(job, Import.EDITABLE, **fields)


def _change_if_in(job: Import, states: Sequence[str], **fields: Any) -> None:
    """Change an import that is in one of these states, in one statement; `job` is as it is in the database afterwards.

    Raises:
        NotNow: It is in another state.
    """
    done = Import.objects.filter(pk=job.pk, status__in=states).update(**fields)
    job.refresh_from_db()
    if not done:
        raise NotNow(f"{job} is {job.get_status_display()}")
