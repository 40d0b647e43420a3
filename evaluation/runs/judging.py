"""Judge one dimension of an evaluation: settle what needs no judge, ask about the other pending rows, store answers as they arrive."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Generic, TypeVar

import sentry_sdk
from django.conf import settings
from django.utils import timezone

from agents.kit.bulk import update_rows
from agents.kit.llm import Label, complete_many
from agents.kit.running import OUTAGE, retry_on_outage
from agents.kit.text.fences import new_nonce, one_line
from agents.models import Agent, Channel, Message
from agents.personas.persona import current_digest
from evaluation.budget import BudgetWatch
from evaluation.dimensions import COUNTED, Dimension
from evaluation.judge.asking import Asking, JudgeHealth, ask_all
from evaluation.judge.examples import NoExamples, examples_beside, load_examples
from evaluation.judge.prompts import Example
from evaluation.judge.questions import Question
from evaluation.judge.verdicts import Verdict, by_method, unscored, verdict_by_precondition, verdict_by_rule
from evaluation.models import EvaluationRun, EvaluationScore, PatternTimeout
from evaluation.propositions.files import LoadedFile
from evaluation.propositions.preconditions import Target
from evaluation.propositions.schema import Proposition, fill, propositions_digest
from evaluation.runs.failures import FAILURES
from evaluation.runs.ideas import count_ideas
from evaluation.runs.planning import propositions_asked, subject_of
from evaluation.scorers import SCORERS, HasFigures, ReadsAhead
from evaluation.scorers.reading import Ends
from evaluation.scorers.subjects import ChannelSubject, Subject, first_stretch_end, stretch_end

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenItem(Generic[T]):
    """An item that needs the judge, with the messages it is about."""

    item: T
    proposition: Proposition
    message: Message | None
    earlier: Message | None = None
    repeat: int = 1


@dataclass(frozen=True, slots=True)
class ItemGroup(Generic[T]):
    """Items that share a call.

    Attributes:
        prefix: The same for all groups whose prompts begin with the same events.
        window_shown_once: Whether no other call shows these events.
    """

    items: list[OpenItem[T]]
    prefix: tuple[object, ...]
    window_shown_once: bool


@dataclass(slots=True)
class _SameWindow(Generic[T]):
    """Items about the same message, window and repeat; `end` is the position at which the window ends."""

    items: list[OpenItem[T]]
    repeat: int
    end: int
    prefix: tuple[object, ...]
    order: int = 0  # among the windows that begin with the same events, in the order in which they are asked


def group_items(entries: Iterable[OpenItem[T]], per_call: int) -> Iterator[ItemGroup[T]]:
    """Yield groups of items that may share a call (the same message, window and repeat, up to `per_call`), in the order to ask them.

    First judgements come before second ones, and so on; in each round windows are ordered by their place among those of their prefix. So
    calls that begin alike are far apart: by then the prompt cache may hold what they share. Of windows with one prefix the one that ends
    last comes first: it holds the others.
    """
    by_prefix: dict[tuple[object, ...], list[_SameWindow[T]]] = {}
    for window in _same_windows(entries):
        by_prefix.setdefault(window.prefix, []).append(window)
    windows: list[_SameWindow[T]] = []
    for alike in by_prefix.values():
        alike.sort(key=lambda window: (window.repeat, -window.end))
        for order, window in enumerate(alike):
            window.order = order
            windows.append(window)
    windows.sort(key=lambda window: (window.repeat, window.order))
    for window in windows:
        is_pair = window.items[0].earlier is not None  # the prompt has no window then, only what other calls show, too
        shown_once = len(by_prefix[window.prefix]) == 1 and not is_pair and len(window.items) <= per_call
        for start in range(0, len(window.items), per_call):
            yield ItemGroup(window.items[start : start + per_call], window.prefix, shown_once)


def _same_windows(entries: Iterable[OpenItem[T]]) -> list[_SameWindow[T]]:
    """Gather items by message, window and repeat, in order of their first items.

    The prefix is the same for windows of one channel that begin with the same events. Without a message, or for a pair, no stretch of
    a channel is shown: `end` is 0, and the prefix holds None in its place.
    """
    gathered: dict[tuple[object, ...], _SameWindow[T]] = {}
    for entry in entries:
        proposition, message = entry.proposition, entry.message
        key = (message.pk if message else None, entry.repeat, *proposition.context_key)
        if key in gathered:
            gathered[key].items.append(entry)
            continue
        channel = None
        end = 0
        first_end = None
        if message:
            channel = message.channel_id
        if message and entry.earlier is None:
            end = stretch_end(message.position, proposition.last_n)
            first_end = first_stretch_end(message.position, proposition.last_n)
        prefix = (channel, first_end, *proposition.context_key)
        gathered[key] = _SameWindow([entry], entry.repeat, end, prefix)
    return list(gathered.values())


@dataclass(frozen=True, slots=True)
class GroupQuestion(Generic[T]):
    """The question about a group of items; `question` is None where there is no text to judge."""

    items: list[OpenItem[T]]
    question: Question | None


def questions(
    entries: Iterable[OpenItem[T]],
    subject: Subject | ChannelSubject,
    run: EvaluationRun,
    *,
    dimension: str,
    nonce: str,
    label: Callable[[T], Label],
    examples: Sequence[Example] = (),
) -> Iterator[GroupQuestion[T]]:
    """Yield the question about each group of items that need the judge; None as question where there is no text to judge.

    Args:
        examples: Shown with claims about one message, unless they are of the same conversation.
        label: Makes the ledger's columns of a call from the first item of its group.
    """
    asked_again = run.repeats > 1 or run.double_check
    for group in group_items(entries, run.per_call):
        first = group.items[0]
        context = SCORERS[dimension].context(subject, first.proposition, first.message, first.earlier)
        if not any(text.strip() for text in context.judged_texts()):
            yield GroupQuestion(group.items, None)
            continue
        # A swapped text stands in for one message only: no other call shows this window.
        shown_once = group.window_shown_once or bool(run.swaps)
        question = Question(
            propositions=tuple(entry.proposition for entry in group.items),
            context=replace(context, additional=run.additional_context or None),
            label=label(first.item),
            model=run.judge,
            nonce=nonce,
            double_check=run.double_check,
            advise=True,
            method=run.method,
            examples=examples_beside(examples, dimension=dimension, message=first.message),
            window_shown_once=shown_once and not asked_again,
            asked_again=asked_again,
            prefix=None if run.batch else group.prefix,  # in a batch no question waits for another
            items=[entry.item for entry in group.items],
        )
        yield GroupQuestion(group.items, question)


def settle(
    proposition: Proposition,
    message: Message | None,
    subject: Subject | ChannelSubject,
    earlier: Message | None = None,
    additional: Mapping[str, Any] | None = None,
) -> Verdict | None:
    """Return the verdict of what needs no judge: a false precondition, a rule, a message that is gone. None when the judge is needed.

    Args:
        message: None for a whole window, or where the message was deleted; `earlier` likewise for the other one of a pair.
        additional: The run's additional context, which preconditions may look at.
    """
    judged_by = Dimension(proposition.dimension).kind.judged_by
    if judged_by == "message" and message is None and not proposition.over_window:
        return unscored("the message was deleted before it was judged")
    if judged_by == "pair" and (message is None or earlier is None):
        return unscored("a message of the pair was deleted before it was judged")
    if message is None:  # a window needs the judge
        return None
    target = Target(message.text, message.channel.kind, message.parent_id is not None)
    verdict = verdict_by_precondition(
        proposition, target, additional=additional, variables=variables_in(subject, message)
    )
    if verdict is None and proposition.rule:
        return verdict_by_rule(proposition.rule, message.text, inverted=proposition.inverted)
    return verdict


def variables_in(subject: Subject | ChannelSubject, message: Message) -> dict[str, str]:
    """Return the values of the variables of a proposition about one message."""
    name = subject.agent.display_name if isinstance(subject, Subject) else subject.name
    return {"agent_name": one_line(name), "channel_name": one_line(str(message.channel))}


ROWS_AT_ONCE = 500  # pending rows read together
_COLUMNS_PENDING = (  # of a pending judgement; the other columns are still empty
    *("evaluation_run", "dimension", "proposition_id", "message", "compared_with", "repeat"),
    *("claim", "recommendations", "count"),
)
HEARTBEAT = 5.0  # seconds between two renewals of the leases

Progress = Callable[[EvaluationRun, int], None]


class Superseded(Exception):
    """The propositions or the persona changed since the evaluation was planned."""


def lease() -> timedelta:
    """Return how long a worker's lease lasts: one call's deadline and a margin."""
    return timedelta(seconds=settings.LLM_EVALUATION_DEADLINE + 60)


class Leases:
    """The leases of all evaluations that one call holds. Each use of one renews all, so that none is lost while it waits its turn."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._held: dict[int, EvaluationRun] = {}
        self._lost: set[int] = set()
        self._renewed_at = time.monotonic()
        self._lock = threading.Lock()

    def add(self, runs: Iterable[EvaluationRun]) -> None:
        with self._lock:
            for run in runs:
                self._held[run.pk] = run

    def note_lost(self, run: EvaluationRun) -> None:
        """Note that another worker has a run, or that it was deleted."""
        with self._lock:
            self._held.pop(run.pk, None)
            self._lost.add(run.pk)

    def renew(self, run: EvaluationRun, *, now: bool = False) -> bool:
        """Renew every lease when it is time, or `now`. Call it before a call and before storing a result.

        Returns:
            Whether the run is still this owner's.
        """
        with self._lock:
            is_due = time.monotonic() - self._renewed_at > HEARTBEAT
            if run.pk not in self._lost and (now or is_due):
                self._renew_all()
            return run.pk not in self._lost

    def _renew_all(self) -> None:
        """Extend every lease; those that another worker took are lost."""
        for run in list(self._held.values()):
            if not run.extend_lease(owner=self.owner, lease=lease()):
                del self._held[run.pk]
                self._lost.add(run.pk)
        self._renewed_at = time.monotonic()


SNIPPET_CHARACTERS = 240
# Columns of a judgement, and the attribute of `Verdict` that each stores.
_COLUMNS_OF_VERDICT = {
    **{name: name for name in ("status", "evidence", "reasoning", "justification", "confidence", "reason", "cause")},
    **{"score": "value", "raw_score": "raw_value", "first_score": "first_value"},
    **{"judge": "judge", "served_model": "served_model", "call_id": "call"},
}
_COLUMNS_STORED = (
    *(name.removesuffix("_id") for name in _COLUMNS_OF_VERDICT),
    *("count", "recommendations", "flaws", "context_snippet", "claim", "judged_at"),
)


def save_verdicts(rows: Sequence[EvaluationScore], verdicts: Sequence[Verdict], question: Question | None) -> bool:
    """Store verdicts in one short statement, each once: one that another worker stored meanwhile stays as it is.

    Args:
        rows: Pending judgements, one for each verdict; their columns are filled in.
        question: What was asked; None for what needed no judge.

    Returns:
        Whether this call stored all of them: False when one was deleted, or judged by another worker meanwhile.
    """
    judged_at = timezone.now()
    _fill_rows(rows, verdicts, question, judged_at)
    tries = 0

    def write() -> int:
        nonlocal tries
        tries += 1
        return update_rows(rows, _COLUMNS_STORED, where="status = 'pending'")

    if retry_on_outage(write) == len(rows):
        _count_timeouts(rows)
        return True
    # A try whose connection was lost may have stored them, although its answer never came: those with this very time are ours.
    # Time-outs of patterns are then not counted.
    stored = EvaluationScore.objects.filter(pk__in=[row.pk for row in rows], judged_at=judged_at)
    return tries > 1 and stored.count() == len(rows)


def _fill_rows(
    rows: Sequence[EvaluationScore], verdicts: Sequence[Verdict], question: Question | None, judged_at: datetime
) -> None:
    """Set the columns of judged rows; nothing is stored.

    A row keeps the advice of its proposition, if that has any. Its snippet is the start of the last three texts that were judged, or of
    its message where no question was asked.
    """
    claims: dict[str, str] = {}
    window_snippet = ""
    if question:
        proposition_and_claim = zip(question.propositions, question.claims().values(), strict=True)
        claims = {proposition.id: claim for proposition, claim in proposition_and_claim}
        window_snippet = _snippet(" / ".join(question.context.judged_texts()[-3:]))
    for row, verdict in zip(rows, verdicts, strict=True):
        for column, attribute in _COLUMNS_OF_VERDICT.items():
            setattr(row, column, getattr(verdict, attribute))
        row.recommendations = row.recommendations or verdict.recommendations
        row.flaws = list(verdict.flaws)
        row.judged_at = judged_at
        row.claim = claims.get(row.proposition_id, row.claim)
        if question:
            row.context_snippet = window_snippet
        else:
            row.context_snippet = _snippet(row.message.text if row.message is not None else "")


def _count_timeouts(rows: Sequence[EvaluationScore]) -> None:
    """Count the rules whose pattern took too long."""
    try:
        PatternTimeout.count((row.dimension, row.proposition_id, row.reason) for row in rows)
    except OUTAGE as error:  # the verdicts are stored: a count is not worth the evaluation
        logger.warning("patterns that took too long are not counted: %s", error)


def _snippet(text: str) -> str:
    """Return the start of a text in one line, as the database can store it."""
    text = " ".join(text.split()).replace("\x00", "\ufffd")
    if len(text) <= SNIPPET_CHARACTERS:
        return text
    return text[: SNIPPET_CHARACTERS - 1] + "…"


@dataclass(slots=True)
class EvaluationContext:
    """An evaluation while it is being judged; its dimensions share it.

    `ask` asks the judge: `complete_many`, or a batch; `waits`: for a submitted batch; `refused`: why no batch was accepted. `health`
    is shared by all evaluations that are judged together. `examples` are shown to the judge.
    """

    run: EvaluationRun
    leases: Leases
    subject: Subject | ChannelSubject
    propositions: dict[tuple[str, str], Proposition]
    budget: BudgetWatch
    health: JudgeHealth
    progress: Progress
    ask: Asking
    examples: Sequence[Example]
    nonce: str = field(default_factory=new_nonce)
    waits: bool = False
    refused: str = ""

    def renew(self) -> bool:
        """Renew the leases when it is time; return whether the run is still this process's."""
        return self.leases.renew(self.run)

    def label(self, dimension: str, row: EvaluationScore) -> Label:
        """Return the ledger's columns for a question; `row` is the first judgement that it is about."""
        return Label(
            purpose="evaluation",
            mechanism=dimension,
            dimension=dimension,
            agent_id=self.run.agent_id,
            work_id=self.run.work_id,
            item=str(row.pk),
        )

    def may_ask(self) -> bool:
        """Return whether to ask more: the run is still this process's, the judge answers, and the budget is not used up."""
        return self.renew() and not self.health.down and not self.budget.used_up()

    def store(self, rows: Sequence[EvaluationScore], verdicts: Sequence[Verdict], question: Question | None) -> bool:
        """Store verdicts if the run is still this process's, and report progress; return whether it is.

        It is not where the lease was lost, or rows are gone or were judged by another worker.

        Args:
            question: What was asked; None for what needed no judge.
        """
        if not self.renew():
            return False
        if not save_verdicts(rows, verdicts, question):
            self.leases.note_lost(self.run)
            return False
        self.progress(self.run, len(rows))
        return True


def open_evaluation(
    run: EvaluationRun,
    *,
    leases: Leases,
    files: Callable[[], Sequence[LoadedFile]],
    progress: Progress,
    health: JudgeHealth,
    window_ends: dict[tuple[object, ...], Ends],
) -> EvaluationContext:
    """Load what judging a leased run needs.

    Args:
        files: Loads the proposition files.
        health: Shared by the runs that are judged together, as is `window_ends`: where windows end that were read before.

    Raises:
        Superseded: Persona, propositions or examples are not those the run was planned with.
        PropositionError: Proposition files cannot be used.
        ValueError: The run has no target, or its dimensions are not those of a channel.
    """
    subject = subject_of(run)
    target: Agent | Channel
    if isinstance(subject, Subject):
        subject.read = window_ends
        target = subject.agent
        if current_digest(subject.agent) != run.persona_digest:
            raise Superseded("the persona changed after this run was planned; start a new one")
    else:
        target = subject.channel
    loaded: list[Proposition] = []
    for dimension in run.own_dimensions:
        loaded += propositions_asked(target, dimension, hard=run.hard, files=files())
    if propositions_digest(loaded) != run.proposition_digest:
        raise Superseded("the proposition files changed after this run was planned; start a new one")
    try:
        examples = load_examples(run)
    except NoExamples as error:
        raise Superseded(str(error)) from None
    return EvaluationContext(
        run=run,
        leases=leases,
        subject=subject,
        examples=examples,
        propositions={(proposition.dimension, proposition.id): proposition for proposition in loaded},
        budget=BudgetWatch(run.agent, run.judge),
        health=health,
        progress=progress,
        ask=partial(complete_many, deadline=settings.LLM_EVALUATION_DEADLINE),
    )


def judge_dimension(context: EvaluationContext, dimension: str) -> None:
    """Judge what is pending of one dimension, or count its ideas; all verdicts are stored as they arrive.

    Unless judging stopped early, what the scorer measures beside the judgements is stored, too (AC-6.4.8). The numbers of answered and
    failed calls go to the trace, also after an error.
    """
    calls = Counter(answered_calls=0, failed_calls=0)
    with sentry_sdk.new_scope(), sentry_sdk.start_span(op=f"evaluation.{dimension}", name=f"score {dimension}") as span:
        try:
            if dimension in COUNTED:
                count_ideas(context, calls)
            elif _judge_scores(context, calls, dimension):
                _store_figures(context, dimension)
        finally:
            for name, number in calls.items():
                span.set_data(name, number)


def _judge_scores(context: EvaluationContext, calls: Counter[str], dimension: str) -> bool:
    """Ask the judge and store its answers; return False when an answer could not be stored, or the judge is down.

    It cannot be stored when another worker has the run. True does not mean that all is judged: where nothing more may be asked, because of
    the budget for example, the rest stays pending. A call counts as failed when it brought no answer at all.
    """
    with closing(ask_all(_questions_to_ask(context, dimension), ask=context.ask)) as answers:
        for answer in answers:
            rows = [answer.question.items[position] for position in answer.positions]
            if not context.store(rows, answer.verdicts, answer.question):
                return False
            failed = all(verdict.cause in FAILURES for verdict in answer.verdicts)
            calls["failed_calls" if failed else "answered_calls"] += 1
            context.health.note(failed=failed, why=answer.verdicts[0].reason)
            if context.health.down:
                return False
    return True


def _store_figures(context: EvaluationContext, dimension: str) -> None:
    """Store what the scorer of a dimension measures beside the judgements, as the run's `figures` of that dimension.

    Nothing is stored where it measures nothing, has no propositions or cannot be evaluated, for half a swap test, and when another
    worker has the run.
    """
    run = context.run
    scorer = SCORERS[dimension]
    propositions = [proposition for key, proposition in context.propositions.items() if key[0] == dimension]
    if not isinstance(scorer, HasFigures) or not propositions or run.swap_test or not context.renew():
        return
    if SCORERS[dimension].not_evaluable(context.subject):
        return
    figures = scorer.figures(context.subject, propositions)
    if figures:
        run.figures = {**run.figures, dimension: figures}
        EvaluationRun.objects.filter(pk=run.pk).update(figures=run.figures)


def _questions_to_ask(context: EvaluationContext, dimension: str) -> Iterator[Question]:
    """Yield the questions still to ask, made one by one while earlier ones are being answered; store on the way what needs no judge.

    It ends early when another worker has the run. While nothing more may be asked, what needs no judge is stored all the same.
    """
    scorer = SCORERS[dimension]
    run = context.run
    subject = context.subject
    hindrance = scorer.not_evaluable(subject)  # why everything is unscored; empty when it can be judged
    for rows, messages in _pending_rows(run, dimension):
        if not context.renew():
            return
        if isinstance(scorer, ReadsAhead) and not hindrance:
            scorer.read_ahead(subject, messages.values())
        settled = _settle_rows(context, dimension, rows, messages, hindrance)
        if settled.rows and not context.store(settled.rows, settled.verdicts, None):
            return
        question_groups = questions(
            settled.open_items,
            subject,
            run,
            dimension=dimension,
            nonce=context.nonce,
            label=partial(context.label, dimension),
            examples=context.examples,
        )
        for group in question_groups:
            if group.question is None:
                without_text = [entry.item for entry in group.items]
                context.store(without_text, [unscored("there is no text to judge")] * len(without_text), None)
            elif context.may_ask():  # else the loop goes on, for what costs nothing
                yield group.question


@dataclass(frozen=True, slots=True)
class _Settled:
    """Pending rows that need no judge, with their verdicts; and the items that need one."""

    rows: list[EvaluationScore] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    open_items: list[OpenItem[EvaluationScore]] = field(default_factory=list)


def _settle_rows(
    context: EvaluationContext,
    dimension: str,
    rows: Sequence[EvaluationScore],
    messages: Mapping[int, Message],
    hindrance: str,
) -> _Settled:
    """Find the verdicts of rows that need no judge; nothing is stored.

    Each row gets its message and the earlier one of its pair, and in a swap test the message gets the text that stands in for its own.

    Args:
        messages: Those that the rows are about, by primary key.
        hindrance: Why the dimension cannot be evaluated; empty when it can.
    """
    run, subject = context.run, context.subject
    settled = _Settled()
    for row in rows:
        proposition = context.propositions[dimension, row.proposition_id]
        message = messages.get(row.message_id or 0)  # None: deleted, or a judgement of the whole window
        earlier = messages.get(row.compared_with_id or 0)  # None: deleted, or no pair
        row.message = message
        row.compared_with = earlier
        # Also where nothing can be evaluated: what is stored beside the verdict is the text that stood in for the agent's own.
        text_is_gone = message is not None and isinstance(subject, Subject) and not subject.swap(message)
        verdict: Verdict | None
        if hindrance:
            verdict = unscored(hindrance)
        elif text_is_gone:
            verdict = unscored("the text that stood in for the message was deleted before it was judged")
        else:
            verdict = settle(proposition, message, subject, earlier, run.additional_context)
        if verdict is None:
            settled.open_items.append(OpenItem(row, proposition, message, earlier, row.repeat))
            continue
        if message is not None:
            row.claim = fill(proposition.claim, variables_in(subject, message))
        settled.rows.append(row)
        settled.verdicts.append(by_method(verdict, run.method))  # by TinyTroupe's, what is trivial is scored
    return settled


def _pending_rows(run: EvaluationRun, dimension: str) -> Iterator[tuple[list[EvaluationScore], dict[int, Message]]]:
    """Yield the pending rows in portions of up to 500, with their messages by primary key.

    The rows of one message come together, unless it alone has more than a portion. Rows that are still pending after their portion are
    not read again.
    """
    last_key = 0
    while True:
        pending = EvaluationScore.objects.filter(evaluation_run=run, dimension=dimension, status="pending")
        later = pending.filter(pk__gt=last_key).order_by("pk")
        rows = list(later.only(*_COLUMNS_PENDING)[:ROWS_AT_ONCE])
        if not rows:
            return
        is_last = len(rows) < ROWS_AT_ONCE
        if not is_last and rows[0].message_id != rows[-1].message_id:
            # The rows of the last message may continue in the next portion: leave them to it.
            last_message = rows[-1].message_id
            while rows[-1].message_id == last_message:
                rows.pop()
        last_key = rows[-1].pk
        message_keys: set[int] = set()
        for row in rows:
            message_keys.update(key for key in (row.message_id, row.compared_with_id) if key is not None)
        yield rows, Message.objects.select_related("channel").in_bulk(list(message_keys))
        if is_last:
            return
