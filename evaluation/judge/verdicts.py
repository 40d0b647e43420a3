"""TODO: what this module is for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agents.llm.requests import InvalidAnswer
from agents.text.patterns import Undecided, one_message
from evaluation.models import Method
from evaluation.propositions.rules import Rule, check_rule
from evaluation.propositions.schema import Proposition

CONFIDENCES = [round(i / 10, 1) for i in range(11)]


def entry_schema(hard: bool, advised: bool) -> dict[str, Any]:
    """The fields of one claim's answer."""
    properties: dict[str, Any] = {
        "evidence": {"type": "string", "enum": ["present", "absent"]},
        "reasoning": {"type": "string"},
        "justification": {"type": "string"},
    }
    if hard:
        properties["flaws"] = {"type": "array", "items": {"type": "string"}}
    properties["value"] = {"type": "integer", "enum": list(range(10))}
    properties["confidence"] = {"type": "number", "enum": CONFIDENCES}
    if advised:
        properties["recommendations"] = {"type": "string"}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def answer_schema(keyed: Mapping[str, Proposition], advised: Sequence[str]) -> dict[str, Any]:
    """The schema of a whole answer: the fields themselves for one claim, an entry per key for several."""
    hard = any(p.hard for p in keyed.values())
    if len(keyed) == 1:
        return entry_schema(hard, bool(advised))
    properties = {key: entry_schema(hard, key in advised) for key in keyed}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def example_answer(keyed: Mapping[str, Proposition]) -> dict[str, Any]:
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


MIN_SCORE, MAX_SCORE = 0, 9
HARD_PENALTY = 0.2  # share taken off per flaw (AC-6.0.16)
RULE_JUDGE = "rule"
MALFORMED, OUT_OF_REACH = "malformed", "out_of_reach"

VerdictStatus = Literal["scored", "trivial", "unscored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of judging one proposition.

    Attributes:
        status: ``scored``; ``trivial`` (could not be false here: stored as 9, in no mean); ``unscored`` (could not be judged).
        value: 0 to 9, higher is better: inverted claims flipped, penalties applied. None exactly when unscored.
        raw_value: 0 to 9 as the judge gave it.
        flaws: Flaws listed by the judge (hard mode).
        evidence: ``present`` or ``absent``; empty when unscored, or when the judge did not say.
        confidence: 0 to 1, the judge's own; None when it gave no usable one.
        recommendations: Advice for a low score: the proposition's, else the judge's (AC-6.0.14).
        first_value: The value before the judge was asked whether it is sure (AC-6.0.11); None when it was asked once.
        reason: Why it is trivial or unscored.
        cause: Why it is unscored, for programs: the status of a call that failed, ``malformed`` for an invalid entry, `OUT_OF_REACH`
            where this judge cannot score the proposition whatever the text; empty for other reasons.
        judge: ``rule``, or the model asked. `served_model`: the one that answered.
        call: Ledger row of the call; None for rules.
    """

    status: VerdictStatus
    value: int | None = None
    raw_value: int | None = None
    flaws: tuple[str, ...] = ()
    evidence: str = ""
    reasoning: str = ""
    justification: str = ""
    confidence: float | None = None
    recommendations: str = ""
    first_value: int | None = None
    reason: str = ""
    cause: str = ""
    judge: str = ""
    served_model: str = ""
    call: int | None = None


def unscored(reason: str, **fields: Any) -> Verdict:
    """A judgement that could not be made. It has no number and enters no mean."""
    return Verdict(status="unscored", reason=reason[:300], **fields)


def trivial(reason: str, **fields: Any) -> Verdict:
    """A proposition that could not be false here (AC-6.0.15): stored as 9, not inverted, in no mean."""
    return Verdict(status="trivial", value=MAX_SCORE, reason=reason[:300], **fields)


def rule_verdict(problems: Sequence[str], *, inverted: bool) -> Verdict:
    """The exact result of a rule: 9 when nothing is broken, 0 otherwise."""
    raw = MIN_SCORE if problems else MAX_SCORE
    return Verdict(
        status="scored",
        value=MAX_SCORE - raw if inverted else raw,
        raw_value=raw,
        evidence="present",
        reasoning="; ".join(problems) or "the rule holds",
        confidence=1.0,
        judge=RULE_JUDGE,
        served_model=RULE_JUDGE,
    )


def verdict_by_rule(rule: Rule, text: str, *, inverted: bool) -> Verdict:
    """What a rule says of a text: scored, or unscored with the pattern that cannot say."""
    try:
        with one_message():
            return rule_verdict(check_rule(rule, text), inverted=inverted)
    except Undecided as problem:
        return unscored(str(problem), judge=RULE_JUDGE, served_model=RULE_JUDGE)


def usable_confidence(value: Any) -> Any:
    """A confidence outside 0 to 1 says nothing; it must not cost the score it stands beside."""
    ok = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return float(value) if ok else None


def usable_advice(value: Any) -> str:
    """Advice that is no text is none; like a confidence it must not cost the score."""
    return value.strip()[:2000] if isinstance(value, str) else ""


class Answer(BaseModel):
    """One claim's entry in a judge's reply. Strict: ``"7"``, 7.5, true, null and 97 are no values.

    `evidence` and `confidence` may be missing (AC-6.0.6): they are then unknown, and the score counts.
    """

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    evidence: Literal["present", "absent"] | None = None
    reasoning: str
    justification: str
    value: Annotated[int, Field(ge=MIN_SCORE, le=MAX_SCORE)]
    confidence: Annotated[float | None, BeforeValidator(usable_confidence)] = None
    flaws: list[str] | None = None
    recommendations: Annotated[str, BeforeValidator(usable_advice)] = ""


@dataclass(frozen=True, slots=True)
class Abstention:
    """An entry without a value: the offline judge's honest answer, or an entry that was not valid."""

    reason: str
    invalid: bool = False
    out_of_reach: bool = False


def parse_answers(data: Any, propositions: Mapping[str, Proposition]) -> dict[str, Answer | Abstention]:
    """The entries of a reply by claim key.

    Args:
        data: The decoded JSON object.
        propositions: What was asked, by key. A single claim is answered at the top level, several under their keys.

    Returns:
        An entry for every key; an invalid one is an `Abstention`, so that its neighbours are kept.

    Raises:
        InvalidAnswer: Nothing in the reply is valid.
    """
    if not isinstance(data, dict):
        raise InvalidAnswer(f"expected a JSON object, got {type(data).__name__}")
    single = len(propositions) == 1
    entries = {key: _entry(data if single else data.get(key), proposition) for key, proposition in propositions.items()}
    bad = [
        f"{key}: {entry.reason}" for key, entry in entries.items() if isinstance(entry, Abstention) and entry.invalid
    ]
    if len(bad) == len(entries):
        raise InvalidAnswer("; ".join(bad)[:300])
    return entries


def _entry(data: Any, proposition: Proposition) -> Answer | Abstention:
    if data is None:
        return Abstention("no entry for this claim", invalid=True)
    if isinstance(data, dict) and isinstance(data.get("unscored"), str) and set(data) <= {"unscored", OUT_OF_REACH}:
        return Abstention(data["unscored"], out_of_reach=OUT_OF_REACH in data)
    try:
        answer = Answer.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "entry"
        shown = "" if first["type"] == "missing" else f", got {str(first.get('input'))[:40]!r}"
        return Abstention(f"{place}: {first['msg']}{shown}", invalid=True)
    if proposition.hard and answer.flaws is None:
        return Abstention("flaws: required in hard mode", invalid=True)
    return answer


def judged(entry: Answer | Abstention, proposition: Proposition, method: str = Method.PLUMBLINE) -> Verdict:
    """The verdict for one entry: absent evidence is trivial, penalties and inversion are applied here.

    By TinyTroupe's method absent evidence counts as the 9 the judge was told to give, and penalties are the judge's own.
    """
    if isinstance(entry, Abstention):
        if entry.invalid:
            return unscored(f"malformed: {entry.reason}", cause=MALFORMED)
        return unscored(entry.reason, cause=OUT_OF_REACH if entry.out_of_reach else "")
    fields: dict[str, Any] = {
        "reasoning": entry.reasoning,
        "justification": entry.justification,
        "confidence": entry.confidence,
        "evidence": entry.evidence or "",
    }
    if entry.evidence == "absent" and method != Method.TINYTROUPE:
        return trivial("the judge found nothing to judge the claim by", raw_value=entry.value, **fields)
    flaws = tuple(entry.flaws or ()) if proposition.hard else ()
    value = hard_score(entry.value, len(flaws)) if proposition.hard else entry.value
    return Verdict(
        status="scored",
        value=MAX_SCORE - value if proposition.inverted and entry.evidence != "absent" else value,
        raw_value=entry.value,
        flaws=flaws,
        recommendations=proposition.recommendations or entry.recommendations,
        **fields,
    )


def by_method(verdict: Verdict, method: str) -> Verdict:
    """A trivial 9 as the method takes it: TinyTroupe's averages it like any other score."""
    if verdict.status != "trivial" or method != Method.TINYTROUPE:
        return verdict
    return replace(verdict, status="scored", reason=f"counted as 9: {verdict.reason}"[:300])


def reconsidered(first: Verdict, second: Verdict) -> Verdict:
    """The verdict after the judge was asked whether it is sure: the second one, with the first one's value beside it (AC-6.0.11)."""
    if second.status == "unscored":
        if first.status == "unscored":
            return second
        return replace(first, first_value=first.value, reason=f"the double check failed: {second.reason}"[:300])
    return replace(second, first_value=first.value)


def hard_score(raw: int, flaws: int) -> int:
    """``floor(raw * max(0, 1 - 0.2 * flaws))`` in exact arithmetic: 20 % off per flaw, nothing left from five on (AC-6.0.16)."""
    return max(MIN_SCORE, math.floor(raw * max(0, 5 - flaws) / 5))


def with_call(verdict: Verdict, *, judge: str, served_model: str, call: int | None) -> Verdict:
    """The verdict with who gave it."""
    return replace(verdict, judge=judge, served_model=served_model, call=call)
