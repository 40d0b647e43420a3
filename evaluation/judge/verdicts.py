"""Say what a judge may answer (a JSON schema), read its answer, and turn answers and rules into verdicts (AC-6.0.6)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agents.kit.llm import InvalidAnswer
from agents.kit.llm.requests import short_line as storable_line
from agents.kit.text.patterns import Undecided, one_message
from evaluation.models import OUT_OF_REACH, RULE_JUDGE, Method
from evaluation.propositions.preconditions import Target, known_preconditions
from evaluation.propositions.rules import CHECKS, Rule, check_rule
from evaluation.propositions.schema import Proposition

MIN_SCORE = 0
MAX_SCORE = 9
MALFORMED = "malformed"
PRECONDITION_FAILED = "precondition"  # a team's function raised
CONFIDENCES = [round(tenths / 10, 1) for tenths in range(11)]
_SCORE_SCHEMA: dict[str, Any] = {"type": "integer", "enum": list(range(MIN_SCORE, MAX_SCORE + 1))}


def object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an object with these properties, all of them required."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def entry_schema(
    *, hard: bool = False, advised: bool = False, value: Mapping[str, Any] = _SCORE_SCHEMA
) -> dict[str, Any]:
    """Return the JSON schema of one claim's answer.

    Args:
        hard: The judge lists flaws.
        advised: The judge recommends what would have been better.
        value: The schema of the value.
    """
    # Judges answer in this order: reasoning comes before the value.
    fields: dict[str, Any] = {
        "evidence": {"type": "string", "enum": ["present", "absent"]},
        "reasoning": {"type": "string"},
        "justification": {"type": "string"},
    }
    if hard:
        fields["flaws"] = {"type": "array", "items": {"type": "string"}}
    fields["value"] = value
    fields["confidence"] = {"type": "number", "enum": CONFIDENCES}
    if advised:
        fields["recommendations"] = {"type": "string"}
    return object_schema(fields)


def answer_schema(keyed: Mapping[str, Proposition], advised: Sequence[str]) -> dict[str, Any]:
    """Return the schema of an answer: the fields themselves for one claim, an entry per key for several.

    The entries refer to one definition: written out, those of four claims are longer than the rest of the prompt.
    """
    hard = any(p.hard for p in keyed.values())
    if len(keyed) == 1:
        return entry_schema(hard=hard, advised=bool(advised))
    references: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for key in keyed:
        kind = "advised" if key in advised else "entry"
        references[key] = {"$ref": f"#/$defs/{kind}"}
        definitions[kind] = entry_schema(hard=hard, advised=kind == "advised")
    schema = object_schema(references)
    schema["$defs"] = dict(sorted(definitions.items()))
    return schema


EXAMPLE_ENTRY: dict[str, Any] = {
    "evidence": "present",
    "reasoning": "Two of the three sentences show what the claim says, the last one works against it.",
    "justification": "The second sentence says it outright.",
    "value": 6,
    "confidence": 0.7,
}


def example_answer(keyed: Mapping[str, Proposition]) -> dict[str, Any]:
    """Return a valid answer to another question; only its shape is to be followed."""
    entry = dict(EXAMPLE_ENTRY)
    if any(p.hard for p in keyed.values()):
        entry["flaws"] = ["the last sentence contradicts the persona"]
    if len(keyed) == 1:
        return entry
    return dict.fromkeys(keyed, entry)


VerdictStatus = Literal["scored", "trivial", "unscored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of judging one proposition.

    Attributes:
        status: ``scored``; ``trivial`` (could not be false here: stored as 9, in no mean); ``unscored`` (could not be judged).
        value: 0 to 9, higher is better: inverted claims flipped, penalties applied. None exactly when unscored.
        raw_value: 0 to 9 as the judge gave it.
        evidence: ``present`` or ``absent``; empty when unscored, or when the judge did not say.
        confidence: 0 to 1, the judge's own; None when it gave no usable one.
        recommendations: Advice for a low score: the proposition's, else the judge's (AC-6.0.14).
        first_value: The value before the judge was asked whether it is sure (AC-6.0.11); None when it was asked once.
        cause: Why it is unscored: the status of a call that failed, ``malformed``, `PRECONDITION_FAILED`, `OUT_OF_REACH` (of this
            judge), or empty.
        judge: ``rule``, or the model asked. `served_model`: the one that answered; `STATISTIC` where an offline judge computed
            it. `call`: its ledger row.
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
    """Return the verdict of a judgement that could not be made. It has no number and enters no mean."""
    return Verdict(status="unscored", reason=reason[:300], **fields)


def trivial(reason: str, **fields: Any) -> Verdict:
    """Return the verdict of a proposition that could not be false here (AC-6.0.15): stored as 9, not inverted, in no mean."""
    return Verdict(status="trivial", value=MAX_SCORE, reason=reason[:300], **fields)


def verdict_by_precondition(
    proposition: Proposition,
    target: Target,
    *,
    additional: Mapping[str, Any] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Verdict | None:
    """Return the verdict of a proposition that is not to be judged: trivial where its precondition is false, unscored where that failed.

    None where it is to be judged.

    Args:
        additional: The run's additional context. `variables`: the values of the claim's variables.
    """
    name = proposition.precondition
    if name is None:
        return None
    try:
        holds = known_preconditions()[name](target, additional or {}, variables or {})
    except Exception as error:  # noqa: BLE001 (whatever a team's function raises)
        reason = storable_line(f"precondition {name} failed: {type(error).__name__}: {error}")
        # It could have been scored, so it counts as asked.
        return unscored(reason, cause=PRECONDITION_FAILED, judge=RULE_JUDGE, served_model=RULE_JUDGE)
    return None if holds else trivial(f"precondition {name} does not hold")


def verdict_by_rule(rule: Rule, text: str, *, inverted: bool) -> Verdict:
    """Check a rule, which is exact: raw 9 when nothing is broken, else 0; an inverted one is flipped.

    Unscored, with the pattern that takes too long, if it cannot tell. The reasoning says what is broken; when the rule holds, which of
    the phrases it looks for were found.
    """
    judge: dict[str, Any] = {"judge": RULE_JUDGE, "served_model": RULE_JUDGE}
    try:
        with one_message():  # its patterns share one limit of time
            problems = check_rule(rule, text)
    except Undecided as problem:
        return unscored(str(problem), **judge)
    raw = MAX_SCORE
    reasoning = "the rule holds"
    if problems:
        raw = MIN_SCORE
        reasoning = "; ".join(problems)
    elif phrases := _phrases_in(rule, text):
        reasoning = f"found: {', '.join(phrases)}"
    return Verdict(
        status="scored",
        value=MAX_SCORE - raw if inverted else raw,
        raw_value=raw,
        evidence="present",
        reasoning=reasoning,
        confidence=1.0,
        **judge,
    )


def _phrases_in(rule: Rule, text: str) -> list[str]:
    """Return the phrases of `contains_any` that occur, quoted, for the reader of an inverted rule; not those that cannot be decided."""
    phrases: list[str] = []
    for phrase in rule.contains_any or ():
        with suppress(Undecided):
            is_missing = CHECKS["contains_any"](text, [phrase])  # a sentence that says so; empty where it occurs
            if not is_missing:
                phrases.append(f"“{phrase}”")
    return phrases


# An unusable confidence or advice must not cost the score beside it.
def _usable_confidence(value: Any) -> float | None:
    """Return a confidence of 0 to 1; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 <= value <= 1:
        return float(value)
    return None


def _usable_advice(value: Any) -> str:
    return value.strip()[:2000] if isinstance(value, str) else ""


class _Entry(BaseModel):
    """The judge's answer to one claim. Strict: ``"7"``, 7.5, true, null and 97 are no scores, and 1 is not true.

    `evidence` and `confidence` may be missing (AC-6.0.6): they are then unknown, and the value counts.
    """

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    evidence: Literal["present", "absent"] | None = None
    reasoning: str
    justification: str
    confidence: Annotated[float | None, BeforeValidator(_usable_confidence)] = None


class Answer(_Entry):
    """One claim's entry in a judge's reply."""

    value: Annotated[int, Field(ge=MIN_SCORE, le=MAX_SCORE)]
    flaws: list[str] | None = None
    recommendations: Annotated[str, BeforeValidator(_usable_advice)] = ""


class Truth(_Entry):
    value: bool


@dataclass(frozen=True, slots=True)
class Abstention:
    """An entry without a value: the offline judge's honest answer, or an entry that was not valid."""

    reason: str
    invalid: bool = False
    out_of_reach: bool = False


def parse_answers(data: Any, propositions: Mapping[str, Proposition]) -> dict[str, Answer | Abstention]:
    """Parse a reply by claim key: a single claim is answered at the top level, several under their keys.

    Returns:
        An entry for every key; an invalid one is an `Abstention`, so that its neighbours stay.

    Raises:
        InvalidAnswer: The reply is no JSON object, or none of its entries is valid.
    """
    if not isinstance(data, dict):
        raise InvalidAnswer(f"expected a JSON object, got {type(data).__name__}")
    is_single = len(propositions) == 1
    entries: dict[str, Answer | Abstention] = {}
    invalid: list[str] = []
    for key, proposition in propositions.items():
        entry = _parse_entry(data if is_single else data.get(key), proposition)
        entries[key] = entry
        if isinstance(entry, Abstention) and entry.invalid:
            invalid.append(f"{key}: {entry.reason}")
    if len(invalid) == len(entries):
        raise InvalidAnswer("; ".join(invalid)[:300])
    return entries


def _parse_entry(data: Any, proposition: Proposition) -> Answer | Abstention:
    """Parse one claim's entry of a reply; one that is not valid becomes an `Abstention` with `invalid`.

    So does one without flaws (not even an empty list) for a hard claim. None: the reply has no entry for it. An offline judge may abstain
    (``{"unscored": why}``), which is valid.
    """
    if data is None:
        return Abstention("no entry for this claim", invalid=True)
    if _is_abstention(data):
        return Abstention(data["unscored"], out_of_reach=OUT_OF_REACH in data)
    try:
        answer = Answer.model_validate(data)
    except ValidationError as error:
        return Abstention(_first_problem(error), invalid=True)
    if proposition.hard and answer.flaws is None:
        return Abstention("flaws: required in hard mode", invalid=True)
    return answer


def _is_abstention(data: Any) -> bool:
    """Return whether an entry says why there is no score, and nothing else: what the offline judge answers."""
    return isinstance(data, dict) and isinstance(data.get("unscored"), str) and set(data) <= {"unscored", OUT_OF_REACH}


def _first_problem(error: ValidationError) -> str:
    """Return field, problem and value of the first thing that is wrong with an entry."""
    first = error.errors()[0]
    field_name = ".".join(map(str, first["loc"])) or "entry"
    if first["type"] == "missing":
        return f"{field_name}: {first['msg']}"
    value = str(first.get("input"))[:40]
    return f"{field_name}: {first['msg']}, got {value!r}"


def verdict_of_entry(entry: Answer | Abstention, proposition: Proposition, method: str = Method.PLUMBLINE) -> Verdict:
    """Return the verdict for one entry: absent evidence is trivial, penalties and inversion are applied here.

    By TinyTroupe's method absent evidence counts as the 9 the judge was instructed to give, which is not inverted, and penalties are the
    judge's own. An abstention is unscored.
    """
    if isinstance(entry, Abstention):
        return _verdict_of_abstention(entry)
    fields = entry.model_dump(include={"reasoning", "justification", "confidence"})
    fields["evidence"] = entry.evidence or ""
    is_absent = entry.evidence == "absent"
    if is_absent and method != Method.TINYTROUPE:
        return trivial("the judge saw nothing to judge the claim by", raw_value=entry.value, **fields)
    value = entry.value
    flaws: tuple[str, ...] = ()
    if proposition.hard:
        flaws = tuple(entry.flaws or ())
        value = hard_score(value, len(flaws))
    if proposition.inverted and not is_absent:
        value = MAX_SCORE - value
    return Verdict(
        status="scored",
        value=value,
        raw_value=entry.value,
        flaws=flaws,
        recommendations=proposition.recommendations or entry.recommendations,
        **fields,
    )


def _verdict_of_abstention(entry: Abstention) -> Verdict:
    """Return the unscored verdict of an entry without a value."""
    if entry.invalid:
        return unscored(f"malformed: {entry.reason}", cause=MALFORMED)
    if entry.out_of_reach:
        return unscored(entry.reason, cause=OUT_OF_REACH)
    return unscored(entry.reason)


def by_method(verdict: Verdict, method: str) -> Verdict:
    """Return a verdict as its method takes it: TinyTroupe's averages a trivial 9 like any other score."""
    if verdict.status != "trivial" or method != Method.TINYTROUPE:
        return verdict
    return replace(verdict, status="scored", reason=f"counted as 9: {verdict.reason}"[:300])


def reconsidered(first: Verdict, second: Verdict) -> Verdict:
    """Return the verdict after the judge was asked whether it is sure: the second one, with the first one's value as `first_value`.

    Where the second is unscored the first counts, with the reason why the double check failed (AC-6.0.11).
    """
    if second.status == "unscored":
        if first.status == "unscored":
            return second
        return replace(first, first_value=first.value, reason=f"the double check failed: {second.reason}"[:300])
    return replace(second, first_value=first.value)


def hard_score(raw: int, flaws: int) -> int:
    """Return ``floor(raw * max(0, 1 - 0.2 * flaws))`` in exact arithmetic: 20 % off per flaw, 0 from five on (AC-6.0.16)."""
    return max(MIN_SCORE, math.floor(raw * max(0, 5 - flaws) / 5))
