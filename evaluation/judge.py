"""The proposition engine: builds the judge's question, reads the answer (AC-6.0.4 to AC-6.0.6). Runs, gate and experiments share it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings

from agents.llm import Label, LLMRequest, Reply, Status, complete, complete_many
from agents.llm.answers import one_line
from agents.text.fences import new_nonce
from evaluation.prompts import Context, system_blocks, user_turn
from evaluation.propositions import Proposition, fill
from evaluation.verdicts import Abstention, Answer, Verdict, judged, parse_answers, unscored, with_call

MAX_PER_CALL = 10  # AC-6.0.4
CONFIDENCES = [round(i / 10, 1) for i in range(11)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Propositions that share a context, to be asked in one call.

    `nonce` marks the fences of the prompt. An evaluation gives all its questions the same one, or no call could read what another
    wrote into the prompt cache; it is as unknown to whoever wrote the messages as a fresh one.

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

    def __post_init__(self) -> None:
        if not 1 <= len(self.propositions) <= MAX_PER_CALL:
            raise ValueError(f"a call takes 1 to {MAX_PER_CALL} propositions, got {len(self.propositions)}")
        if len({p.context_key for p in self.propositions}) > 1:
            raise ValueError("propositions of one call must share persona flag, target and window")

    def keyed(self) -> dict[str, Proposition]:
        return {f"p{i}": proposition for i, proposition in enumerate(self.propositions, 1)}

    def claims(self) -> dict[str, str]:
        return {key: fill(p.claim, self.context.variables()) for key, p in self.keyed().items()}


def build_request(question: Question) -> LLMRequest:
    """The model request for a question: schema with an integer enum 0 to 9, a worked example for the re-ask, cache breakpoints."""
    keyed, claims, nonce = question.keyed(), question.claims(), question.nonce
    return LLMRequest(
        role="judge",
        task="score",
        system=system_blocks(question.context, question.propositions, nonce),
        turns=(user_turn(question.context, list(claims.items()), nonce),),
        label=question.label,
        schema=_schema(keyed),
        parse=lambda data: parse_answers(data, keyed),
        example=_example(keyed),
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
                for key, p in keyed.items()
            },
            "texts": question.context.judged_texts(),
            "history": question.context.history(),
        },
    )


def _entry_schema(hard: bool) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "evidence": {"type": "string", "enum": ["present", "absent"]},
        "reasoning": {"type": "string"},
        "justification": {"type": "string"},
    }
    if hard:
        properties["flaws"] = {"type": "array", "items": {"type": "string"}}
    properties["value"] = {"type": "integer", "enum": list(range(10))}
    properties["confidence"] = {"type": "number", "enum": CONFIDENCES}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _schema(keyed: Mapping[str, Proposition]) -> dict[str, Any]:
    hard = any(p.hard for p in keyed.values())
    if len(keyed) == 1:
        return _entry_schema(hard)
    properties = {key: _entry_schema(hard) for key in keyed}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _example(keyed: Mapping[str, Proposition]) -> dict[str, Any]:
    """A valid answer to another question; only its shape is to be followed."""
    entry: dict[str, Any] = {
        "evidence": "present",
        "reasoning": "Two of the three sentences show what the claim says, the last one works against it.",
        "justification": "The second sentence says it outright.",
        "value": 6,
        "confidence": 0.7,
    }
    if any(p.hard for p in keyed.values()):
        entry = {**entry, "flaws": ["the last sentence contradicts the persona"]}
    return entry if len(keyed) == 1 else dict.fromkeys(keyed, entry)


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
    verdicts = (judged(entries[key], p) for key, p in question.keyed().items())
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
    for question, reply in _replies(questions, deadline):
        verdicts = read_reply(question, reply)
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

    for part, reply in _replies(narrowed(), deadline):
        question, positions = places.pop(id(part))
        yield Answered(question, positions, tuple(read_reply(part, reply)), final=True)


RETRIED_AT_LEAST = 5
_WORTH_ANOTHER_TRY = (Status.REFUSED, Status.TRUNCATED, Status.RATE_LIMITED, Status.UNAVAILABLE)


def _second_try(reply: Reply, verdicts: Sequence[Verdict]) -> tuple[int, ...]:
    """Positions worth asking again: all of a call that failed in passing, the invalid entries of an answer."""
    if reply.ok:
        return tuple(i for i, v in enumerate(verdicts) if v.status == "unscored" and v.reason.startswith("malformed"))
    return tuple(range(len(verdicts))) if reply.status in _WORTH_ANOTHER_TRY else ()


def _replies(questions: Iterable[Question], deadline: float) -> Iterator[tuple[Question, Reply]]:
    """Questions with their replies, as they finish; a question is let go with its reply, however many there are."""
    asked: dict[int, Question] = {}

    def requests() -> Iterator[LLMRequest]:
        for index, question in enumerate(questions):
            asked[index] = question
            yield build_request(question)

    for index, reply in complete_many(requests(), deadline=deadline):
        yield asked.pop(index), reply


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
