"""Counting ideas: list those of each part of the conversation, then collapse the lists into one (S-6.6).

Every conversation, short or long, goes the same way: its parts are listed one by one, and what was listed is collapsed over all
parts, so that the count does not depend on where the conversation was cut. What a part holds is stored as it is read; a run that is
taken up again asks only for the parts that are missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sentry_sdk
from django.db import transaction

from agents.llm import Label, Reply, Status
from agents.llm.answers import one_line
from evaluation.asking import Ask, Tally, inside
from evaluation.execution import Progress, Session
from evaluation.failures import FAILURES
from evaluation.idea_collapse import Collapse
from evaluation.idea_requests import LONGEST_DESCRIPTION, LONGEST_IDEA, ListedIdea, listing_request
from evaluation.models import EvaluationScore, Idea, IdeaPart, is_heuristic
from evaluation.scorers import ideas_quantity
from evaluation.scorers.base import said
from evaluation.scorers.channel import ChannelSubject
from evaluation.storing import save_verdicts
from evaluation.verdicts import Verdict, unscored

DIMENSION = ideas_quantity.DIMENSION
AGAIN = (Status.REFUSED, Status.TRUNCATED, Status.RATE_LIMITED, Status.UNAVAILABLE)
NOTHING_MARKED = "needs an LLM judge: no message lists ideas as points or announces one"


@dataclass(slots=True)
class Job:
    """A count to make: its row, how many parts are still to be listed, and the first reason why it cannot be made."""

    session: Session
    subject: ChannelSubject
    row: EvaluationScore
    label: Label
    parts: int = 0
    left: int = 0
    problem: str = ""
    last: Reply | None = None
    collapse: Collapse | None = None


class Counting:
    """Every pending count of all sessions: gives what there is to ask, and stores the answers. A list is collapsed once it is whole."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._tally = progress, Tally()
        self._now: deque[Ask] = deque()  # what a reply brought up
        self._later: deque[tuple[Job, IdeaPart]] = deque()  # parts whose first call went wrong in passing
        self._open = 0  # parts whose first call is in flight
        self._span = sentry_sdk.start_span(op=f"evaluation.{DIMENSION}", name=f"score {DIMENSION}")
        self._wanted: deque[Iterator[tuple[Job, IdeaPart]]] = deque()

    def add(self, session: Session) -> None:
        """Count in the channel of this session, too."""
        self._wanted.append(part for job in self._jobs(session) for part in self._open_parts(job))

    def next(self) -> Ask | None:
        """The next thing to ask (a `Source`); made one by one while earlier ones are being answered."""
        with inside(self._span):
            ask = self._next()
        return replace(ask, request=replace(ask.request, span=self._span)) if ask is not None else None

    def close(self) -> None:
        """End its trace."""
        self._span.set_data("answered_calls", self._tally.answered)
        self._span.set_data("failed_calls", self._tally.failed)
        self._span.finish()

    def _next(self) -> Ask | None:
        while not self._now and self._wanted:
            if (found := next(self._wanted[0], None)) is not None:
                self._open += 1
                return self._listing(*found, again=False)
            self._wanted.popleft()
        if self._now:  # also what turned up while parts were looked for
            return self._now.popleft()
        while self._later and not self._open:
            job, part = self._later.popleft()
            if not job.problem and _may_ask(job):
                return self._listing(job, part, again=True)
        return None

    def _jobs(self, session: Session) -> Iterator[Job]:
        run, subject = session.run, session.subject
        if DIMENSION not in run.own_dimensions or not isinstance(subject, ChannelSubject):
            return
        label = Label(purpose="evaluation", mechanism=DIMENSION, dimension=DIMENSION, work_id=run.work_id)
        hindrance = ideas_quantity.not_evaluable(subject)
        rows = EvaluationScore.objects.filter(evaluation_run=run, dimension=DIMENSION, status="pending")
        for row in rows.order_by("pk"):
            if not session.keep():
                return
            if hindrance:
                save_verdicts([row], [unscored(hindrance)], None)
                self._progress(run, 1)
                continue
            job = Job(session, subject, row, replace(label, item=str(row.pk)))
            _cut_into_parts(job)
            yield job

    def _open_parts(self, job: Job) -> Iterator[tuple[Job, IdeaPart]]:
        parts = list(job.row.idea_parts.filter(listed=False))
        job.left = len(parts)
        if not parts:
            self._advance(job)
        for part in parts:
            if job.problem or not _may_ask(job):
                return
            yield job, part

    def _listing(self, job: Job, part: IdeaPart, *, again: bool) -> Ask:
        messages = said(job.subject.said().filter(position__range=(part.first_position, part.last_position)))
        request = listing_request(
            name=job.subject.name,
            proposition=job.session.propositions[job.row.dimension, job.row.proposition_id],
            events=[job.subject.event(message) for message in messages],
            part=(part.number, job.parts),
            label=job.label,
            model=job.session.run.judge,
            nonce=job.session.nonce,
            max_tokens=8000 if again else 4000,
            again=job.session.run.repeats > 1,
        )
        positions = [message.position for message in messages]
        return Ask(request, partial(self._listed, job, part, positions, again=again))

    def _listed(self, job: Job, part: IdeaPart, positions: list[int], reply: Reply, *, again: bool) -> None:
        job.last = reply
        self._open -= not again
        if reply.ok:
            if job.session.keep():
                _store_listing(part, positions, reply.value)
            job.left -= 1
            if not job.left:
                self._advance(job)
        elif reply.status in AGAIN and not again:
            self._later.append((job, part))
        else:
            self._give_up(job, f"{reply.status}: part {part.number} of {job.parts}: {reply.error}")
        self._note(reply)

    def _advance(self, job: Job) -> None:
        """Every part is listed: ask what is the same, one batch after another, until nothing is left to be looked at."""
        if job.problem or not job.session.keep():
            return
        job.collapse = job.collapse or Collapse(_ideas_of(job))
        request = job.collapse.request(job.subject.name, job.label, job.session)
        if request is not None and job.session.budget.used_up():
            return
        if request is not None:
            self._now.append(Ask(request, partial(self._collapsed, job, job.collapse)))
            return
        job.collapse.store()
        self._finish(job)

    def _collapsed(self, job: Job, collapse: Collapse, reply: Reply) -> None:
        job.last = reply
        if reply.ok:
            collapse.take(reply.value)
        if reply.ok or collapse.may_ask_again(reply.status in AGAIN):
            self._advance(job)
        else:
            self._give_up(job, f"{reply.status}: collapsing the list: {reply.error}")
        self._note(reply)

    def _give_up(self, job: Job, problem: str) -> None:
        if not job.problem and job.session.keep():
            job.problem = problem
            self._finish(job)

    def _finish(self, job: Job) -> None:
        _finish(job)
        self._progress(job.session.run, 1)

    def _note(self, reply: Reply) -> None:
        self._tally.note(failed=reply.status in FAILURES, why=f"{reply.status}: {reply.error}")


def _may_ask(job: Job) -> bool:
    """Whether the run is still ours, and its budget not used up: then it pauses, and what was listed is kept."""
    return job.session.keep() and not job.session.budget.used_up()


def _cut_into_parts(job: Job) -> None:
    """The parts of the conversation as rows, unless an earlier attempt made them."""
    if not job.row.idea_parts.exists():
        places = enumerate(ideas_quantity.stretches(job.subject), 1)
        IdeaPart.objects.bulk_create(
            [
                IdeaPart(evaluation_score=job.row, number=n, first_position=first, last_position=last)
                for n, (first, last) in places
            ],
            batch_size=500,
        )
    job.parts = job.row.idea_parts.count()


def _store_listing(part: IdeaPart, positions: list[int], listed: list[ListedIdea]) -> None:
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
