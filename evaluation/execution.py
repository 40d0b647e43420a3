"""Judging the pending items of runs: rules first, then the judge, each result saved as it arrives."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import sentry_sdk
from django.conf import settings

from agents.llm import Label
from agents.models import Message
from agents.persona import current_digest
from agents.text.fences import new_nonce
from evaluation.asking import Ask, Tally, inside
from evaluation.budget import BudgetWatch
from evaluation.failures import FAILURES
from evaluation.items import Open, context_of, groups, settle, variables_in
from evaluation.judge import Answered, Question, Questioning
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.propositions.files import LoadedFile, load_all
from evaluation.propositions.schema import Proposition, fill, propositions_digest
from evaluation.scorers import SCORERS
from evaluation.scorers.base import Subject
from evaluation.scorers.channel import ChannelSubject
from evaluation.storing import save_verdicts
from evaluation.targets import claims_of, subject_of
from evaluation.verdicts import Verdict, counted, unscored

CHUNK = 500
SIDE_BY_SIDE = 20  # runs whose questions are asked in turn: each holds a chunk of rows
_PLANNED = (
    *("evaluation_run", "dimension", "proposition_id", "message", "compared_with", "repeat"),
    *("claim", "recommendations", "count"),
)  # of a pending judgement; the other columns are still empty
HEARTBEAT = 5.0  # seconds between two looks at whether the run is still ours

Progress = Callable[[EvaluationRun, int], None]


class Superseded(Exception):
    """What the run was planned on is no longer there: its propositions or its persona changed."""


@dataclass(slots=True)
class Session:
    """A claimed run while it is being judged."""

    run: EvaluationRun
    owner: str
    subject: Subject | ChannelSubject
    propositions: dict[tuple[str, str], Proposition]
    budget: BudgetWatch
    nonce: str = field(default_factory=new_nonce)
    lost: bool = False
    waits: bool = False  # for a batch that was handed in
    refused: str = ""  # why no batch was taken
    renewed: float = field(default_factory=time.monotonic)

    def keep(self) -> bool:
        """Heartbeat before a call and before a result is stored. False once the claim was lost or the run cancelled."""
        if not self.lost and time.monotonic() - self.renewed > HEARTBEAT:
            self.lost = not self.run.extend_lease(owner=self.owner, lease=lease())
            self.renewed = time.monotonic()
        return not self.lost

    def keep_now(self) -> bool:
        """The same, just now, before something that must not be done twice."""
        self.renewed = float("-inf")
        return self.keep()


def lease() -> timedelta:
    """How long a claim is believed: one call's deadline and a margin."""
    return timedelta(seconds=settings.LLM_EVALUATION_DEADLINE + 60)


def open_session(run: EvaluationRun, owner: str, files: Sequence[LoadedFile] | None = None) -> Session:
    """Load what judging needs; `files` are what `load_all` returned, for callers that open several runs at once.

    Raises:
        Superseded: Persona or propositions are not those the run was planned with.
    """
    subject = subject_of(run)
    if isinstance(subject, Subject) and current_digest(subject.agent) != run.persona_digest:
        raise Superseded("the persona changed after this run was planned; start a new one")
    loaded = claims_of(run, subject, load_all() if files is None else files)
    if propositions_digest(loaded) != run.proposition_digest:
        raise Superseded("the proposition files changed after this run was planned; start a new one")
    watch = BudgetWatch(run.agent, run.judge)
    return Session(run, owner, subject, {(p.dimension, p.id): p for p in loaded}, watch)


class Judging:
    """One dimension of all sessions: gives what there is to ask, and stores the answers."""

    def __init__(self, dimension: str, progress: Progress) -> None:
        self._dimension, self._progress, self._tally = dimension, progress, Tally()
        self._rows_of: _Waiting = {}
        self._begun: deque[Iterator[Question]] = deque()
        self._not_begun: deque[Session] = deque()
        self._span = sentry_sdk.start_span(op=f"evaluation.{dimension}", name=f"score {dimension}")
        self._asking = Questioning(self._question, self._store)

    def add(self, session: Session) -> None:
        """Judge the run of this session, too."""
        self._not_begun.append(session)

    def next(self) -> Ask | None:
        """The next thing to ask (a `Source`)."""
        with inside(self._span):
            ask = self._asking.next()
        return replace(ask, request=replace(ask.request, span=self._span)) if ask is not None else None

    def close(self) -> None:
        """End its trace."""
        self._span.set_data("answered_calls", self._tally.answered)
        self._span.set_data("failed_calls", self._tally.failed)
        self._span.finish()

    def _question(self) -> Question | None:
        """One of each run after the other: those of one run share a prompt, which the cache holds once the first is answered."""
        while self._begun or self._not_begun:
            room = SIDE_BY_SIDE - len(self._begun)
            new = [self._not_begun.popleft() for _ in range(min(room, len(self._not_begun)))]
            # They go first: those before them had a turn.
            self._begun.extendleft(_questions(s, self._dimension, self._rows_of, self._progress) for s in reversed(new))
            source = self._begun.popleft()
            if (question := next(source, None)) is not None:
                self._begun.append(source)
                return question
        return None

    def _store(self, answer: Answered) -> None:
        key = id(answer.question)
        session, rows = self._rows_of.pop(key) if answer.final else self._rows_of[key]
        if not session.keep():
            return
        if not save_verdicts([rows[i] for i in answer.positions], answer.verdicts, answer.question):
            session.lost = True  # the run was deleted meanwhile; the others go on
            return
        self._progress(session.run, len(answer.positions))
        failed = all(v.reason.startswith(FAILURES) for v in answer.verdicts)
        self._tally.note(failed=failed, why=answer.verdicts[0].reason)


def keep_figures(session: Session, dimension: str) -> None:
    """Store with a run what its scorer measured beside the judgements (AC-6.4.8)."""
    measure = getattr(SCORERS[dimension], "figures", None)
    claims = [p for (name, _), p in session.propositions.items() if name == dimension]
    if measure is None or not claims or not session.keep() or SCORERS[dimension].not_evaluable(session.subject):
        return
    session.run.figures = {**session.run.figures, dimension: measure(session.subject, claims[0])}
    EvaluationRun.objects.filter(pk=session.run.pk).update(figures=session.run.figures)


_Waiting = dict[int, tuple[Session, list[EvaluationScore]]]


def _questions(session: Session, dimension: str, rows_of: _Waiting, progress: Progress) -> Iterator[Question]:
    """The questions still to ask of a run, made one by one while earlier ones are being answered; then its figures are kept."""
    yield from _session_questions(session, dimension, rows_of, progress)
    keep_figures(session, dimension)


def _session_questions(session: Session, dimension: str, rows_of: _Waiting, progress: Progress) -> Iterator[Question]:
    """One run's questions; settles what needs no judge on the way."""
    scorer, run = SCORERS[dimension], session.run
    label = Label(
        purpose="evaluation", mechanism=dimension, dimension=dimension, agent_id=run.agent_id, work_id=run.work_id
    )
    again = run.repeats > 1 or run.double_check
    hindrance, read_ahead = scorer.not_evaluable(session.subject), getattr(scorer, "read_ahead", None)
    for rows, messages in _pending(run, dimension):
        if not session.keep():
            return
        if read_ahead and not hindrance:
            read_ahead(session.subject, messages.values())
        open_rows: list[Open[EvaluationScore]] = []
        settled: list[tuple[EvaluationScore, Verdict]] = []
        for row in rows:
            proposition = session.propositions[dimension, row.proposition_id]
            row.message = message = messages.get(row.message_id or 0)
            row.compared_with = earlier = messages.get(row.compared_with_id or 0)
            verdict = (
                unscored(hindrance)
                if hindrance
                else settle(proposition, message, session.subject, earlier, run.additional_context)
            )
            if verdict is None:
                open_rows.append(Open(row, proposition, message, earlier, row.repeat))
                continue
            if message is not None:
                row.claim = fill(proposition.claim, variables_in(session.subject, message))
            settled.append((row, counted(verdict, run.method)))
        if settled:
            save_verdicts([row for row, _ in settled], [verdict for _, verdict in settled], None)
            progress(run, len(settled))
        for chunk, alone in groups(open_rows, run.per_call):
            if not session.keep():
                return
            context = context_of(scorer, session.subject, chunk[0], run.additional_context)
            chunk_rows = [entry.item for entry in chunk]
            if not any(text.strip() for text in context.judged_texts()):
                save_verdicts(chunk_rows, [unscored("there is no text to judge")] * len(chunk), None)
                progress(run, len(chunk))
                continue
            if session.budget.used_up():  # what is free is still settled
                continue
            question = Question(
                propositions=tuple(entry.proposition for entry in chunk),
                context=context,
                label=replace(label, item=str(chunk_rows[0].pk)),
                model=run.judge,
                nonce=session.nonce,
                double_check=run.double_check,
                advise=True,
                method=run.method,
                alone=alone and not again,
                again=again,
            )
            rows_of[id(question)] = (session, chunk_rows)
            yield question


def _pending(run: EvaluationRun, dimension: str) -> Iterator[tuple[list[EvaluationScore], dict[int, Message]]]:
    """The pending rows in bounded portions, all of one message together, with their messages."""
    last = 0
    while True:
        query = EvaluationScore.objects.filter(evaluation_run=run, dimension=dimension, status="pending", pk__gt=last)
        rows = list(query.only(*_PLANNED).order_by("pk")[:CHUNK])
        if not rows:
            return
        is_last = len(rows) < CHUNK
        if not is_last and rows[0].message_id != rows[-1].message_id:
            tail = rows[-1].message_id
            while rows[-1].message_id == tail:
                rows.pop()
        last = rows[-1].pk
        ids = {pk for row in rows for pk in (row.message_id, row.compared_with_id) if pk is not None}
        yield rows, Message.objects.select_related("channel").in_bulk(list(ids))
        if is_last:
            return
