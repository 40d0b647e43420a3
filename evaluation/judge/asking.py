"""Ask the judge many questions at the same time: double checks, second tries, and when to give up on a judge that does not answer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from django.conf import settings

from agents.kit.llm import Label, LLMRequest, Reply, Status, complete, complete_many
from evaluation.judge.questions import (
    CACHED_FROM,
    MAX_PER_CALL,
    Question,
    build_recheck,
    build_request,
    cached_characters,
    read_reply,
)
from evaluation.judge.verdicts import MALFORMED, Verdict, reconsidered, unscored
from evaluation.propositions.schema import Proposition
from evaluation.scorers.context import Context

Replies = Generator[tuple[int, Reply], None, None]
Asking = Callable[[Iterable[LLMRequest | None]], Replies]  # `complete_many`, or what stands in for it with batches
RETRIED_AT_LEAST = 5  # calls, however few were answered
GIVE_UP_AFTER = 10  # calls that failed before any succeeded
WORTH_SECOND_TRY = (Status.REFUSED, Status.TRUNCATED, Status.RATE_LIMITED, Status.UNAVAILABLE)


class JudgeHealth:
    """Notes over everything that is asked together whether the judge answers at all. Usable from several threads.

    Attributes:
        down: Why to stop asking; empty while the judge answers.
    """

    def __init__(self) -> None:
        self.down = ""
        self._answered = 0
        self._failed = 0
        self._lock = threading.Lock()

    def note(self, *, failed: bool, why: str) -> None:
        """Count one call. Once ten failed and none was answered the judge is `down`, and stays so.

        Args:
            failed: Whether it brought no answer.
            why: What it brought instead.
        """
        with self._lock:
            if failed:
                self._failed += 1
            else:
                self._answered += 1
            if self._failed >= GIVE_UP_AFTER and not self._answered:
                self.down = self.down or f"the judge answered none of the first calls; the last: {why}"


@dataclass(frozen=True, slots=True)
class Answered:
    """Verdicts for some of a question's propositions, by position."""

    question: Question
    positions: tuple[int, ...]
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class _FirstAnswer:
    """The answer of which the judge is asked whether it is sure."""

    reply: Reply
    verdicts: list[Verdict]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the judge.

    Attributes:
        question: What it asks.
        whole_question: The same, but for a second try of some of its propositions.
        positions: Of its propositions in the whole question.
        first_answer: Set for the second call of a double check.
    """

    question: Question
    whole_question: Question
    positions: tuple[int, ...]
    first_answer: _FirstAnswer | None = None

    @property
    def is_first_try(self) -> bool:
        return self.question is self.whole_question


class _Calls:
    """The calls of one `ask_all`: which is made next, which wait for the prompt cache, which are tried again at the end."""

    def __init__(self, questions: Iterable[Question]) -> None:
        self._questions = iter(questions)
        self._double_checks: deque[_Call] = deque()
        self._second_tries: deque[_Call] = deque()
        self._in_flight: dict[int, _Call] = {}
        self._first_tries_open = 0  # made and not ended
        self._answered = 0
        self._tried_again = 0
        self._known_prefixes: set[Hashable] = {None}
        # Questions that wait, by the prefix that a call in flight is writing into the prompt cache.
        self._waiting: dict[Hashable, list[Question]] = {}
        self._released: deque[Question] = deque()

    def requests(self) -> Iterator[LLMRequest | None]:
        """Yield what to send next; None when there is nothing until another reply arrives.

        It never ends by itself: the caller stops at a None once it waits for no reply. Requests are numbered from 0, without the Nones.
        """
        number = 0
        while True:
            call = self._next_call()
            if call is None:
                yield None
                continue
            self._in_flight[number] = call
            number += 1
            yield self._build_request(call)

    def _next_call(self) -> _Call | None:
        """Return the next call to make; None when all wait for replies.

        Double checks come first, then questions, and second tries when no first try is open any more.
        """
        if self._double_checks:
            return self._double_checks.popleft()
        question = self._next_question()
        if question is not None:
            self._first_tries_open += 1
            return _Call(question, question, tuple(range(len(question.propositions))))
        if self._second_tries and not self._first_tries_open:  # they come after everything else
            return self._second_tries.popleft()
        return None

    def _next_question(self) -> Question | None:
        """Return a question that need not wait for the prompt cache; put aside those that must."""
        if self._released:
            return self._released.popleft()
        for question in self._questions:
            if question.prefix not in self._waiting:
                return question
            self._waiting[question.prefix].append(question)
        return None

    def _build_request(self, call: _Call) -> LLMRequest:
        """Build the request of a call: a double check, or a question.

        Of the first question of a prefix, when the prompt cache takes so long a beginning, those with the same prefix wait for its reply.
        """
        if call.first_answer is not None:
            return build_recheck(call.question, call.first_answer.reply)
        request = build_request(call.question)
        prefix = call.question.prefix
        if prefix not in self._known_prefixes:
            self._known_prefixes.add(prefix)
            if cached_characters(request) >= CACHED_FROM:  # this call writes its prefix into the cache
                self._waiting[prefix] = []  # from now on `_next_question` puts aside what has this prefix
        return request

    def take_reply(self, number: int, reply: Reply) -> Answered | None:
        """Read the reply to the request of that number; return the verdicts that are final, if there are any.

        An answer that is to be double-checked is not final, nor is what gets a second try.
        """
        call = self._in_flight.pop(number)
        # Whether it was answered or not, those that waited for its prefix are asked now.
        self._released += self._waiting.pop(call.question.prefix, ())
        verdicts = read_reply(call.question, reply)
        first_answer = call.first_answer
        if first_answer is None and reply.ok and call.question.double_check:
            self._double_checks.append(replace(call, first_answer=_FirstAnswer(reply, verdicts)))
            return None
        if first_answer is not None:
            reply = first_answer.reply  # it decides about a second try: the double check is none
            pairs = zip(first_answer.verdicts, verdicts, strict=True)
            verdicts = [reconsidered(first, second) for first, second in pairs]
        retried: list[int] = []
        if call.is_first_try:  # a second try is the last one
            retried = self._end_first_try(call, reply, verdicts)
        final = [position for position in range(len(verdicts)) if position not in retried]
        if not final:
            return None
        positions = tuple(call.positions[position] for position in final)
        return Answered(call.whole_question, positions, tuple(verdicts[position] for position in final))

    def _end_first_try(self, call: _Call, reply: Reply, verdicts: Sequence[Verdict]) -> list[int]:
        """Queue a second try for what is worth it, with room for twice as long an answer; return the positions of its propositions.

        None for the gate, and none any more once second tries outnumber both five and the answered calls: then failing is the rule.
        """
        self._first_tries_open -= 1
        if reply.ok:
            self._answered += 1
        are_exceptions = self._tried_again <= max(RETRIED_AT_LEAST, self._answered)
        retried: list[int] = []
        if are_exceptions and not call.question.gate:
            retried = _worth_second_try(reply, verdicts)
        if retried:
            self._tried_again += 1
            propositions = tuple(call.question.propositions[position] for position in retried)
            question = replace(call.question, propositions=propositions, max_tokens_factor=2)
            self._second_tries.append(_Call(question, call.whole_question, tuple(retried)))
        return retried


def _worth_second_try(reply: Reply, verdicts: Sequence[Verdict]) -> list[int]:
    """Return the positions of verdicts that a second call may better: invalid entries of an answer, or all of a failed call."""
    if reply.ok:
        return [position for position, verdict in enumerate(verdicts) if verdict.cause == MALFORMED]
    if reply.status in WORTH_SECOND_TRY:
        return list(range(len(verdicts)))
    return []


def ask_all(
    questions: Iterable[Question], *, deadline: float | None = None, ask: Asking | None = None
) -> Generator[Answered, None, None]:
    """Ask many questions at once; yield verdicts as they arrive.

    What is worth a second try is asked once more after everything else: invalid entries of a grouped answer, on their own, and calls that
    were refused, cut off, limited or not served, as long as these are the exception. A double check follows its first answer. Questions
    that begin alike (`Question.prefix`) wait for the first of them: sent together, none would find their prefix in the prompt cache.

    Args:
        questions: Made one by one, in the calling thread, as there is room for calls.
        deadline: Seconds per call; default `LLM_EVALUATION_DEADLINE`.
        ask: Asks the requests; default `complete_many`.
    """
    if ask is None:
        ask = partial(complete_many, deadline=deadline or settings.LLM_EVALUATION_DEADLINE)
    calls = _Calls(questions)
    for number, reply in ask(calls.requests()):
        answered = calls.take_reply(number, reply)
        if answered is not None:
            yield answered


def score_propositions(
    *, propositions: Sequence[Proposition], context: Context, label: Label, model: str = ""
) -> list[Verdict]:
    """Score propositions about one context, up to ten per call, grouped by equal windows (AC-6.0.4); one verdict each, in their order.

    Nothing is stored but the calls in the ledger. What could not be judged is unscored, with the reason.

    Args:
        propositions: What to judge; no rules, they need no judge.
        model: Overrides the configured judge.
    """
    positions_by_context: dict[object, list[int]] = {}
    for position, proposition in enumerate(propositions):
        positions_by_context.setdefault(proposition.context_key, []).append(position)
    questions: list[Question] = []
    for positions in positions_by_context.values():
        for start in range(0, len(positions), MAX_PER_CALL):
            chunk = positions[start : start + MAX_PER_CALL]
            chunk_propositions = tuple(propositions[position] for position in chunk)
            questions.append(
                Question(propositions=chunk_propositions, context=context, label=label, model=model, items=chunk)
            )
    results: list[Verdict] = [unscored("not judged")] * len(propositions)
    for answered in ask_all(questions):
        for position, verdict in zip(answered.positions, answered.verdicts, strict=True):
            results[answered.question.items[position]] = verdict
    return results


def score_proposition(
    *, proposition: Proposition, context: Context, label: Label, deadline: float | None = None
) -> Verdict:
    """Score one proposition with one call, without the second try and double check of `ask_all`.

    Args:
        deadline: Seconds in total; default `LLM_EVALUATION_DEADLINE`.
    """
    question = Question(propositions=(proposition,), context=context, label=label)
    reply = complete(build_request(question), deadline=deadline or settings.LLM_EVALUATION_DEADLINE)
    return read_reply(question, reply)[0]
