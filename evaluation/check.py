"""Boolean mode of the engine: is this claim true? (AC-6.0.4; preconditions of interventions.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from django.conf import settings
from pydantic import BaseModel, BeforeValidator, ConfigDict

from agents.llm import Block, Label, LLMRequest, complete
from agents.text.fences import new_nonce
from evaluation.answer_schema import CONFIDENCES
from evaluation.prompts import Context, render, system_blocks, user_turn
from evaluation.propositions import Proposition, fill
from evaluation.verdicts import usable_confidence


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    evidence: Literal["present", "absent"]
    reasoning: str
    justification: str
    value: bool
    confidence: Annotated[float | None, BeforeValidator(usable_confidence)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Whether a claim holds; without evidence it does not. `holds` is None when it could not be judged, and `reason` says why."""

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


def check_proposition(
    *,
    proposition: Proposition,
    context: Context,
    label: Label,
    model: str = "",
    gate: bool = False,
    deadline: float | None = None,
) -> CheckResult:
    """Ask whether a claim is true. An inverted proposition is asked as written; its answer is not flipped.

    Args:
        proposition: The claim.
        context: What the judge is shown.
        label: Columns for the ledger.
        model: Overrides the configured judge.
        gate: Whether the call may use the gate's slots; such a call is never asked again.
        deadline: Seconds in total; default `LLM_EVALUATION_DEADLINE`.
    """
    nonce = new_nonce()
    claim = fill(proposition.claim, context.variables())
    rubric = Block(render("check", environment=context.environment), cache=True)
    request = LLMRequest(
        role="judge",
        task="check",
        system=(rubric, *system_blocks(context, (proposition,), nonce)[1:]),
        turns=(user_turn(context, [("p1", claim)], nonce),),
        label=label,
        schema=_SCHEMA,
        parse=_Answer.model_validate,
        example=_EXAMPLE,
        reask=not gate,
        max_tokens=1000,
        retries=0 if gate else settings.LLM_EVALUATION_RETRIES,
        gate=gate,
        model=model,
        nonce=nonce,
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
    reply = complete(request, deadline=deadline or settings.LLM_EVALUATION_DEADLINE)
    judge = model or str(settings.JUDGE_MODEL)
    if not reply.ok:
        return CheckResult(holds=None, reason=f"{reply.status}: {reply.error}", judge=judge, call=reply.call_id)
    answer: _Answer = reply.value
    return CheckResult(
        holds=answer.value and answer.evidence == "present",
        reasoning=answer.reasoning,
        justification=answer.justification,
        confidence=answer.confidence,
        judge=judge,
        call=reply.call_id,
    )
