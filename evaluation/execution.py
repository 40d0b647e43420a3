"""Judging the pending items of runs: rules first, then the judge, each result saved as it arrives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import sentry_sdk
from django.conf import settings
from django.db import IntegrityError
from django.utils import timezone

from agents.llm import Label
from agents.models import Message
from agents.persona import current_digest
from agents.text.fences import new_nonce
from evaluation.budget import BudgetWatch
from evaluation.failures import FAILURES
from evaluation.items import Open, context_of, groups, settle, variables_in
from evaluation.judge import Question, ask_all
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.planning import claims_for, subject_of
from evaluation.propositions import Proposition, fill, propositions_digest
from evaluation.scorers import SCORERS
from evaluation.scorers.base import Subject
from evaluation.scorers.channel import ChannelSubject
from evaluation.verdicts import Verdict, counted, unscored

CHUNK = 500
SNIPPET_CHARACTERS = 240
HEARTBEAT = 5.0  # seconds between two looks at whether the run is still ours
GIVE_UP_AFTER = 10  # calls in a row that failed before any succeeded
_SAVED = (
    *(
        "status",
        "score",
        "raw_score",
        "first_score",
        "count",
        "recommendations",
        "flaws",
        "evidence",
        "reasoning",
        "justification",
        "confidence",
        "reason",
    ),
    *("context_snippet", "claim", "judge", "served_model", "call", "judged_at"),
)

Progress = Callable[[EvaluationRun, int], None]


class JudgeDown(Exception):
    """The judge answered none of the first calls; the rest is left pending, to be taken up again."""


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
    renewed: float = field(default_factory=time.monotonic)

    def keep(self) -> bool:
        """Heartbeat before a call and before a result is stored. False once the claim was lost or the run cancelled."""
        if not self.lost and time.monotonic() - self.renewed > HEARTBEAT:
            self.lost = not self.run.extend_lease(owner=self.owner, lease=lease())
            self.renewed = time.monotonic()
        return not self.lost


def lease() -> timedelta:
    """How long a claim is believed: one call's deadline and a margin."""
    return timedelta(seconds=settings.LLM_EVALUATION_DEADLINE + 60)


def open_session(run: EvaluationRun, owner: str) -> Session:
    """Load what judging needs.

    Raises:
        Superseded: Persona or propositions are not those the run was planned with.
    """
    subject = subject_of(run)
    if isinstance(subject, Subject) and current_digest(subject.agent) != run.persona_digest:
        raise Superseded("the persona changed after this run was planned; start a new one")
    slug = subject.agent.slug if isinstance(subject, Subject) else subject.channel.slug
    loaded = [p for d in run.own_dimensions for p in claims_for(slug=slug, dimension=d, hard=run.hard)]
    if propositions_digest(loaded) != run.proposition_digest:
        raise Superseded("the proposition files changed after this run was planned; start a new one")
    watch = BudgetWatch(run.agent, run.judge)
    return Session(run, owner, subject, {(p.dimension, p.id): p for p in loaded}, watch)


def judge_dimension(sessions: Sequence[Session], dimension: str, progress: Progress) -> None:
    """Judge every pending item of one dimension, over all sessions at once.

    Raises:
        JudgeDown: None of the first calls was answered.
    """
    with sentry_sdk.start_span(op=f"evaluation.{dimension}", name=f"score {dimension}") as span:
        rows_of: _Waiting = {}
        failed = answered = 0
        questions = _questions(sessions, dimension, rows_of, progress)
        for answer in ask_all(questions, deadline=settings.LLM_EVALUATION_DEADLINE):
            key = id(answer.question)
            session, rows = rows_of.pop(key) if answer.final else rows_of[key]
            for waiting in sessions:  # those whose turn has not come keep their claims, too
                waiting.keep()
            if session.lost:
                continue
            try:
                save_verdicts([rows[i] for i in answer.positions], answer.verdicts, answer.question)
            except IntegrityError:
                if EvaluationRun.objects.filter(pk=session.run.pk).exists():
                    raise
                session.lost = True  # the run was deleted meanwhile; the others go on
                continue
            progress(session.run, len(answer.positions))
            if all(v.reason.startswith(FAILURES) for v in answer.verdicts):
                failed += 1
            else:
                answered += 1
            if failed >= GIVE_UP_AFTER and not answered:
                raise JudgeDown(f"the judge answered none of the first calls; the last: {answer.verdicts[0].reason}")
        span.set_data("answered_calls", answered)
        span.set_data("failed_calls", failed)


def keep_figures(sessions: Sequence[Session], dimension: str) -> None:
    """Store with each run what its scorer measured beside the judgements (AC-6.4.8)."""
    measure = getattr(SCORERS[dimension], "figures", None)
    if measure is None:
        return
    for session in sessions:
        claims = [p for (name, _), p in session.propositions.items() if name == dimension]
        if claims and session.keep() and not SCORERS[dimension].not_evaluable(session.subject):
            session.run.figures = {**session.run.figures, dimension: measure(session.subject, claims[0])}
            EvaluationRun.objects.filter(pk=session.run.pk).update(figures=session.run.figures)


_Waiting = dict[int, tuple[Session, list[EvaluationScore]]]


def _questions(
    sessions: Sequence[Session], dimension: str, rows_of: _Waiting, progress: Progress
) -> Iterator[Question]:
    """The questions still to ask, made one by one while earlier ones are being answered."""
    for session in sessions:
        if dimension in session.run.own_dimensions:
            yield from _session_questions(session, dimension, rows_of, progress)


def _session_questions(session: Session, dimension: str, rows_of: _Waiting, progress: Progress) -> Iterator[Question]:
    """One run's questions; settles what needs no judge on the way."""
    scorer, run = SCORERS[dimension], session.run
    label = Label(
        purpose="evaluation", mechanism=dimension, dimension=dimension, agent_id=run.agent_id, work_id=run.work_id
    )
    hindrance = scorer.not_evaluable(session.subject)
    for rows, messages in _pending(run, dimension):
        if not session.keep():
            return
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
        for chunk in groups(open_rows, run.per_call):
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
                label=label,
                model=run.judge,
                nonce=session.nonce,
                double_check=run.double_check,
                advise=True,
                method=run.method,
            )
            rows_of[id(question)] = (session, chunk_rows)
            yield question


def _pending(run: EvaluationRun, dimension: str) -> Iterator[tuple[list[EvaluationScore], dict[int, Message]]]:
    """The pending rows in bounded portions, all of one message together, with their messages."""
    last = 0
    while True:
        query = EvaluationScore.objects.filter(evaluation_run=run, dimension=dimension, status="pending", pk__gt=last)
        rows = list(query.order_by("pk")[:CHUNK])
        if not rows:
            return
        if len(rows) == CHUNK and rows[0].message_id != rows[-1].message_id:
            tail = rows[-1].message_id
            while rows[-1].message_id == tail:
                rows.pop()
        last = rows[-1].pk
        ids = {pk for row in rows for pk in (row.message_id, row.compared_with_id) if pk is not None}
        yield rows, Message.objects.select_related("channel").in_bulk(list(ids))


def save_verdicts(rows: Sequence[EvaluationScore], verdicts: Sequence[Verdict], question: Question | None) -> None:
    """Store verdicts in one short statement."""
    now = timezone.now()
    claims = (
        dict(zip((p.id for p in question.propositions), question.claims().values(), strict=True)) if question else {}
    )
    for row, verdict in zip(rows, verdicts, strict=True):
        row.status, row.score, row.raw_score = verdict.status, verdict.value, verdict.raw_value
        row.first_score = verdict.first_value
        row.recommendations = row.recommendations or verdict.recommendations
        row.flaws, row.evidence = list(verdict.flaws), verdict.evidence
        row.reasoning, row.justification, row.confidence = verdict.reasoning, verdict.justification, verdict.confidence
        row.reason, row.judge, row.served_model = verdict.reason, verdict.judge, verdict.served_model
        row.call_id, row.judged_at = verdict.call, now
        row.claim = claims.get(row.proposition_id, row.claim)
        row.context_snippet = _snippet(row, question)
    if rows:
        # An upsert on the primary key: one plain statement, where bulk_update would build a CASE per column and row.
        EvaluationScore.objects.bulk_create(rows, update_conflicts=True, unique_fields=["pk"], update_fields=_SAVED)


def _snippet(row: EvaluationScore, question: Question | None) -> str:
    """The start of what was judged, on one line."""
    texts = question.context.judged_texts() if question else []
    text = " / ".join(texts[-3:]) if question and question.context.message is None else (texts[0] if texts else "")
    if not question and row.message is not None:
        text = row.message.text
    text = " ".join(text.split()).replace("\x00", "\ufffd")
    return text if len(text) <= SNIPPET_CHARACTERS else text[: SNIPPET_CHARACTERS - 1] + "…"
