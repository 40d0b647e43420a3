"""Boolean mode of the engine: is this claim true? (AC-6.0.4; preconditions of interventions.)"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from django.conf import settings
from pydantic import BaseModel, BeforeValidator, ConfigDict

from agents.llm import Block, Label, LLMRequest, Reply, complete, complete_guarded
from agents.text.fences import new_nonce
from evaluation.judge.prompts import Context, render, system_blocks, user_turn
from evaluation.judge.questions import CONFIDENCES, Question, Verdict, build_request, read_reply, usable_confidence
from evaluation.propositions.schema import Proposition, fill


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    evidence: Literal["present", "absent"] | None = None
    reasoning: str
    justification: str
    value: bool
    confidence: Annotated[float | None, BeforeValidator(usable_confidence)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Whether a claim holds; where evidence is absent it does not. `holds` is None when it could not be judged, and `reason` says why."""

    holds: bool | None
    reasoning: str = ""
    justification: str = ""
    confidence: float | None = None
    reason: str = ""
    judge: str = ""
    call: int | None = None


_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "evidence": {"type": "string", "enum": ["present", "absent"]},
        "reasoning": {"type": "string"},
        "justification": {"type": "string"},
        "value": {"type": "boolean"},
        "confidence": {"type": "number", "enum": CONFIDENCES},
    },
    "required": ["evidence", "reasoning", "justification", "value", "confidence"],
    "additionalProperties": False,
}
_EXAMPLE = {
    "evidence": "present",
    "reasoning": "All three messages show what the claim says.",
    "justification": "The first message says it outright.",
    "value": True,
    "confidence": 0.8,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One claim to be judged true or false. An inverted proposition is asked as written; its answer is not flipped.

    Attributes:
        model: Overrides the configured judge.
        gate: Whether the call may use the gate's slots; such a call is never asked again.
        nonce: Marks the fences of the prompt; checks that share a window may share it, so that a prompt cache can hold the window.
    """

    proposition: Proposition
    context: Context
    label: Label
    model: str = ""
    gate: bool = False
    nonce: str = field(default_factory=new_nonce)


def build_check(check: Check) -> LLMRequest:
    """The model request of a check.

    Raises:
        ValueError: The claim uses a variable that has no value here.
    """
    proposition, context = check.proposition, check.context
    claim = fill(proposition.claim, context.variables())
    rubric = Block(render("check", environment=context.environment), cache=True)
    return LLMRequest(
        role="judge",
        task="check",
        system=(rubric, *system_blocks(context, (proposition,), check.nonce)[1:]),
        turns=(user_turn(context, [("p1", claim)], check.nonce),),
        label=check.label,
        schema=_SCHEMA,
        parse=_Answer.model_validate,
        example=_EXAMPLE,
        reask=not check.gate,
        max_tokens=1000,
        retries=0 if check.gate else settings.LLM_EVALUATION_RETRIES,
        gate=check.gate,
        model=check.model,
        nonce=check.nonce,
        facts={
            "claims": {
                "p1": {
                    "text": claim,
                    "cues": proposition.cues.model_dump() if proposition.cues else None,
                    "measure": None,
                    "hard": False,
                }
            },
            "texts": context.judged_texts(),
        },
    )


def read_check(check: Check, reply: Reply) -> CheckResult:
    """What a reply says of the check; `holds` is None where it says nothing."""
    judge = check.model or str(settings.JUDGE_MODEL)
    if not reply.ok:
        return CheckResult(holds=None, reason=f"{reply.status}: {reply.error}", judge=judge, call=reply.call_id)
    answer: _Answer = reply.value
    return CheckResult(
        holds=answer.value and answer.evidence != "absent",
        reasoning=answer.reasoning,
        justification=answer.justification,
        confidence=answer.confidence,
        judge=judge,
        call=reply.call_id,
    )


def check_proposition(
    *,
    proposition: Proposition,
    context: Context,
    label: Label,
    model: str = "",
    gate: bool = False,
    deadline: float | None = None,
) -> CheckResult:
    """Ask whether one claim is true; see `Check`. `deadline` in seconds in total, default `LLM_EVALUATION_DEADLINE`."""
    check = Check(proposition=proposition, context=context, label=label, model=model, gate=gate)
    return read_check(check, complete(build_check(check), deadline=deadline or settings.LLM_EVALUATION_DEADLINE))


def ask_together(
    asked: Sequence[Check | Question], *, deadline: float, about: Hashable | None = None
) -> list[CheckResult | list[Verdict]]:
    """Ask several checks, and questions that are scored, at the same time: while a turn waits, so not where the judge hangs.

    Args:
        deadline: Seconds for all of it.
        about: What tells this turn from others, see `complete_guarded`.

    Returns:
        In their order, a result for each check, and for each question one verdict per proposition.
    """
    requests = [build_check(one) if isinstance(one, Check) else build_request(one) for one in asked]
    replies = complete_guarded(requests, deadline=deadline, about=about)
    return [
        read_check(one, reply) if isinstance(one, Check) else read_reply(one, reply)
        for one, reply in zip(asked, replies, strict=True)
    ]
