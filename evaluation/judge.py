"""The proposition engine: builds the judge's question, reads the answer (AC-6.0.4 to AC-6.0.6). Runs, gate and experiments share it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from django.conf import settings

from agents.llm import Block, Label, LLMRequest, Reply, Status, Turn, complete, complete_many
from agents.llm.answers import one_line
from agents.text.fences import new_nonce
from evaluation.answer_schema import answer_schema, example_answer
from evaluation.models import Method
from evaluation.prompts import Context, render, system_blocks, user_turn
from evaluation.propositions import Proposition, fill
from evaluation.verdicts import Abstention, Answer, Verdict, judged, parse_answers, reconsidered, unscored, with_call

MAX_PER_CALL = 10  # AC-6.0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Propositions that share a context, to be asked in one call.

    `nonce` marks the fences of the prompt. An evaluation gives all its questions the same one, or no call could read what another
    wrote into the prompt cache; it is as unknown to whoever wrote the messages as a fresh one. `double_check` asks again whether the
    judge is sure (AC-6.0.11), `advise` for a recommendation where the proposition has none (AC-6.0.14).

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

    def __post_init__(self) -> None:
        if not 1 <= len(self.propositions) <= MAX_PER_CALL:
            raise ValueError(f"a call takes 1 to {MAX_PER_CALL} propositions, got {len(self.propositions)}")
        if len({p.context_key for p in self.propositions}) > 1:
            raise ValueError("propositions of one call must share persona flag, target and window")

    def keyed(self) -> dict[str, Proposition]:
        """What the answer is read by. By TinyTroupe's method the judge takes penalties off itself and lists no flaws."""
        judge_side = self.method == Method.TINYTROUPE
        return {f"p{i}": replace(p, hard=p.hard and not judge_side) for i, p in enumerate(self.propositions, 1)}

    def advised(self) -> tuple[str, ...]:
        """Keys of the claims for which the judge is asked what would have been better."""
        return tuple(key for key, p in self.keyed().items() if self.advise and not p.recommendations)

    def claims(self) -> dict[str, str]:
        return {key: fill(p.claim, self.context.variables()) for key, p in self.keyed().items()}


def build_request(question: Question) -> LLMRequest:
    """The model request for a question: schema with an integer enum 0 to 9, a worked example for the re-ask, cache breakpoints."""
    keyed, claims, nonce = question.keyed(), question.claims(), question.nonce
    return LLMRequest(
        role="judge",
        task="score",
        system=system_blocks(question.context, question.propositions, nonce, method=question.method),
        turns=(user_turn(question.context, list(claims.items()), nonce, advised=question.advised()),),
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
        return [unscored(reason, **who) for _ in question.propositions]
    entries: dict[str, Answer | Abstention] = reply.value
    verdicts = (judged(entries[key], p, question.method) for key, p in question.keyed().items())
    return [with_call(verdict, **who) for verdict in verdicts]


@dataclass(frozen=True, slots=True)
class Answered:
    """Verdicts for some of a question's propositions, by position. `final` when none of them is left."""

    question: Question
    positions: tuple[int, ...]
    verdicts: tuple[Verdict, ...]
    final: bool


def ask_all(questions: Iterable[Question], *, deadline: float) -> Iterator[Answered]:
    """Ask many questions at once; yields verdicts as they arrive.

    What is worth a second try is asked once more after everything else: entries of a grouped answer that were not valid, on their
    own, and calls that were refused, cut off, limited or not served, as long as these are the exception. One bad entry costs
    neither its neighbours nor itself; a judge that is down is found out at once.
    """
    again: list[tuple[Question, tuple[int, ...]]] = []
    served = 0
    for question, reply, verdicts in _judgements(questions, deadline):
        served += reply.ok
        left = _second_try(reply, verdicts) if len(again) <= max(RETRIED_AT_LEAST, served) and not question.gate else ()
        if left:
            again.append((question, left))
        kept = tuple(i for i in range(len(verdicts)) if i not in left)
        if kept:
            yield Answered(question, kept, tuple(verdicts[i] for i in kept), final=not left)
    originals = iter(again)
    places: dict[int, tuple[Question, tuple[int, ...]]] = {}

    def narrowed() -> Iterator[Question]:
        for question, positions in originals:
            part = replace(
                question, propositions=tuple(question.propositions[i] for i in positions), max_tokens_factor=2
            )
            places[id(part)] = (question, positions)
            yield part

    for part, _, verdicts in _judgements(narrowed(), deadline):
        question, positions = places.pop(id(part))
        yield Answered(question, positions, tuple(verdicts), final=True)


RETRIED_AT_LEAST = 5
_WORTH_ANOTHER_TRY = (Status.REFUSED, Status.TRUNCATED, Status.RATE_LIMITED, Status.UNAVAILABLE)


def _second_try(reply: Reply, verdicts: Sequence[Verdict]) -> tuple[int, ...]:
    """Positions worth asking again: all of a call that failed in passing, the invalid entries of an answer."""
    if reply.ok:
        return tuple(i for i, v in enumerate(verdicts) if v.status == "unscored" and v.reason.startswith("malformed"))
    return tuple(range(len(verdicts))) if reply.status in _WORTH_ANOTHER_TRY else ()


_First = tuple[Reply, list[Verdict]]


def _judgements(questions: Iterable[Question], deadline: float) -> Iterator[tuple[Question, Reply, list[Verdict]]]:
    """Questions with their verdicts, as they come in; a question is let go with its reply, however many there are.

    What is to be double-checked is asked again as soon as its first answer is there, among the questions that follow.
    """
    source = iter(questions)
    rechecks: deque[tuple[Question, _First]] = deque()
    asked: dict[int, tuple[Question, _First | None]] = {}

    def requests() -> Iterator[LLMRequest]:
        for index in count():
            if rechecks:
                question, first = rechecks.popleft()
                asked[index] = question, first
                yield build_recheck(question, first[0])
            elif (plain := next(source, None)) is not None:
                asked[index] = plain, None
                yield build_request(plain)
            else:
                return

    while True:
        for index, reply in complete_many(requests(), deadline=deadline):
            question, first = asked.pop(index)
            verdicts = read_reply(question, reply)
            if first is not None:
                merged = [reconsidered(a, b) for a, b in zip(first[1], verdicts, strict=True)]
                yield question, first[0], merged
            elif question.double_check and reply.ok:
                rechecks.append((question, (reply, verdicts)))
            else:
                yield question, reply, verdicts
        if not rechecks:
            return


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
