"""A question to the judge: what is sent, and how the reply is read (AC-6.0.4 to AC-6.0.6)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings

from agents.llm import Block, Label, LLMRequest, Reply, Turn
from agents.llm.answers import one_line
from agents.text.fences import new_nonce
from evaluation.answer_schema import answer_schema, example_answer
from evaluation.models import Method
from evaluation.prompts import Context, render, system_blocks, user_turn
from evaluation.propositions.schema import Proposition, fill
from evaluation.verdicts import Abstention, Answer, Verdict, judged, parse_answers, unscored, with_call

MAX_PER_CALL = 10  # AC-6.0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Propositions that share a context, to be asked in one call.

    `nonce` marks the fences of the prompt. An evaluation gives all its questions the same one, or no call could read what another
    wrote into the prompt cache; it is as unknown to whoever wrote the messages as a fresh one. `double_check` asks again whether the
    judge is sure (AC-6.0.11), `advise` for a recommendation where the proposition has none (AC-6.0.14).

    Writing into the prompt cache costs more than doing without: `alone` says that no other call shows this window, `again` that the very
    same prompt is sent again (repeats; a double check, which goes on from it).

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
        return [unscored(reason, **who) for _ in question.propositions]
    entries: dict[str, Answer | Abstention] = reply.value
    verdicts = (judged(entries[key], p, question.method) for key, p in question.keyed().items())
    return [with_call(verdict, **who) for verdict in verdicts]
