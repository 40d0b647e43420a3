"""Counting ideas: list those of each part of the conversation, then collapse the lists into one (S-6.6).

Every conversation, short or long, goes the same way: its parts are listed one by one, and what was listed is collapsed over all
parts, so that the count does not depend on where the conversation was cut. What a part holds is stored as it is read; a run that is
taken up again asks only for the parts that are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import sentry_sdk
from django.conf import settings
from django.db import transaction

from agents.llm import Label, LLMRequest, Reply, Status, complete_many
from agents.llm.answers import one_line
from evaluation.execution import GIVE_UP_AFTER, JudgeDown, Progress, Session, save_verdicts
from evaluation.failures import FAILURES
from evaluation.idea_collapse import Collapse
from evaluation.idea_requests import LONGEST_DESCRIPTION, LONGEST_IDEA, ListedIdea, listing_request
from evaluation.models import EvaluationScore, Idea, IdeaPart, is_heuristic
from evaluation.scorers import ideas_quantity
from evaluation.scorers.channel import ChannelSubject
from evaluation.verdicts import Verdict, unscored

AGAIN = (Status.REFUSED, Status.TRUNCATED, Status.RATE_LIMITED, Status.UNAVAILABLE)
NOTHING_MARKED = "needs an LLM judge: no message lists ideas as points or announces one"


@dataclass(slots=True)
class Job:
    """A count to make: its row, the parts still to be listed, and the first reason why it cannot be made."""

    session: Session
    subject: ChannelSubject
    row: EvaluationScore
    label: Label
    parts: int = 0
    problem: str = ""
    last: Reply | None = None
    waiting: list[IdeaPart] = field(default_factory=list)


def count_ideas(sessions: Sequence[Session], dimension: str, progress: Progress) -> None:
    """Make every pending count, over all sessions at once.

    Raises:
        JudgeDown: None of the first calls was answered.
    """
    with sentry_sdk.start_span(op=f"evaluation.{dimension}", name=f"score {dimension}") as span:
        jobs = [job for session in sessions for job in _jobs(session, dimension, progress)]
        calls = _Calls(sessions)
        for again in (False, True):
            wanted = ((job, part) for job in jobs for part in _open_parts(job, again=again))
            for (job, part, positions), reply in calls.ask(_listings(wanted, tokens=8000 if again else 4000)):
                _store_listing(job, part, positions, reply, again=again)
        _collapse([job for job in jobs if not job.problem], calls)
        for job in jobs:
            if job.session.keep():
                _finish(job)
                progress(job.session.run, 1)
        span.set_data("answered_calls", calls.answered)
        span.set_data("failed_calls", calls.failed)


def _jobs(session: Session, dimension: str, progress: Progress) -> Iterator[Job]:
    run, subject = session.run, session.subject
    if dimension not in run.own_dimensions or not isinstance(subject, ChannelSubject):
        return
    label = Label(purpose="evaluation", mechanism=dimension, dimension=dimension, work_id=run.work_id)
    hindrance = ideas_quantity.not_evaluable(subject)
    for row in EvaluationScore.objects.filter(evaluation_run=run, dimension=dimension, status="pending").order_by("pk"):
        if not session.keep():
            return
        if hindrance:
            save_verdicts([row], [unscored(hindrance)], None)
            progress(run, 1)
            continue
        if not row.idea_parts.exists():
            places = enumerate(ideas_quantity.stretches(subject), 1)
            IdeaPart.objects.bulk_create(
                [
                    IdeaPart(evaluation_score=row, number=n, first_position=first, last_position=last)
                    for n, (first, last) in places
                ],
                batch_size=500,
            )
        yield Job(session, subject, row, label, parts=row.idea_parts.count())


def _open_parts(job: Job, *, again: bool) -> Iterator[IdeaPart]:
    """Parts to list: all that are missing, or a second time those whose first call went wrong in passing."""
    if again:
        parts, job.waiting = job.waiting, []
    else:
        parts = list(job.row.idea_parts.filter(listed=False))
    for part in parts:
        if not job.session.keep():
            return
        if not job.problem:
            yield part


Asked = tuple[Job, IdeaPart, list[int]]


def _listings(wanted: Iterator[tuple[Job, IdeaPart]], *, tokens: int) -> Iterator[tuple[Asked, LLMRequest]]:
    """The requests for parts, made one by one while earlier ones are being answered."""
    for job, part in wanted:
        said = job.subject.said().filter(position__range=(part.first_position, part.last_position))
        messages = list(said.select_related("agent", "user"))
        proposition = job.session.propositions[job.row.dimension, job.row.proposition_id]
        request = listing_request(
            name=job.subject.name,
            proposition=proposition,
            events=[job.subject.event(message) for message in messages],
            part=(part.number, job.parts),
            label=job.label,
            model=job.session.run.judge,
            nonce=job.session.nonce,
            max_tokens=tokens,
        )
        yield (job, part, [message.position for message in messages]), request


def _store_listing(job: Job, part: IdeaPart, positions: list[int], reply: Reply, *, again: bool) -> None:
    job.last = reply
    if not reply.ok:
        if reply.status in AGAIN and not again:
            job.waiting.append(part)
        else:
            job.problem = job.problem or f"{reply.status}: part {part.number} of {job.parts}: {reply.error}"
        return
    if job.session.lost:
        return
    listed: list[ListedIdea] = reply.value
    ideas = [
        Idea(
            part=part,
            number=number,
            idea=one_line(entry.idea, LONGEST_IDEA),
            description=one_line(entry.description, LONGEST_DESCRIPTION),
            positions=sorted({positions[n - 1] for n in entry.entries if 1 <= n <= len(positions)}),
        )
        for number, entry in enumerate(listed, 1)
    ]
    with transaction.atomic():
        if IdeaPart.objects.filter(pk=part.pk, listed=False).update(listed=True):
            Idea.objects.bulk_create(ideas)


def _collapse(jobs: Sequence[Job], calls: _Calls) -> None:
    """Collapse every job's list; calls of different jobs are in flight together, those of one after another."""
    collapses = {id(job): (job, Collapse(_ideas_of(job))) for job in jobs}
    open_jobs = dict(collapses)
    while open_jobs:
        requests = [
            (key, request)
            for key, (job, collapse) in open_jobs.items()
            if job.session.keep()
            and (request := collapse.request(job.subject.name, job.label, job.session)) is not None
        ]
        open_jobs = {key: collapses[key] for key, _ in requests}
        for key, reply in calls.ask(iter(requests)):
            job, collapse = collapses[key]
            job.last = reply
            if not reply.ok and not collapse.may_ask_again(reply.status in AGAIN):
                job.problem = f"{reply.status}: collapsing the list: {reply.error}"
                del open_jobs[key]
            elif reply.ok:
                collapse.take(reply.value)
    for job, collapse in collapses.values():
        if not job.problem and not job.session.lost:
            collapse.store()


def _ideas_of(job: Job) -> list[Idea]:
    return list(Idea.objects.filter(part__evaluation_score=job.row).order_by("part__number", "number"))


def _finish(job: Job) -> None:
    """Store the count, or why there is none: a part that could not be read makes every number wrong."""
    run, reply = job.session.run, job.last
    who: dict[str, Any] = {
        "judge": run.judge,
        "served_model": one_line(reply.served_model, 200) if reply else "",
        "call": reply.call_id if reply else None,
    }
    if job.problem:
        save_verdicts([job.row], [unscored(job.problem, **who)], None)
        return
    listed = _ideas_of(job)
    distinct = [idea for idea in listed if idea.same_as_id is None]
    if not distinct and is_heuristic(run.judge):
        save_verdicts([job.row], [unscored(NOTHING_MARKED, **who)], None)
        return
    parts = f" in {job.parts} parts" if job.parts > 1 else ""
    reasoning = f"{len(listed)} ideas listed{parts}, {len(listed) - len(distinct)} of them the same as another one."
    verdict = Verdict(status="scored", evidence="present" if listed else "absent", reasoning=reasoning, **who)
    job.row.count = len(distinct)
    snippet = " / ".join(idea.idea for idea in distinct[:5])
    save_verdicts([job.row], [replace(verdict, justification=snippet)], None)


Key = TypeVar("Key")


class _Calls:
    """Asks, keeps the claims of all sessions alive meanwhile, and notices a judge that answers nothing."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self.sessions, self.answered, self.failed = sessions, 0, 0

    def ask(self, requests: Iterator[tuple[Key, LLMRequest]]) -> Iterator[tuple[Key, Reply]]:
        """Requests with a key each; their replies as they come."""
        keys: dict[int, Key] = {}

        def plain() -> Iterator[LLMRequest]:
            for index, (key, request) in enumerate(requests):
                keys[index] = key
                yield request

        for index, reply in complete_many(plain(), deadline=settings.LLM_EVALUATION_DEADLINE):
            for session in self.sessions:
                session.keep()
            if reply.status in FAILURES:
                self.failed += 1
            else:
                self.answered += 1
            yield keys.pop(index), reply
            if self.failed >= GIVE_UP_AFTER and not self.answered:
                raise JudgeDown(f"the judge answered none of the first calls; the last: {reply.status}: {reply.error}")
