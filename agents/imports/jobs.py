"""What users do with an import (upload, choose, cancel, discard, re-assign an author, undo), and what a worker does for it."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.files import File
from django.db import transaction
from django.db.models import Count, Exists, F, Model, OuterRef, QuerySet, Sum
from django.utils import timezone

from agents.imports.reading import (
    MOST_CHANNELS,
    MOST_PERSONAS,
    PERSONA_ENDINGS,
    Choices,
    NewAgent,
    NotPossible,
    header_of,
    look,
    may_import_transcripts,
    may_make_speakers,
    not_possible,
    persona_rows,
    read_and_import_personas,
)
from agents.imports.uploads import NotKept, are_kept, drop, store, write_into
from agents.models import (
    Agent,
    Channel,
    ChannelMember,
    Import,
    ImportChunk,
    ImportFile,
    MemoryBlock,
    Message,
    PersonaVersion,
    Trait,
)
from agents.ops.deletion import consequences
from agents.ops.telemetry import logging_about
from agents.persona import Outcome, PersonaMovedOn, current_digest, restore_version, save_persona
from agents.personas_io.reader import YAML
from agents.transcripts.importer import import_transcript
from agents.transcripts.prepare import NAME_LIMIT
from agents.transcripts.records import OptionError, TranscriptError
from agents.transcripts.store import JOINING, NotEntitled, rights_of
from agents.work.lease import LeaseLost
from agents.work.queues import do_next, wake_workers
from agents.work.running import check_stop, outlasting

Status = Import.Status
LEASE = timedelta(minutes=5)  # a batch of messages takes a second, one large JSON document some more
REPORT_EVERY = 1.0  # seconds
UNDO_BATCH = 1_000  # messages
MOST_YAML = 64 * 1024
"""Bytes of YAML that are read for a preview: larger files take seconds, so only the worker reads them."""
MOST_UNFINISHED = 10
MOST_KEPT = 5
"""A user's files that wait may be as large as so many of the largest imports together."""

log = logging.getLogger(__name__)


class NotNow(Exception):
    """The import is in another state than the user saw. Says which."""


def upload(*, uploads: Sequence[File[bytes]], user: User) -> Import:
    """Store files, at least one, and look into them; they are imported with the permissions of `user`.

    Raises:
        NotNow: The user has too many imports, or bytes of files, that are not done.
    """
    unfinished = Import.objects.filter(created_by=user).filter(
        Exists(ImportChunk.objects.filter(file__of=OuterRef("pk")))
    )
    count, most = unfinished.count(), MOST_KEPT * settings.IMPORT_MOST_BYTES
    total = ImportFile.objects.filter(of__in=unfinished).aggregate(total=Sum("size"))["total"] or 0
    oldest = ", ".join(f"import {pk}" for pk in unfinished.order_by("pk").values_list("pk", flat=True)[:3])
    advice = f"import or discard some first, e.g. {oldest}"
    if count >= MOST_UNFINISHED:
        raise NotNow(f"you have {count} imports that are not done, the most there may be: {advice}")
    if total > most:
        raise NotNow(f"your imports that are not done keep {total:,} bytes, of at most {most:,}: {advice}")
    personas = len(uploads) > 1 or str(uploads[0].name).lower().endswith(PERSONA_ENDINGS)
    kind = Import.Kind.PERSONAS if personas else Import.Kind.TRANSCRIPT  # the preview settles it
    with transaction.atomic():
        job: Import = Import.objects.create(kind=kind, created_by=user, choices=Choices().as_json())
        store(job, uploads)
    preview(job, Choices())
    return job


def preview(job: Import, choices: Choices) -> None:
    """Store other choices and what the files hold with them, read up to `PREVIEWED` messages.

    Raises:
        NotNow: The import is in progress or done.
    """
    before = Choices.of(job)
    if (before.format, before.columns) != (choices.format, choices.columns):  # the file has other speakers then
        choices = replace(choices, agents={}, made={})
    fields: dict[str, Any] = {"status": Import.WAITING, "error": "", "choices": choices.as_json()}
    try:
        with tempfile.TemporaryDirectory(prefix="plumbline-import-") as place:
            yaml = sum(file.size for file in job.files.all() if file.name.lower().endswith(YAML))
            if job.kind == Import.Kind.PERSONAS and yaml > MOST_YAML:
                unread = {"personas": [], "personas_total": job.files.count(), "outcomes": {}, "new": 0, "unread": True}
                fields |= {"contents": unread}
            else:
                paths = _files(job, Path(place))
                job.contents = {
                    "header": header_of(next(iter(paths)))
                }  # for the choice of columns when it cannot be read
                kind, contents = look(paths=paths, choices=choices, user=_user(job))
                fields |= {"kind": kind, "contents": contents}
    except NotPossible as problem:
        fields |= _failed(job, problem)
    _edit(job, **fields)


def submit(job: Import, choices: Choices) -> None:
    """Have a worker import the files; what an earlier try stored is not stored twice.

    Raises:
        NotNow: The preview says why not, or the import is in progress, done, or without its files.
    """
    contents = job.contents
    if contents.get("refusal"):
        raise NotNow(contents["refusal"])
    if contents.get("no_agent") and not (choices.made or any(choices.agents.values()) or choices.without_agents):
        raise NotNow("no speaker is an agent: say who is one, or confirm that it is to be imported without")
    decided = {*choices.agents, *choices.made}
    if any(row["why"] and row["name"] not in decided for row in contents.get("speakers", ())):
        raise NotNow("first say who the speakers are that no agent is known for")
    _edit(job, status=Status.PENDING, undoing=False, choices=choices.as_json(), **_start(job))
    wake_workers()


def cancel(job: Import) -> None:
    """Stop the worker. What is stored stays; the import can be submitted again while its files are stored.

    Raises:
        NotNow: It is not in progress.
    """
    ended = {"status": Status.CANCELLED, "finished_at": timezone.now()}
    _move(job, Import.OPEN, lease_owner="", lease_expires_at=None, **ended)


def discard(job: Import) -> None:
    """Delete the files of an import that is not done; what is stored stays.

    Raises:
        NotNow: It is in progress or done.
    """
    _edit(job, status=Status.CANCELLED, contents={}, finished_at=timezone.now())
    drop(job)


def undo(job: Import) -> None:
    """Have a worker delete what the import stored: messages, channels and agents that are empty without it, persona versions.

    Raises:
        NotNow: It is in progress, or stored nothing.
    """
    if not job.stored:
        raise NotNow(f"{job} stored nothing")
    _move(job, (*Import.FINAL, Import.WAITING), status=Status.PENDING, undoing=True, **_start(job))
    wake_workers()


def reassign(job: Import, *, author: Mapping[str, Any], agent: Agent | None, outsider: str, user: User) -> int:
    """Give the messages of one author in this import another author; returns how many.

    Args:
        job: A finished import.
        author: ``agent_id``, ``user_id`` and ``outsider`` of its messages, as `authors_of` returns them.
        agent: The new author; None = `outsider`, a name of 1 to 200 characters.
        user: Must have the permission for agents to join channels when this agent would join one.

    Raises:
        NotNow: The import is in progress, or the user may not let the agent join.
    """
    if job.status in Import.OPEN:
        raise NotNow(f"{job} is {job.get_status_display()}")
    if agent is None and not 0 < len(outsider) <= NAME_LIMIT:
        raise NotNow(f"a speaker's name has 1 to {NAME_LIMIT} characters, got {len(outsider)}")
    with transaction.atomic():
        messages = Message.objects.filter(imported_by=job, **author)
        if agent is not None:
            channels = list(messages.order_by().values_list("channel", flat=True).distinct())
            members = set(ChannelMember.objects.filter(agent=agent).values_list("channel", flat=True))
            joining = [channel for channel in channels if channel not in members]
            if joining and not user.has_perm(JOINING):
                raise NotNow(f"{agent.slug} would join {len(joining)} channels: that needs the permission {JOINING}")
            rows = [ChannelMember(channel_id=channel, agent=agent) for channel in joining]
            ChannelMember.objects.bulk_create(rows, ignore_conflicts=True)
        return messages.update(agent=agent, user=None, outsider="" if agent else outsider)


def authors_of(job: Import) -> list[dict[str, Any]]:
    """The authors of the messages that an import stored, with their numbers of messages, most first."""
    rows = Message.objects.filter(imported_by=job).order_by()
    counted = rows.values("agent_id", "user_id", "outsider").annotate(messages=Count("pk"))
    return [dict(row) for row in counted.order_by("-messages", "outsider", "agent_id", "user_id")]


def work_one(*, owner: str) -> bool:
    """Do the import that has waited longest; return whether there was one."""
    return do_next(Import, lambda job: _carry_out(job, owner), owner=owner, lease=LEASE)


def _carry_out(job: Import, owner: str) -> dict[str, Any] | None:
    report = _Report(job, owner)
    with logging_about(import_id=job.pk):
        try:
            (_undo if job.undoing else _import)(job, owner, report)
        except NotPossible as problem:
            return _failed(job, problem)
    return None


def _import(job: Import, owner: str, report: _Report) -> None:
    user, choices = _user(job), Choices.of(job)
    with tempfile.TemporaryDirectory(prefix="plumbline-import-") as place:
        paths = _files(job, Path(place), report)
        if job.kind == Import.Kind.PERSONAS:
            with transaction.atomic():
                result = _import_personas(paths, choices, user)
                _finish(job, owner, result=result, stored=result["new"])
        else:
            _finish(job, owner, result=_import_messages(job, paths, choices, user, report))
    drop(job)


def _import_messages(
    job: Import, paths: Mapping[Path, str], choices: Choices, user: User, report: _Report
) -> dict[str, Any]:
    """Check the whole file, make the agents for its speakers, then store it."""
    if not may_import_transcripts(user) or (choices.made and not may_make_speakers(user)):
        raise NotPossible(f"{user} may not import this any more: a permission was removed.")
    (path, name), *_ = paths.items()
    _, contents = look(paths=paths, choices=choices, user=user, most=None, progress=report)
    Import.objects.filter(pk=job.pk).update(contents=contents)
    job.contents = contents
    if contents["refusal"]:
        raise NotPossible(contents["refusal"])
    if contents["undecided"]:
        raise NotPossible(f"Say who these speakers are: {contents['undecided']} name agents that are not known here.")
    if contents["no_agent"] and not choices.without_agents:
        raise NotPossible(
            "No speaker is one of your agents: say who is one, or confirm that it is to be imported without."
        )
    made = _make_agents(choices.made, user=user, note=f"import {job.pk}")
    try:
        imported = import_transcript(
            path=path,
            rights=rights_of(user),
            job=job,
            progress=report,
            on_new=report.stored,
            **choices.options(name, made=True),
        )
    except (TranscriptError, OptionError, NotEntitled) as error:
        Agent.objects.filter(pk__in=[agent.pk for agent in made], messages=None).delete()
        raise not_possible(error, paths) from None
    return {
        **imported.model_dump(exclude={"speakers", "dry_run"}),
        "channels": imported.channels[:MOST_CHANNELS],
        "channels_total": len(imported.channels),
        "agents": [agent.slug for agent in choices.made.values()],
        "spoke": sorted({speaker.agent for speaker in imported.speakers.values() if speaker.agent})[:MOST_PERSONAS],
    }


def _make_agents(wanted: Mapping[str, NewAgent], *, user: User, note: str) -> list[Agent]:
    """Make the agents for speakers that do not exist yet; returns those that were made now.

    Raises:
        NotPossible: Another agent has got the name meanwhile.
    """
    made = []
    with transaction.atomic():
        for new in {agent.slug: agent for agent in wanted.values()}.values():
            there = Agent.objects.filter(slug=new.slug).first()
            if there is None:
                agent = Agent(slug=new.slug, display_name=new.display_name, system_prompt=new.system_prompt)
                save_persona(agent=agent, traits=(), note=note, source="import", user=user)
                made.append(agent)
            elif not there.persona_versions.filter(number=1, note=note).exists():
                raise NotPossible(
                    f"There is an agent {new.slug!r} by now, made by another user: choose it for the speaker, or another id "
                    "for the new one."
                )
    return made


def _import_personas(paths: Mapping[Path, str], choices: Choices, user: User) -> dict[str, Any]:
    before = dict(PersonaVersion.objects.order_by("number").values_list("agent__slug", "number"))
    _, results = read_and_import_personas(paths=paths, reset=choices.reset, user=user, dry_run=False)
    updated = {r.agent: before.get(r.agent.slug) for r in results if r.outcome == Outcome.UPDATED}
    return {
        **persona_rows(results),
        "agents": [r.agent.slug for r in results if r.outcome == Outcome.CREATED],
        "restore": {
            agent.slug: {"number": number, "seen": current_digest(agent)} for agent, number in updated.items() if number
        },
    }


def _undo(job: Import, owner: str, report: _Report) -> None:
    """Delete in batches, each whole or not at all; a killed undo goes on where it was."""
    total, deleted = Message.objects.filter(imported_by=job).count(), 0
    while keys := list(Message.objects.filter(imported_by=job).values_list("pk", flat=True)[:UNDO_BATCH]):
        with transaction.atomic():
            report("Deleting", deleted, total)
            batch = Message.objects.filter(pk__in=keys)
            channels = list(batch.order_by().values_list("channel", flat=True).distinct())
            batch.delete()
            made = Channel.objects.filter(pk__in=channels, created_at__gte=job.created_at, messages=None)
            _delete_unused(made, {ChannelMember})
        deleted += len(keys)
    user = _user(job)
    with transaction.atomic():
        agents = Agent.objects.filter(slug__in=job.result.get("agents", ()))
        staying = _delete_unused(agents, {PersonaVersion, Trait, MemoryBlock, ChannelMember})
        for slug, version in job.result.get("restore", {}).items():
            earlier = PersonaVersion.objects.filter(agent__slug=slug, number=version["number"]).first()
            try:
                if earlier is not None:
                    restore_version(version=earlier, seen=version["seen"], user=user)
            except PersonaMovedOn:
                staying.append(slug)
        _finish(job, owner, status=Import.UNDONE, result={**job.result, "kept_agents": staying}, stored=0)
    drop(job)


def _delete_unused(rows: QuerySet[Any], with_them: set[type[Model]]) -> list[str]:
    """Delete rows that nothing but `with_them` depends on; returns the slugs of the others."""
    staying = []
    for row in rows:
        lost = consequences([row])
        if lost.protecting or set(lost.deleted) - with_them:
            staying.append(row.slug)
        else:
            row.delete()
    return staying


_AT_REST: dict[str, Any] = {"doing": "", "done": 0, "total": 0}


def _finish(job: Import, owner: str, *, status: str = Status.COMPLETED, **fields: Any) -> None:
    contents = {key: value for key, value in job.contents.items() if key not in ("sample", "personas", "problem")}
    if not job.finish(owner=owner, status=status, contents=contents, **_AT_REST, **fields):
        raise LeaseLost("another worker has it, or it was cancelled")


class _Report:
    """Stores progress once a second, and extends the lease with it."""

    def __init__(self, job: Import, owner: str) -> None:
        self._pk, self._owner = job.pk, owner
        self._at, self._doing = float("-inf"), ""

    def __call__(self, doing: str, done: int, total: int) -> None:
        check_stop()
        if doing == self._doing and time.monotonic() - self._at < REPORT_EVERY:
            return
        self._doing, self._at = doing, time.monotonic()
        self._update(doing=doing, done=done, total=total, lease_expires_at=timezone.now() + LEASE)

    def stored(self, messages: Sequence[Message]) -> None:
        """Count messages inside the transaction that stores them: a worker that lost the import stores nothing more."""
        self._update(stored=F("stored") + len(messages))

    def _update(self, **fields: Any) -> None:
        mine = Import.objects.filter(pk=self._pk, status=Status.RUNNING, lease_owner=self._owner)
        if not outlasting(lambda: mine.update(**fields)):
            raise LeaseLost("another worker has it, or it was cancelled")


def _user(job: Import) -> User:
    user = User.objects.filter(pk=job.created_by_id, is_active=True).first() if job.created_by_id else None
    if user is None:
        raise NotPossible("The user who uploaded this has no account here any more: upload it again.")
    return user


def _files(job: Import, folder: Path, report: _Report | None = None) -> dict[Path, str]:
    try:
        paths = write_into(
            folder, job, progress=lambda done, total: report("Fetching", done, total) if report else None
        )
    except NotKept as error:
        raise NotPossible(str(error)) from None
    if not paths:
        raise NotPossible("No file was uploaded.")
    return paths


def _failed(job: Import, problem: NotPossible) -> dict[str, Any]:
    return {"status": Status.FAILED, "error": str(problem), "contents": {**job.contents, "problem": problem.as_json()}}


def _start(job: Import) -> dict[str, Any]:
    contents = {key: value for key, value in job.contents.items() if key != "problem"}
    return {"error": "", "finished_at": None, "started_at": None, "contents": contents, **_AT_REST}


def _edit(job: Import, **fields: Any) -> None:
    """Change an import that waits for a person, unless its files are gone."""
    if not are_kept(job):
        raise NotNow("the files are not stored any more: upload them again")
    _move(job, Import.EDITABLE, **fields)


def _move(job: Import, states: Sequence[str], **fields: Any) -> None:
    """Change an import that is in one of these states."""
    done = Import.objects.filter(pk=job.pk, status__in=states).update(**fields)
    job.refresh_from_db()
    if not done:
        raise NotNow(f"{job} is {job.get_status_display()}")
