"""Put up to ten propositions that share a context into one call of the judge, and read its reply (AC-6.0.4)."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings

from agents.kit.llm import Block, Label, LLMRequest, Reply, Turn
from agents.kit.llm.requests import short_line as storable_line
from agents.kit.text.fences import new_nonce
from evaluation.judge.prompts import Example, render, system_blocks, user_turn
from evaluation.judge.verdicts import (
    Abstention,
    Answer,
    Verdict,
    answer_schema,
    example_answer,
    parse_answers,
    unscored,
    verdict_of_entry,
)
from evaluation.models import STATISTIC, Method, is_heuristic
from evaluation.propositions.schema import Proposition, fill
from evaluation.scorers.context import Context

MAX_PER_CALL = 10  # AC-6.0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Propositions that share a context, to be asked in one call.

    Attributes:
        nonce: Marks the fences of the prompt. An evaluation gives all its questions the same one, so that they share the prompt cache.
        double_check: Ask again whether the judge is sure (AC-6.0.11).
        advise: Ask for a recommendation where the proposition has none (AC-6.0.14).
        window_shown_once: No other call shows this window, so writing it into the prompt cache would only cost.
        asked_again: The very same prompt is sent again (repeats, a double check).
        examples: Labelled claims about other messages that the judge is shown as its scale.
        prefix: The same for questions whose prompts begin with the same events: if that is worth it, all but the first wait until the
            prompt cache has them. None waits for no other.
        items: The caller's: what its verdicts are for, one per proposition.

    Raises:
        ValueError: There are none or more than ten propositions, or they do not share their window and persona flag.
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
    examples: tuple[Example, ...] = ()
    window_shown_once: bool = False
    asked_again: bool = False
    prefix: Hashable = None
    items: Sequence[Any] = field(default=(), repr=False, compare=False)
    _keyed: dict[str, Proposition] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse propositions that cannot share a call; give each its key, ``p1``, ``p2`` and so on.

        By TinyTroupe's method none is hard: the judge subtracts penalties itself.
        """
        if not 1 <= len(self.propositions) <= MAX_PER_CALL:
            raise ValueError(f"a call takes 1 to {MAX_PER_CALL} propositions, got {len(self.propositions)}")
        if len({p.context_key for p in self.propositions}) > 1:
            raise ValueError("propositions of one call must share persona flag, target and window")
        keyed: dict[str, Proposition] = {}
        for number, proposition in enumerate(self.propositions, 1):
            if self.method == Method.TINYTROUPE and proposition.hard:
                proposition = replace(proposition, hard=False)
            keyed[f"p{number}"] = proposition
        object.__setattr__(self, "_keyed", keyed)

    def keyed(self) -> dict[str, Proposition]:
        """Return the propositions by the keys of the answer.

        None is hard by TinyTroupe's method: the judge subtracts penalties itself and lists no flaws.
        """
        return self._keyed

    def advised(self) -> tuple[str, ...]:
        """Return the keys of the claims for which the judge is asked what would have been better."""
        if not self.advise:
            return ()
        return tuple(key for key, proposition in self.keyed().items() if not proposition.recommendations)

    def claims(self) -> dict[str, str]:
        """Return the text of each claim by its key, with its variables filled in."""
        variables = self.context.variables()
        return {key: fill(p.claim, variables) for key, p in self.keyed().items()}


def build_request(question: Question) -> LLMRequest:
    """Build the model request for a question: schema with an integer enum 0 to 9, a worked example for the re-ask, cache breakpoints.

    Its `facts` are what an offline judge goes by; a model is not sent them.

    Raises:
        ValueError: A claim uses a variable that has no value here.
    """
    keyed = question.keyed()
    claims = question.claims()
    advised = question.advised()
    facts_of_claims: dict[str, Any] = {}
    for key, proposition in zip(keyed, question.propositions, strict=True):
        facts_of_claims[key] = facts_of_claim(proposition, claims[key])
    turn = user_turn(
        question.context,
        list(claims.items()),
        question.nonce,
        advised=advised,
        window_shown_once=question.window_shown_once,
        asked_again=question.asked_again,
    )
    return judge_request(
        label=question.label,
        model=question.model,
        nonce=question.nonce,
        gate=question.gate,
        task="score",
        system=system_blocks(
            question.context,
            question.propositions,
            question.nonce,
            method=question.method,
            examples=question.examples,
        ),
        turns=(turn,),
        schema=answer_schema(keyed, advised),
        parse=lambda data: parse_answers(data, keyed),
        example=example_answer(keyed),
        max_tokens=(600 + 500 * len(keyed)) * question.max_tokens_factor,
        facts={
            "claims": facts_of_claims,
            "texts": question.context.judged_texts(),
            "measured": question.context.measured,
            "history": question.context.history(),
        },
    )


def judge_request(*, label: Label, model: str, nonce: str, gate: bool, **fields: Any) -> LLMRequest:
    """Build a call of the judge: in the gate it is neither retried nor asked again."""
    return LLMRequest(
        role="judge",
        label=label,
        model=model,
        nonce=nonce,
        gate=gate,
        reask=not gate,
        retries=0 if gate else settings.LLM_EVALUATION_RETRIES,
        **fields,
    )


def facts_of_claim(proposition: Proposition, claim: str) -> dict[str, Any]:
    """Return what the offline judge may go by; a model is not shown it."""
    cues = proposition.cues.model_dump() if proposition.cues else None
    return {"text": claim, "cues": cues, "measure": proposition.measure, "hard": proposition.hard}


def build_recheck(question: Question, reply: Reply) -> LLMRequest:
    """Build the follow-up to an answered question: the same request, the judge's answer, and the question whether it is sure."""
    request = build_request(question)
    # A turn cannot be empty: a reply that has no text is stood in for by the example.
    answered = Turn("assistant", (Block(reply.text or json.dumps(example_answer(question.keyed()))),))
    turn = Turn("user", (Block(render("double_check")),))
    return replace(request, turns=(*request.turns, answered, turn))


def read_reply(question: Question, reply: Reply) -> list[Verdict]:
    """Return one verdict per proposition of the question, in order; all are unscored, with the reason, if the reply has no answer.

    `served_model` is `STATISTIC` where an offline judge computes a statistic instead of reading, also if it abstained.
    """
    judge = question.model or str(settings.JUDGE_MODEL)
    who: dict[str, Any] = {
        "judge": judge,
        "served_model": storable_line(reply.served_model, 200),
        "call": reply.call_id,
    }
    if not reply.ok:
        reason = f"{reply.status}: {reply.error}" if reply.error else str(reply.status)
        return [unscored(reason, cause=reply.status.value, **who) for _ in question.propositions]
    entries: dict[str, Answer | Abstention] = reply.value
    verdicts = []
    for key, proposition in question.keyed().items():
        verdict = replace(verdict_of_entry(entries[key], proposition, question.method), **who)
        if proposition.measure and is_heuristic(judge):
            verdict = replace(verdict, served_model=STATISTIC)
        verdicts.append(verdict)
    return verdicts


CACHED_FROM = 4_096 * 4  # characters: the shortest prompt that every model's cache takes, in tokens of four characters


def cached_characters(request: LLMRequest) -> int:
    """Return how long the part of a request is that the prompt cache may hold: everything up to its last block marked for it."""
    blocks = list(request.system)
    for turn in request.turns:
        blocks += turn.blocks
    cached = total = 0
    for block in blocks:
        total += len(block.text)
        if block.cache:
            cached = total
    return cached
