"""Ask the judge about propositions, up to ten in a call, and read its replies (AC-6.0.4 to AC-6.0.6)."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from django.conf import settings

from agents.llm import Block, Label, LLMRequest, Reply, Status, Turn, complete, complete_many
from agents.llm.answers import one_line
from agents.text.fences import new_nonce
from evaluation.judge.prompts import Context, render, system_blocks, user_turn
from evaluation.judge.verdicts import (
    MALFORMED,
    Abstention,
    Answer,
    Verdict,
    answer_schema,
    example_answer,
    judged,
    parse_answers,
    reconsidered,
    unscored,
    with_call,
)
from evaluation.models import Method
from evaluation.propositions.schema import Proposition, fill

MAX_PER_CALL = 10  # AC-6.0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Propositions that share a context, to be asked in one call.

    `nonce` marks the fences of the prompt. An evaluation gives all its questions the same one, or no call could read what another
    wrote into the prompt cache; it is as unknown to whoever wrote the messages as a fresh one. `double_check` asks again whether the
    judge is sure (AC-6.0.11), `advise` for a recommendation where the proposition has none (AC-6.0.14).

    Writing into the prompt cache costs more than doing without: `alone` says that no other call shows this window, `again` that the very
    same prompt is sent again (repeats; a double check, which goes on from it). `items` are the caller's: what its verdicts are for, one
    per proposition.

    Raises:
        ValueError: There are none or more than ten, or they do not share their window and persona flag.
    """

    propositions: tuple[Proposition, ...]
    context: Context
    label: Label
    model: str = ""
    gate: bool = False
    nonce: str = field(default_factory=new_nonce)
    max_tokens_factor: int = 1
    double_check: bool = False
    advise: bool = False
    method: str = Method.PLUMBLINE.value
    alone: bool = False
    again: bool = False
    items: Sequence[Any] = field(default=(), repr=False, compare=False)
    _keyed: dict[str, Proposition] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= len(self.propositions) <= MAX_PER_CALL:
            raise ValueError(f"a call takes 1 to {MAX_PER_CALL} propositions, got {len(self.propositions)}")
        if len({p.context_key for p in self.propositions}) > 1:
            raise ValueError("propositions of one call must share persona flag, target and window")
        judge_side = self.method == Method.TINYTROUPE
        shown = (replace(p, hard=False) if judge_side and p.hard else p for p in self.propositions)
        object.__setattr__(self, "_keyed", {f"p{i}": p for i, p in enumerate(shown, 1)})

    def keyed(self) -> dict[str, Proposition]:
        """What the answer is read by. By TinyTroupe's method the judge takes penalties off itself and lists no flaws."""
        return self._keyed

    def advised(self) -> tuple[str, ...]:
        """Keys of the claims for which the judge is asked what would have been better."""
        return tuple(key for key, p in self.keyed().items() if self.advise and not p.recommendations)

    def claims(self) -> dict[str, str]:
        variables = self.context.variables()
        return {key: fill(p.claim, variables) for key, p in self.keyed().items()}


def build_request(question: Question) -> LLMRequest:
    """The model request for a question: schema with an integer enum 0 to 9, a worked example for the re-ask, cache breakpoints."""
    keyed, claims, nonce = question.keyed(), question.claims(), question.nonce
    return LLMRequest(
        role="judge",
        task="score",
        system=system_blocks(question.context, question.propositions, nonce, method=question.method),
        turns=(
            user_turn(
                question.context,
                list(claims.items()),
                nonce,
                advised=question.advised(),
                alone=question.alone,
                again=question.again,
            ),
        ),
        label=question.label,
        schema=answer_schema(keyed, question.advised()),
        parse=lambda data: parse_answers(data, keyed),
        example=example_answer(keyed),
        reask=not question.gate,
        max_tokens=(600 + 500 * len(keyed)) * question.max_tokens_factor,
        retries=0 if question.gate else settings.LLM_EVALUATION_RETRIES,
        gate=question.gate,
        model=question.model,
        nonce=nonce,
        facts={
            "claims": {
                key: {
                    "text": claims[key],
                    "cues": p.cues.model_dump() if p.cues else None,
                    "measure": p.measure,
                    "hard": p.hard,
                }
                for key, p in zip(keyed, question.propositions, strict=True)
            },
            "texts": question.context.judged_texts(),
            "measured": question.context.measured,
            "history": question.context.history(),
        },
    )


def build_recheck(question: Question, reply: Reply) -> LLMRequest:
    """The follow-up to an answered question: is the judge sure?"""
    request = build_request(question)
    answered = Turn("assistant", (Block(reply.text or json.dumps(example_answer(question.keyed()))),))
    asked = Turn("user", (Block(render("double_check")),))
    return replace(request, turns=(*request.turns, answered, asked))


def judge_name(question: Question) -> str:
    """The model that is asked, as stored with every score."""
    return question.model or str(settings.JUDGE_MODEL)


def read_reply(question: Question, reply: Reply) -> list[Verdict]:
    """One verdict per proposition of the question, in order. A reply without an answer makes all of them unscored, with the reason."""
    served = one_line(reply.served_model, 200)
    who: dict[str, Any] = {"judge": judge_name(question), "served_model": served, "call": reply.call_id}
    if not reply.ok:
        reason = f"{reply.status}: {reply.error}" if reply.error else str(reply.status)
        return [unscored(reason, cause=reply.status.value, **who) for _ in question.propositions]
    entries: dict[str, Answer | Abstention] = reply.value
    verdicts = (judged(entries[key], p, question.method) for key, p in question.keyed().items())
    return [with_call(verdict, **who) for verdict in verdicts]


Replies = Generator[tuple[int, Reply], None, None]
Asking = Callable[[Iterable[LLMRequest | None]], Replies]  # `complete_many`, or what stands in for it with batches
RETRIED_AT_LEAST = 5
GIVE_UP_AFTER = 10  # calls that failed before any succeeded
_WORTH_ANOTHER_TRY = (Status.REFUSED, Status.TRUNCATED, Status.RATE_LIMITED, Status.UNAVAILABLE)


class JudgeHealth:
    """Whether the judge answers at all, over everything that is asked together. Safe to use from several threads.

    Attributes:
        down: Why to stop asking: the judge answered none of the first calls. Empty while there is no reason.
    """

    def __init__(self) -> None:
        self.down = ""
        self._answered = self._failed = 0
        self._lock = threading.Lock()

    def note(self, *, failed: bool, why: str) -> None:
        """Count one call."""
        with self._lock:
            self._failed += failed
            self._answered += not failed
            if self._failed >= GIVE_UP_AFTER and not self._answered:
                self.down = self.down or f"the judge answered none of the first calls; the last: {why}"


@dataclass(frozen=True, slots=True)
class Answered:
    """Verdicts for some of a question's propositions, by position."""

    question: Question
    positions: tuple[int, ...]
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call: what it asks, and the positions of its propositions in the whole question."""

    question: Question
    whole: Question
    positions: tuple[int, ...]
    first: tuple[Reply, list[Verdict]] | None = None  # the answer of which the judge is asked whether it is sure


def ask_all(
    questions: Iterable[Question], *, deadline: float | None = None, ask: Asking | None = None
) -> Generator[Answered, None, None]:
    """Ask many questions at once; yield verdicts as they arrive.

    What is worth a second try is asked once more after everything else: invalid entries of a grouped answer, on their own, and calls that
    were refused, cut off, limited or not served, as long as these are the exception. One bad entry costs neither its neighbours nor
    itself. What is to be double-checked is asked again as soon as its first answer is there.

    Args:
        questions: Made one by one, in the calling thread, as there is room for calls.
        deadline: Seconds per call; default `LLM_EVALUATION_DEADLINE`.
        ask: Asks the requests; default `complete_many`.
    """
    fresh, checks, retries = iter(questions), deque[_Asked](), deque[_Asked]()
    waiting: dict[int, _Asked] = {}
    first_tries = served = retried = 0

    def requests() -> Iterator[LLMRequest | None]:
        nonlocal first_tries
        number = 0
        while True:
            if checks:
                call = checks.popleft()
            elif (question := next(fresh, None)) is not None:
                call, first_tries = (
                    _Asked(question, question, tuple(range(len(question.propositions)))),
                    first_tries + 1,
                )
            elif retries and not first_tries:
                call = retries.popleft()
            else:
                yield None
                continue
            waiting[number], number = call, number + 1
            yield build_recheck(call.question, call.first[0]) if call.first else build_request(call.question)

    ask = ask or partial(complete_many, deadline=deadline or settings.LLM_EVALUATION_DEADLINE)
    for number, reply in ask(requests()):
        call = waiting.pop(number)
        verdicts = read_reply(call.question, reply)
        if call.first is None and reply.ok and call.question.double_check:
            checks.append(replace(call, first=(reply, verdicts)))
            continue
        if call.first is not None:
            reply, before = call.first
            verdicts = [reconsidered(first, second) for first, second in zip(before, verdicts, strict=True)]
        again: tuple[int, ...] = ()
        if call.question is call.whole:  # else it is a second try: the last one
            first_tries, served = first_tries - 1, served + reply.ok
            if retried <= max(RETRIED_AT_LEAST, served) and not call.question.gate:
                again = _second_try(reply, verdicts)
        if again:
            retried += 1
            part = tuple(call.question.propositions[i] for i in again)
            retries.append(_Asked(replace(call.question, propositions=part, max_tokens_factor=2), call.whole, again))
        if settled := [i for i in range(len(verdicts)) if i not in again]:
            yield Answered(call.whole, tuple(call.positions[i] for i in settled), tuple(verdicts[i] for i in settled))


def _second_try(reply: Reply, verdicts: Sequence[Verdict]) -> tuple[int, ...]:
    """Positions worth asking again: all of a call whose failure may pass, the invalid entries of an answer."""
    if reply.ok:
        return tuple(i for i, v in enumerate(verdicts) if v.cause == MALFORMED)
    return tuple(range(len(verdicts))) if reply.status in _WORTH_ANOTHER_TRY else ()


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
    questions = [
        Question(
            propositions=tuple(propositions[i] for i in chunk), context=context, label=label, model=model, items=chunk
        )
        for indexes in groups.values()
        for chunk in (indexes[i : i + MAX_PER_CALL] for i in range(0, len(indexes), MAX_PER_CALL))
    ]
    results: list[Verdict] = [unscored("not judged")] * len(propositions)
    for answered in ask_all(questions, deadline=deadline):
        for position, verdict in zip(answered.positions, answered.verdicts, strict=True):
            results[answered.question.items[position]] = verdict
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
