"""Ask the judge whether one claim is true. An intervention's precondition is such a check, and a turn waits for it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from django.conf import settings

from agents.kit.llm import Block, Label, LLMRequest, Reply, complete, complete_guarded
from agents.kit.text.fences import new_nonce
from evaluation.judge.prompts import render, system_blocks, user_turn
from evaluation.judge.questions import Question, build_request, facts_of_claim, judge_request, read_reply
from evaluation.judge.verdicts import EXAMPLE_ENTRY, Truth, Verdict, entry_schema
from evaluation.propositions.schema import Proposition, fill
from evaluation.scorers.context import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The answer to a check; a claim without evidence does not hold. `holds` is None when it could not be judged, and `reason` says why."""

    holds: bool | None
    reasoning: str = ""
    justification: str = ""
    confidence: float | None = None
    reason: str = ""
    judge: str = ""
    call: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One claim to be judged true or false; the fields as of `Question`. An inverted proposition is asked as written, and not flipped."""

    proposition: Proposition
    context: Context
    label: Label
    model: str = ""
    gate: bool = False
    nonce: str = field(default_factory=new_nonce)


def build_check(check: Check) -> LLMRequest:
    """Build the model request of a check.

    Raises:
        ValueError: The claim uses a variable that has no value here.
    """
    proposition, context = check.proposition, check.context
    claim = fill(proposition.claim, context.variables())
    rubric_of_checks = Block(render("check", environment=context.environment), cache=True)
    # Without the rubric for scores, which is the first block; empty where the persona is withheld.
    persona = system_blocks(context, (proposition,), check.nonce)[1:]
    facts = {**facts_of_claim(proposition, claim), "measure": None, "hard": False}
    return judge_request(
        label=check.label,
        model=check.model,
        nonce=check.nonce,
        gate=check.gate,
        task="check",
        system=(rubric_of_checks, *persona),
        turns=(user_turn(context, [("p1", claim)], check.nonce),),
        schema=entry_schema(value={"type": "boolean"}),
        parse=Truth.model_validate,
        example={**EXAMPLE_ENTRY, "value": True},
        max_tokens=1000,
        facts={"claims": {"p1": facts}, "texts": context.judged_texts()},
    )


def read_check(check: Check, reply: Reply) -> CheckResult:
    """Return what a reply says of the check; `holds` is None where it says nothing, False where the judge saw no evidence."""
    judge = check.model or str(settings.JUDGE_MODEL)
    if not reply.ok:
        return CheckResult(holds=None, reason=f"{reply.status}: {reply.error}", judge=judge, call=reply.call_id)
    answer: Truth = reply.value
    return CheckResult(
        holds=answer.value and answer.evidence != "absent",
        reasoning=answer.reasoning,
        justification=answer.justification,
        confidence=answer.confidence,
        judge=judge,
        call=reply.call_id,
    )


def check_proposition(
    *, proposition: Proposition, context: Context, label: Label, model: str = "", gate: bool = False
) -> CheckResult:
    """Ask whether one claim is true (see `Check`), within `LLM_EVALUATION_DEADLINE`."""
    check = Check(proposition=proposition, context=context, label=label, model=model, gate=gate)
    return read_check(check, complete(build_check(check), deadline=settings.LLM_EVALUATION_DEADLINE))


def ask_together(
    questions: Sequence[Check | Question], *, deadline: float, about: Hashable | None = None
) -> list[CheckResult | list[Verdict]]:
    """Ask several checks, and questions that are scored, at the same time, while a turn waits.

    There is no second try or double check as in `ask_all`. An endpoint that hangs is not asked.

    Args:
        deadline: Seconds for all of it.
        about: The draft, so that one draft repeated does not count as several time-outs; see `complete_guarded`.

    Returns:
        In their order, a result for each check, and for each question one verdict per proposition. Without an answer `holds` is None, or
        the verdict unscored.

    Raises:
        ValueError: A claim uses a variable that has no value here.
    """
    requests: list[LLMRequest] = []
    for item in questions:
        requests.append(build_check(item) if isinstance(item, Check) else build_request(item))
    replies = complete_guarded(requests, deadline=deadline, about=about)
    results: list[CheckResult | list[Verdict]] = []
    for item, reply in zip(questions, replies, strict=True):
        results.append(read_check(item, reply) if isinstance(item, Check) else read_reply(item, reply))
    return results
