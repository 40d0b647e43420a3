"""The proposition engine: asks a judge about propositions, as many in a call as belong together (AC-6.0.4 to AC-6.0.6).

Runs, gate and experiments share it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from django.conf import settings

from agents.llm import Label, Reply, Status, complete
from evaluation.asking import Ask, in_flight
from evaluation.prompts import Context
from evaluation.propositions.schema import Proposition
from evaluation.questions import MAX_PER_CALL, Question, build_recheck, build_request, judge_name, read_reply
from evaluation.verdicts import Verdict, reconsidered, unscored

__all__ = [
    "MAX_PER_CALL",
    "Answered",
    "Question",
    "Questioning",
    "ask_all",
    "build_recheck",
    "build_request",
    "judge_name",
    "read_reply",
    "score_proposition",
    "score_propositions",
]


@dataclass(frozen=True, slots=True)
class Answered:
    """Verdicts for some of a question's propositions, by position. `final` when none of them is left."""

    question: Question
    positions: tuple[int, ...]
    verdicts: tuple[Verdict, ...]
    final: bool


class Questioning:
    """Questions on their way to the judge and back, with what is asked twice.

    What is worth a second try is asked once more after everything else: entries of a grouped answer that were not valid, on their
    own, and calls that were refused, cut off, limited or not served, as long as these are the exception. One bad entry costs
    neither its neighbours nor itself; a judge that is down is found out at once. What is to be double-checked is asked again as soon
    as its first answer is there. A question is let go with its reply, however many there are.
    """

    def __init__(self, give: Callable[[], Question | None], deliver: Callable[[Answered], None]) -> None:
        """`give` gives the next question, None when there is none now; `deliver` is called with verdicts as they arrive."""
        self._give, self._deliver = give, deliver
        self._now: deque[Ask] = deque()
        self._later: deque[tuple[Question, tuple[int, ...]]] = deque()
        self._served = self._tried_again = self._open = 0

    def next(self) -> Ask | None:
        """The next thing to ask (a `Source`)."""
        if self._now:
            return self._now.popleft()
        if (question := self._give()) is not None:
            self._open += 1
            return Ask(build_request(question), partial(self._first_answer, question, None))
        if not self._later or self._open:
            return None
        whole, positions = self._later.popleft()
        part = replace(whole, propositions=tuple(whole.propositions[i] for i in positions), max_tokens_factor=2)
        return Ask(build_request(part), partial(self._first_answer, part, Answered(whole, positions, (), final=True)))

    def _first_answer(self, question: Question, place: Answered | None, reply: Reply) -> None:
        verdicts = read_reply(question, reply)
        if not (question.double_check and reply.ok):
            self._answered(question, place, reply, verdicts)
            return
        take = partial(self._second_answer, question, place, reply, verdicts)
        self._now.append(Ask(build_recheck(question, reply), take))

    def _second_answer(
        self, question: Question, place: Answered | None, first: Reply, verdicts: list[Verdict], reply: Reply
    ) -> None:
        seconds = read_reply(question, reply)
        self._answered(question, place, first, [reconsidered(a, b) for a, b in zip(verdicts, seconds, strict=True)])

    def _answered(self, question: Question, place: Answered | None, reply: Reply, verdicts: list[Verdict]) -> None:
        self._open -= place is None
        if place is not None:  # a second try: it is the last one
            self._deliver(replace(place, verdicts=tuple(verdicts)))
            return
        self._served += reply.ok
        few = self._tried_again <= max(RETRIED_AT_LEAST, self._served)
        left = _second_try(reply, verdicts) if few and not question.gate else ()
        if left:
            self._tried_again += 1
            self._later.append((question, left))
        kept = tuple(i for i in range(len(verdicts)) if i not in left)
        if kept:
            self._deliver(Answered(question, kept, tuple(verdicts[i] for i in kept), final=not left))


RETRIED_AT_LEAST = 5
_WORTH_ANOTHER_TRY = (Status.REFUSED, Status.TRUNCATED, Status.RATE_LIMITED, Status.UNAVAILABLE)


def _second_try(reply: Reply, verdicts: Sequence[Verdict]) -> tuple[int, ...]:
    """Positions worth asking again: all of a call that failed in passing, the invalid entries of an answer."""
    if reply.ok:
        return tuple(i for i, v in enumerate(verdicts) if v.status == "unscored" and v.reason.startswith("malformed"))
    return tuple(range(len(verdicts))) if reply.status in _WORTH_ANOTHER_TRY else ()


def ask_all(questions: Iterable[Question], *, deadline: float) -> Iterator[Answered]:
    """Ask many questions at once; yields verdicts as they arrive (see `Questioning`)."""
    arrived: deque[Answered] = deque()
    give = partial(next, iter(questions), None)
    for _ in in_flight([Questioning(give, arrived.append).next], deadline=deadline):
        while arrived:
            yield arrived.popleft()


def score_propositions(
    *,
    propositions: Sequence[Proposition],
    context: Context,
    label: Label,
    model: str = "",
    deadline: float | None = None,
) -> list[Verdict]:
    """Score propositions about one context, up to ten per call, grouped by equal windows (AC-6.0.4).

    Args:
        propositions: What to judge; rules are not accepted here, they need no judge.
        context: What the judge is shown.
        label: Columns for the ledger.
        model: Overrides the configured judge.
        deadline: Seconds per call; default `LLM_EVALUATION_DEADLINE`.

    Returns:
        One verdict per proposition, in their order.
    """
    groups: dict[object, list[int]] = {}
    for index, proposition in enumerate(propositions):
        groups.setdefault(proposition.context_key, []).append(index)
    chunks = [
        indexes[i : i + MAX_PER_CALL] for indexes in groups.values() for i in range(0, len(indexes), MAX_PER_CALL)
    ]
    questions = [
        Question(propositions=tuple(propositions[i] for i in chunk), context=context, label=label, model=model)
        for chunk in chunks
    ]
    places = {id(question): chunk for question, chunk in zip(questions, chunks, strict=True)}
    results: list[Verdict] = [unscored("not judged")] * len(propositions)
    for answered in ask_all(questions, deadline=deadline or settings.LLM_EVALUATION_DEADLINE):
        chunk = places[id(answered.question)]
        for position, verdict in zip(answered.positions, answered.verdicts, strict=True):
            results[chunk[position]] = verdict
    return results


def score_proposition(
    *,
    proposition: Proposition,
    context: Context,
    label: Label,
    model: str = "",
    gate: bool = False,
    deadline: float | None = None,
) -> Verdict:
    """Score one proposition alone, as experiments and the gate do."""
    question = Question(propositions=(proposition,), context=context, label=label, model=model, gate=gate)
    reply = complete(build_request(question), deadline=deadline or settings.LLM_EVALUATION_DEADLINE)
    return read_reply(question, reply)[0]
