"""Judge one dimension of an evaluation: pending rows, rules and what needs no judge, questions, answers stored as they arrive."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import sentry_sdk
from django.conf import settings
from django.utils import timezone

from agents.kit.bulk import update_rows
from agents.kit.llm import Label, complete_many
from agents.kit.running import OUTAGE, retry_on_outage
from agents.kit.text.fences import new_nonce, one_line
from agents.models import Message
from agents.personas.persona import current_digest
from evaluation.budget import BudgetWatch
from evaluation.dimensions import COUNTED, Dimension
from evaluation.judge.questions import (
    Asking,
    JudgeHealth,
    Question,
    Verdict,
    ask_all,
    by_method,
    trivial,
    unscored,
    verdict_by_rule,
)
from evaluation.models import EvaluationRun, EvaluationScore, PatternTimeout
from evaluation.propositions.files import LoadedFile
from evaluation.propositions.schema import PRECONDITIONS, Proposition, Target, fill, propositions_digest
from evaluation.runs.ideas import count_ideas
from evaluation.runs.planning import propositions_asked, subject_of
from evaluation.runs.summary import FAILURES
from evaluation.scorers import SCORERS, HasFigures, ReadsAhead
from evaluation.scorers.subjects import ChannelSubject, Ends, Subject, first_stretch_end, stretch_end

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Open(NamedTuple, Generic[T]):
    """An item that needs the judge, with what it is about."""

    item: T
    proposition: Proposition
    message: Message | None
    earlier: Message | None = None
    repeat: int = 1


class Group(NamedTuple, Generic[T]):
    """Items that share a call.

    Attributes:
        prefix: The same for all groups whose prompts begin with the same events.
        alone: Whether no other call shows these events.
    """

    items: list[Open[T]]
    prefix: tuple[object, ...]
    alone: bool


def groups(entries: Iterable[Open[T]], per_call: int) -> Iterator[Group[T]]:
    """Make groups of items that may share a call: the same message, window and repeat, up to `per_call`.

    What begins alike comes as far apart as possible, neighbouring messages and the repeats of one item: by then the prompt cache may
    hold what they share. The longest of windows that begin with the same events comes first: it holds the others.
    """
    by_window: dict[tuple[object, ...], list[Open[T]]] = {}
    for entry in entries:
        message = entry.message.pk if entry.message else None
        by_window.setdefault((message, entry.repeat, *entry.proposition.context_key), []).append(entry)
    by_prefix: dict[tuple[object, ...], list[tuple[int, int, list[Open[T]]]]] = {}
    for group in by_window.values():
        _, proposition, about, earlier, repeat = group[0]
        channel = about.channel_id if about else None
        end, first_end = 0, None
        if about and earlier is None:
            end = stretch_end(about.position, proposition.last_n)
            first_end = first_stretch_end(about.position, proposition.last_n)
        prefix: tuple[object, ...] = (channel, first_end, *proposition.context_key)
        by_prefix.setdefault(prefix, []).append((repeat, -end, group))
    ordered = []
    for prefix, alike in by_prefix.items():
        alike.sort(key=lambda place: place[:2])
        ordered += [(repeat, number, prefix, group) for number, (repeat, _, group) in enumerate(alike)]
    for _, _, prefix, group in sorted(ordered, key=lambda place: place[:2]):
        alone = len(by_prefix[prefix]) == 1 and group[0].earlier is None and len(group) <= per_call
        for start in range(0, len(group), per_call):
            yield Group(group[start : start + per_call], prefix, alone)


def questions(
    entries: Iterable[Open[T]],
    subject: Subject | ChannelSubject,
    run: EvaluationRun,
    *,
    dimension: str,
    nonce: str,
    label: Callable[[T], Label],
) -> Iterator[tuple[list[Open[T]], Question | None]]:
    """What to ask about items that need the judge; None where there is no text to judge. `label` makes the ledger's columns of a call."""
    again = run.repeats > 1 or run.double_check
    for chunk, prefix, alone in groups(entries, run.per_call):
        first = chunk[0]
        context = SCORERS[dimension].context(subject, first.proposition, first.message, first.earlier)
        if not any(text.strip() for text in context.judged_texts()):
            yield chunk, None
            continue
        yield (
            chunk,
            Question(
                propositions=tuple(entry.proposition for entry in chunk),
                context=replace(context, additional=run.additional_context or None),
                label=label(first.item),
                model=run.judge,
                nonce=nonce,
                double_check=run.double_check,
                advise=True,
                method=run.method,
                alone=(alone or bool(run.swaps)) and not again,
                again=again,
                prefix=None if run.batch else prefix,
                items=[entry.item for entry in chunk],
            ),
        )


def settle(
    proposition: Proposition,
    message: Message | None,
    subject: Subject | ChannelSubject,
    earlier: Message | None = None,
    additional: Mapping[str, Any] | None = None,
) -> Verdict | None:
    """The verdict of what needs no judge: a false precondition, a rule, a message that is gone. None when the judge is needed."""
    judged_by = Dimension(proposition.dimension).kind.judged_by
    if judged_by == "message" and message is None and not proposition.over_window:
        return unscored("the message was deleted before it was judged")
    if judged_by == "pair" and (message is None or earlier is None):
        return unscored("a message of the pair was deleted before it was judged")
    if message is not None and proposition.precondition:
        target = Target(message.text, message.channel.kind, message.parent_id is not None)
        if not PRECONDITIONS[proposition.precondition](target, additional or {}, variables_in(subject, message)):
            return trivial(f"precondition {proposition.precondition} does not hold")
    if message is not None and proposition.rule:
        return verdict_by_rule(proposition.rule, message.text, inverted=proposition.inverted)
    return None


def variables_in(subject: Subject | ChannelSubject, message: Message) -> dict[str, str]:
    """Values of the variables of a proposition about one message."""
    name = subject.agent.display_name if isinstance(subject, Subject) else subject.name
    return {"agent_name": one_line(name), "channel_name": one_line(str(message.channel))}


CHUNK = 500
_PLANNED = (
    *("evaluation_run", "dimension", "proposition_id", "message", "compared_with", "repeat"),
    *("claim", "recommendations", "count"),
)  # of a pending judgement; the other columns are still empty
HEARTBEAT = 5.0  # seconds between two looks at whether the evaluations are still ours

Progress = Callable[[EvaluationRun, int], None]


class Superseded(Exception):
    """What the evaluation was planned on changed: its propositions or its persona."""


def lease() -> timedelta:
    """How long a worker's lease lasts: one call's deadline and a margin."""
    return timedelta(seconds=settings.LLM_EVALUATION_DEADLINE + 60)


class Leases:
    """The leases of all evaluations that one call holds. Whoever works on one of them renews all, so that none that waits is lost."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._held: dict[int, EvaluationRun] = {}
        self._lost: set[int] = set()
        self._renewed, self._lock = time.monotonic(), threading.Lock()

    def add(self, runs: Iterable[EvaluationRun]) -> None:
        with self._lock:
            self._held |= {run.pk: run for run in runs}

    def lose(self, run: EvaluationRun) -> None:
        """Another worker has it, or it was deleted."""
        with self._lock:
            self._held.pop(run.pk, None)
            self._lost.add(run.pk)

    def renew(self, run: EvaluationRun, *, now: bool = False) -> bool:
        """Whether a run is still ours; renews every lease when it is time, or `now`. Call it before a call and before storing a result."""
        with self._lock:
            if run.pk not in self._lost and (now or time.monotonic() - self._renewed > HEARTBEAT):
                for held in list(self._held.values()):
                    if not held.extend_lease(owner=self.owner, lease=lease()):
                        self._lost.add(self._held.pop(held.pk).pk)
                self._renewed = time.monotonic()
            return run.pk not in self._lost


SNIPPET_CHARACTERS = 240
_OF_VERDICT = {
    **{name: name for name in ("status", "evidence", "reasoning", "justification", "confidence", "reason", "cause")},
    **{"score": "value", "raw_score": "raw_value", "first_score": "first_value"},
    **{"judge": "judge", "served_model": "served_model", "call_id": "call"},
}
_SAVED = (
    *(name.removesuffix("_id") for name in _OF_VERDICT),
    *("count", "recommendations", "flaws", "context_snippet", "claim", "judged_at"),
)


def save_verdicts(rows: Sequence[EvaluationScore], verdicts: Sequence[Verdict], question: Question | None) -> bool:
    """Store verdicts in one short statement, each once: one that another worker stored meanwhile stays as it is.

    Args:
        question: What was asked; None for what needed no judge.

    Returns:
        Whether all were still to be stored: False when the run was deleted, or another worker has it now.
    """
    now, claims, snippet = timezone.now(), dict[str, str](), ""
    if question:
        claims = dict(zip((p.id for p in question.propositions), question.claims().values(), strict=True))
        snippet = _short(" / ".join(question.context.judged_texts()[-3:]))  # the start of what was judged
    for row, verdict in zip(rows, verdicts, strict=True):
        for column, name in _OF_VERDICT.items():
            setattr(row, column, getattr(verdict, name))
        row.recommendations = row.recommendations or verdict.recommendations
        row.flaws, row.judged_at = list(verdict.flaws), now
        row.claim = claims.get(row.proposition_id, row.claim)
        row.context_snippet = snippet if question else _short(row.message.text if row.message is not None else "")
    tries = 0

    def write() -> int:
        nonlocal tries
        tries += 1
        return update_rows(rows, _SAVED, where="status = 'pending'")

    if retry_on_outage(write) == len(rows):
        try:
            PatternTimeout.count((row.dimension, row.proposition_id, row.reason) for row in rows)
        except OUTAGE as error:  # the verdicts are stored: a count is not worth the evaluation
            logger.warning("patterns that took too long are not counted: %s", error)
        return True
    # What the database did before its connection was lost counts, although its answer never came.
    mine = EvaluationScore.objects.filter(pk__in=[row.pk for row in rows], judged_at=now)
    return tries > 1 and mine.count() == len(rows)


def _short(text: str) -> str:
    text = " ".join(text.split()).replace("\x00", "\ufffd")
    return text if len(text) <= SNIPPET_CHARACTERS else text[: SNIPPET_CHARACTERS - 1] + "…"


@dataclass(slots=True)
class Judging:
    """An evaluation while it is being judged; its dimensions share it.

    `ask` asks the judge: `complete_many`, or a batch; `waits`: for a submitted batch; `refused`: why no batch was accepted. `health`
    is shared by all evaluations that are judged together.
    """

    run: EvaluationRun
    leases: Leases
    subject: Subject | ChannelSubject
    propositions: dict[tuple[str, str], Proposition]
    budget: BudgetWatch
    health: JudgeHealth
    progress: Progress
    ask: Asking
    nonce: str = field(default_factory=new_nonce)
    waits: bool = False
    refused: str = ""

    def renew(self) -> bool:
        return self.leases.renew(self.run)

    def label(self, dimension: str, row: EvaluationScore) -> Label:
        """The ledger's columns for a question."""
        agent, work, item = self.run.agent_id, self.run.work_id, str(row.pk)
        return Label(
            purpose="evaluation", mechanism=dimension, dimension=dimension, agent_id=agent, work_id=work, item=item
        )

    def may_ask(self) -> bool:
        """Whether to go on asking: the run is still ours, the judge answers, and the budget is not used up."""
        return self.renew() and not self.health.down and not self.budget.used_up()

    def store(self, rows: Sequence[EvaluationScore], verdicts: Sequence[Verdict], question: Question | None) -> bool:
        """Store verdicts, if the run is still ours."""
        if not self.renew():
            return False
        if not save_verdicts(rows, verdicts, question):
            self.leases.lose(self.run)  # it was deleted meanwhile
            return False
        self.progress(self.run, len(rows))
        return True


def begin_judging(
    run: EvaluationRun,
    leases: Leases,
    *,
    files: Callable[[], Sequence[LoadedFile]],
    progress: Progress,
    health: JudgeHealth,
    read: dict[tuple[object, ...], Ends],
) -> Judging:
    """Load what judging a run needs, which the caller leased; `health` and `read` are shared by the runs that are judged together.

    Raises:
        Superseded: Persona or propositions are not those the run was planned with.
        PropositionError: Proposition files cannot be used.
    """
    subject = subject_of(run)
    if isinstance(subject, Subject):
        subject.read = read
        if current_digest(subject.agent) != run.persona_digest:
            raise Superseded("the persona changed after this run was planned; start a new one")
    target = subject.agent if isinstance(subject, Subject) else subject.channel
    asked = (propositions_asked(target, d, hard=run.hard, files=files()) for d in run.own_dimensions)
    loaded = [proposition for each in asked for proposition in each]
    if propositions_digest(loaded) != run.proposition_digest:
        raise Superseded("the proposition files changed after this run was planned; start a new one")
    propositions = {(p.dimension, p.id): p for p in loaded}
    ask = partial(complete_many, deadline=settings.LLM_EVALUATION_DEADLINE)
    return Judging(run, leases, subject, propositions, BudgetWatch(run.agent, run.judge), health, progress, ask)


def judge_dimension(judging: Judging, dimension: str) -> None:
    """Judge what is pending of one dimension, then store what its scorer measures beside the judgements (AC-6.4.8)."""
    calls = Counter(answered_calls=0, failed_calls=0)
    with sentry_sdk.new_scope(), sentry_sdk.start_span(op=f"evaluation.{dimension}", name=f"score {dimension}") as span:
        try:
            if dimension in COUNTED:
                count_ideas(judging, calls)
            else:
                _judge_scores(judging, calls, dimension)
        finally:
            for name, number in calls.items():
                span.set_data(name, number)


def _judge_scores(judging: Judging, calls: Counter[str], dimension: str) -> None:
    with closing(ask_all(_questions(judging, dimension), ask=judging.ask)) as answers:
        for answer in answers:
            rows = [answer.question.items[position] for position in answer.positions]
            if not judging.store(rows, answer.verdicts, answer.question):
                return
            failed = all(verdict.cause in FAILURES for verdict in answer.verdicts)
            calls["failed_calls" if failed else "answered_calls"] += 1
            judging.health.note(failed=failed, why=answer.verdicts[0].reason)
            if judging.health.down:
                return
    scorer = SCORERS[dimension]
    asked = [p for (name, _), p in judging.propositions.items() if name == dimension]
    if not isinstance(scorer, HasFigures) or not asked or judging.run.swap_test or not judging.renew():
        return
    if not SCORERS[dimension].not_evaluable(judging.subject) and (figures := scorer.figures(judging.subject, asked)):
        judging.run.figures = {**judging.run.figures, dimension: figures}
        EvaluationRun.objects.filter(pk=judging.run.pk).update(figures=judging.run.figures)


def _questions(judging: Judging, dimension: str) -> Iterator[Question]:
    """The questions still to ask, made one by one while earlier ones are being answered; settles what needs no judge on the way."""
    scorer, run = SCORERS[dimension], judging.run
    hindrance = scorer.not_evaluable(judging.subject)
    for rows, messages in _pending(run, dimension):
        if not judging.renew():
            return
        if isinstance(scorer, ReadsAhead) and not hindrance:
            scorer.read_ahead(judging.subject, messages.values())
        needed: list[Open[EvaluationScore]] = []
        settled: list[EvaluationScore] = []
        verdicts: list[Verdict] = []
        for row in rows:
            proposition = judging.propositions[dimension, row.proposition_id]
            row.message = message = messages.get(row.message_id or 0)
            row.compared_with = earlier = messages.get(row.compared_with_id or 0)
            gone = message is not None and isinstance(judging.subject, Subject) and not judging.subject.swap(message)
            if hindrance:
                verdict: Verdict | None = unscored(hindrance)
            elif gone:
                verdict = unscored("the text that stood in for the message was deleted before it was judged")
            else:
                verdict = settle(proposition, message, judging.subject, earlier, run.additional_context)
            if verdict is None:
                needed.append(Open(row, proposition, message, earlier, row.repeat))
                continue
            if message is not None:
                row.claim = fill(proposition.claim, variables_in(judging.subject, message))
            settled.append(row)
            verdicts.append(by_method(verdict, run.method))
        if settled and not judging.store(settled, verdicts, None):
            return
        asked = questions(
            needed,
            judging.subject,
            run,
            dimension=dimension,
            nonce=judging.nonce,
            label=partial(judging.label, dimension),
        )
        for chunk, question in asked:
            if question is None:
                rows = [entry.item for entry in chunk]
                judging.store(rows, [unscored("there is no text to judge")] * len(chunk), None)
            elif judging.may_ask():  # else what is free is still settled
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
