"""Write the prompts of the judge, ask it about propositions (up to ten in a call) or whether one claim is true, and read its replies.

AC-6.0.4 to AC-6.0.6. The parts of a prompt (rubric, persona, trajectory, claims) are blocks that the prompt cache can hold.
"""

from __future__ import annotations

import json
import math
import threading
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Annotated, Any, Literal

from django.conf import settings
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agents.kit.llm import (
    Block,
    InvalidAnswer,
    Label,
    LLMRequest,
    Reply,
    Status,
    Turn,
    complete,
    complete_guarded,
    complete_many,
)
from agents.kit.llm.requests import short_line as storable_line
from agents.kit.text.fences import (
    MAX_EVENT_CHARACTERS,
    fence,
    indented,
    new_nonce,
    one_line,
    render_prompt,
    safe_and_cut,
)
from agents.kit.text.patterns import Undecided, one_message
from agents.personas.persona import cut_persona
from evaluation.models import OUT_OF_REACH, RULE_JUDGE, STATISTIC, Method, is_heuristic
from evaluation.propositions.preconditions import Target, known_preconditions
from evaluation.propositions.schema import CHECKS, Proposition, Rule, check_rule, fill
from evaluation.scorers.subjects import Context, Event, Window

LONGEST_NAME = 200  # characters
LONGEST_JUDGED = 20_000  # characters of a message that is judged; one shown as context is cut sooner


@lru_cache(maxsize=2048)  # shown in the prompts of a whole channel, and of the estimate before
def one_event(event: Event, number: int, longest: int = MAX_EVENT_CHARACTERS) -> str:
    """Return one numbered entry, e.g. ``3. Ann acts: Hello.`` or, of what reached her, ``4. --> Ann: Bob says: Hello.``

    Further lines of a text are indented behind a bar, so that none can pass for an entry. What looks like a fence is made harmless, and
    a text of more than `longest` characters is cut with a mark.
    """
    name = _shown_name(event.name)
    speaker = _shown_name(event.speaker)
    if event.kind == "action":
        head = f"{name} acts: "
    elif speaker:
        head = f"--> {name}: {speaker} says: "
    else:
        head = f"--> {name}: "
    body = safe_and_cut(event.text, longest).replace("\n", "\n    | ")
    return f"{number}. {head}{body}"


def _shown_name(name: str) -> str:
    """Return a name in one line, with fence-like text neutralised."""
    return safe_and_cut(" ".join(name.split()), LONGEST_NAME)


def render_trajectory(
    window: Window, *, nonce: str, marker: str = "TRAJECTORY", longest: int = MAX_EVENT_CHARACTERS
) -> str:
    """Return the window inside its fence: numbered entries, and a line that says how many events were left out between them.

    Args:
        longest: Characters of a text; more are cut with a mark.
    """
    return fence(marker, "\n".join(_numbered_entries(window, longest)) or "(nothing happened yet)", nonce)


def _numbered_entries(window: Window, longest: int = MAX_EVENT_CHARACTERS) -> list[str]:
    """Return the numbered entries; numbers count what was left out, and the line about that belongs to the entry that follows it."""
    first = [one_event(event, number, longest) for number, event in enumerate(window.first, 1)]
    number_after = 1 + len(window.first) + window.omitted
    last = [one_event(event, number, longest) for number, event in enumerate(window.last, number_after)]
    if window.omitted:
        left_out = f"[… {window.omitted} events left out here …]"
        if last:
            last[0] = f"{left_out}\n{last[0]}"
        else:
            last = [left_out]
    return first + last


MOMENTS = ("EARLIER", "LATER")
PERSONA_CHARACTERS = 60_000


def render(name: str, /, **values: Any) -> str:
    """Render a prompt template of the judge."""
    return render_prompt(f"judge/{name}", **values)


@lru_cache(maxsize=8)
def rubric(*, hard: bool, environment: bool, method: str = "plumbline") -> str:
    """Return the scoring rubric, the same text however many claims a call asks, so that a prompt cache can hold it (AC-6.0.5)."""
    name = "rubric" if method == "plumbline" else f"rubric_{method}"
    return render(name, hard=hard, environment=environment)


# A run asks many questions about few windows and one persona: what they share is rendered once.
@lru_cache(maxsize=64)
def _persona_text(name: str, persona: str, nonce: str) -> str:
    text = safe_and_cut(cut_persona(persona, PERSONA_CHARACTERS), 2 * PERSONA_CHARACTERS)
    return render("persona", name=name, persona=fence("PERSONA", text, nonce))


LONGEST_EXAMPLE = 1_000  # characters of its message and of its claim


@dataclass(frozen=True, slots=True)
class Example:
    """A claim about another message with the score that people gave it, shown to the judge as its scale.

    Attributes:
        conversation: Primary key of the channel of the message: nothing said in it is judged with this example beside it.
        speaker: Who said `text`.
        value: 0 to 9 for the claim as written.
    """

    conversation: int
    speaker: str
    text: str
    claim: str
    value: int


@lru_cache(maxsize=64)
def _examples_text(examples: tuple[Example, ...], nonce: str) -> str:
    """Return the examples in a fence; further lines of a text are marked, so that none can pass for a score."""
    entries = []
    for number, example in enumerate(examples, 1):
        text = indented(example.text, LONGEST_EXAMPLE)
        claim = indented(example.claim, LONGEST_EXAMPLE)
        entry = f"{number}. {_shown_name(example.speaker)} says: {text}\n   Claim: {claim}\n   Score: {example.value}"
        entries.append(entry)
    return render("few_shot", examples=fence("EXAMPLES", "\n".join(entries), nonce))


@lru_cache(maxsize=128)
def _trajectory_parts(
    name: str, window: Window, nonce: str, statistics: str, *, environment: bool, own_messages: bool
) -> tuple[str, ...]:
    """Return the text of a trajectory, cut where windows that begin alike end, so that the prompt cache can hold what they share.

    The parts together are the text. It is cut after as many entries as each of the window's `ends` says; without `ends` it is one part.
    Statistics (empty: none) are cut after 20,000 characters.
    """
    fenced_statistics = ""
    if statistics:
        fenced_statistics = fence("STATISTICS", safe_and_cut(statistics, 20_000), nonce)
    rest = render(
        "trajectory",
        name=name,
        trajectory=render_trajectory(window, nonce=nonce),
        statistics=fenced_statistics,
        environment=environment,
        own_messages=own_messages,
    )
    entries = _numbered_entries(window)
    parts: list[str] = []
    for begin, end in pairwise((0, *window.ends)):
        shared = "\n".join(entries[begin:end]) + "\n"
        before, _, rest = rest.partition(shared)
        parts.append(before + shared)
    return (*parts, rest)


def system_blocks(
    context: Context,
    propositions: Sequence[Proposition],
    nonce: str,
    *,
    method: str = "plumbline",
    examples: tuple[Example, ...] = (),
) -> tuple[Block, ...]:
    """Return the rubric (with its part on flaws if any claim is hard), then examples if there are any, then the persona.

    The persona is left out where there is none, and where the claims may not see it.

    Args:
        propositions: Those of one call; all or none of them may see the persona.
    """
    hard = any(p.hard for p in propositions)
    blocks = [Block(rubric(hard=hard, environment=context.environment, method=method), cache=True)]
    if examples:
        blocks.append(Block(_examples_text(examples, nonce), cache=True))
    if context.persona is not None and propositions[0].include_personas:
        blocks.append(Block(_persona_text(one_line(context.agent_name), context.persona, nonce), cache=True))
    return tuple(blocks)


def user_turn(
    context: Context,
    claims: Sequence[tuple[str, str]],
    nonce: str,
    *,
    advised: Sequence[str] = (),
    window_shown_once: bool = False,
    asked_again: bool = False,
) -> Turn:
    """Return the trajectory (if it has events), the additional context (if any), and last what is judged, with the claims.

    The first two are marked for the prompt cache unless `window_shown_once`, the last if `asked_again`; see `Question`.

    Args:
        claims: Key and text of each; what looks like a fence in them is made harmless, and more than 4,000 characters are cut.
        advised: Keys of the claims for which the judge is asked what would have been better.
    """
    name = one_line(context.agent_name)
    blocks: list[Block] = []
    if context.window.events:
        statistics = ""
        if context.statistics:
            statistics = json.dumps(context.statistics, ensure_ascii=False, indent=1)
        parts = _trajectory_parts(
            name,
            context.window,
            nonce,
            statistics,
            environment=context.environment,
            own_messages=context.own_messages,
        )
        blocks += [Block(part, cache=not window_shown_once) for part in parts]
    if context.additional:
        background = safe_and_cut(json.dumps(context.additional, ensure_ascii=False, indent=1), 8_000)
        text = render("additional", additional=fence("BACKGROUND", background, nonce))
        blocks.append(Block(text, cache=not window_shown_once))
    message = action = ""
    if context.message:
        message = _judged_message(context.message, context, nonce)
    if context.action is not None:
        action = _judged_message(Event("action", context.agent_name, context.action), context, nonce)
        if (
            context.growing
        ):  # a prompt of its own: another text of `claims` would end all comparisons with earlier scores
            action = f"{render('growing')}\n\n{action}"
    pair: list[str] = []  # stays empty where no pair is judged
    for window, moment in zip(context.pair or (), MOMENTS, strict=False):
        pair.append(render_trajectory(window, nonce=nonce, marker=moment, longest=LONGEST_JUDGED))
    claims_text = render(
        "claims",
        name=name,
        message=message,
        number=context.message_number,
        action=action,
        pair=pair,
        single=len(claims) == 1,
        advised=", ".join(advised),
        claims=[{"key": key, "text": safe_and_cut(claim)} for key, claim in claims],
    )
    blocks.append(Block(claims_text, cache=asked_again))
    return Turn("user", tuple(blocks))


def _judged_message(event: Event, context: Context, nonce: str) -> str:
    """Return the one message judged, in its fence, with the channel where it was sent."""
    channel = ""
    if context.channel_name:
        channel = f"(in {_shown_name(context.channel_name)})\n"
    return fence("MESSAGE", channel + one_event(event, 1, LONGEST_JUDGED).removeprefix("1. "), nonce)


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


_EXAMPLE: dict[str, Any] = {
    "evidence": "present",
    "reasoning": "Two of the three sentences show what the claim says, the last one works against it.",
    "justification": "The second sentence says it outright.",
    "value": 6,
    "confidence": 0.7,
}


def example_answer(keyed: Mapping[str, Proposition]) -> dict[str, Any]:
    """Return a valid answer to another question; only its shape is to be followed."""
    entry = dict(_EXAMPLE)
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
        return unscored(f"precondition {name} failed: {type(error).__name__}: {error}", cause=PRECONDITION_FAILED)
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


class _Truth(_Entry):
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


def judged(entry: Answer | Abstention, proposition: Proposition, method: str = Method.PLUMBLINE) -> Verdict:
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
        facts_of_claims[key] = _facts_of_claim(proposition, claims[key])
    turn = user_turn(
        question.context,
        list(claims.items()),
        question.nonce,
        advised=advised,
        window_shown_once=question.window_shown_once,
        asked_again=question.asked_again,
    )
    return _judge_request(
        question,
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


def _judge_request(asked: Question | Check, **fields: Any) -> LLMRequest:
    """Build a call of the judge: in the gate it is neither retried nor asked again."""
    retries = 0 if asked.gate else settings.LLM_EVALUATION_RETRIES
    return LLMRequest(
        role="judge",
        label=asked.label,
        model=asked.model,
        nonce=asked.nonce,
        gate=asked.gate,
        reask=not asked.gate,
        retries=retries,
        **fields,
    )


def _facts_of_claim(proposition: Proposition, claim: str) -> dict[str, Any]:
    """Return what the offline judge may go by; a model is not shown it."""
    cues = proposition.cues.model_dump() if proposition.cues else None
    return {"text": claim, "cues": cues, "measure": proposition.measure, "hard": proposition.hard}


def build_recheck(question: Question, reply: Reply) -> LLMRequest:
    """Build the follow-up to an answered question: the same request, the judge's answer, and the question whether it is sure."""
    request = build_request(question)
    # A turn cannot be empty: a reply that has no text is stood in for by the example.
    answered = Turn("assistant", (Block(reply.text or json.dumps(example_answer(question.keyed()))),))
    asked = Turn("user", (Block(render("double_check")),))
    return replace(request, turns=(*request.turns, answered, asked))


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
        verdict = replace(judged(entries[key], proposition, question.method), **who)
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


Replies = Generator[tuple[int, Reply], None, None]
Asking = Callable[[Iterable[LLMRequest | None]], Replies]  # `complete_many`, or what stands in for it with batches
RETRIED_AT_LEAST = 5  # calls, however few were answered
GIVE_UP_AFTER = 10  # calls that failed before any succeeded
WORTH_SECOND_TRY = (Status.REFUSED, Status.TRUNCATED, Status.RATE_LIMITED, Status.UNAVAILABLE)


class JudgeHealth:
    """Notes over everything that is asked together whether the judge answers at all. Usable from several threads.

    Attributes:
        down: Why to stop asking; empty while the judge answers.
    """

    def __init__(self) -> None:
        self.down = ""
        self._answered = 0
        self._failed = 0
        self._lock = threading.Lock()

    def note(self, *, failed: bool, why: str) -> None:
        """Count one call. Once ten failed and none was answered the judge is `down`, and stays so.

        Args:
            failed: Whether it brought no answer.
            why: What it brought instead.
        """
        with self._lock:
            if failed:
                self._failed += 1
            else:
                self._answered += 1
            if self._failed >= GIVE_UP_AFTER and not self._answered:
                self.down = self.down or f"the judge answered none of the first calls; the last: {why}"


@dataclass(frozen=True, slots=True)
class Answered:
    """Verdicts for some of a question's propositions, by position."""

    question: Question
    positions: tuple[int, ...]
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class _FirstAnswer:
    """The answer of which the judge is asked whether it is sure."""

    reply: Reply
    verdicts: list[Verdict]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the judge.

    Attributes:
        question: What it asks.
        whole_question: The same, but for a second try of some of its propositions.
        positions: Of its propositions in the whole question.
        first_answer: Set for the second call of a double check.
    """

    question: Question
    whole_question: Question
    positions: tuple[int, ...]
    first_answer: _FirstAnswer | None = None

    @property
    def is_first_try(self) -> bool:
        return self.question is self.whole_question


class _Calls:
    """The calls of one `ask_all`: which is made next, which wait for the prompt cache, which are tried again at the end."""

    def __init__(self, questions: Iterable[Question]) -> None:
        self._questions = iter(questions)
        self._double_checks: deque[_Call] = deque()
        self._second_tries: deque[_Call] = deque()
        self._in_flight: dict[int, _Call] = {}
        self._first_tries_open = 0  # made and not ended
        self._answered = 0
        self._tried_again = 0
        self._known_prefixes: set[Hashable] = {None}
        # Questions that wait, by the prefix that a call in flight is writing into the prompt cache.
        self._waiting: dict[Hashable, list[Question]] = {}
        self._released: deque[Question] = deque()

    def requests(self) -> Iterator[LLMRequest | None]:
        """Yield what to send next; None when there is nothing until another reply arrives.

        It never ends by itself: who sends stops at None when no reply is awaited. Requests are numbered from 0, without the Nones.
        """
        number = 0
        while True:
            call = self._next_call()
            if call is None:
                yield None
                continue
            self._in_flight[number] = call
            number += 1
            yield self._build_request(call)

    def _next_call(self) -> _Call | None:
        """Return the next call to make; None when all wait for replies.

        Double checks come first, then questions, and second tries when no first try is open any more.
        """
        if self._double_checks:
            return self._double_checks.popleft()
        question = self._next_question()
        if question is not None:
            self._first_tries_open += 1
            return _Call(question, question, tuple(range(len(question.propositions))))
        if self._second_tries and not self._first_tries_open:  # they come after everything else
            return self._second_tries.popleft()
        return None

    def _next_question(self) -> Question | None:
        """Return a question that need not wait for the prompt cache; put aside those that must."""
        if self._released:
            return self._released.popleft()
        for question in self._questions:
            if question.prefix not in self._waiting:
                return question
            self._waiting[question.prefix].append(question)
        return None

    def _build_request(self, call: _Call) -> LLMRequest:
        """Build the request of a call: a double check, or a question.

        Of the first question of a prefix, when the prompt cache takes so long a beginning, those with the same prefix wait for its reply.
        """
        if call.first_answer is not None:
            return build_recheck(call.question, call.first_answer.reply)
        request = build_request(call.question)
        prefix = call.question.prefix
        if prefix not in self._known_prefixes:
            self._known_prefixes.add(prefix)
            if cached_characters(request) >= CACHED_FROM:  # this call writes its prefix into the cache
                self._waiting[prefix] = []  # from now on `_next_question` puts aside what has this prefix
        return request

    def take_reply(self, number: int, reply: Reply) -> Answered | None:
        """Read the reply to the request of that number; return the verdicts that are final, if there are any.

        An answer that is to be double-checked is not final, nor is what gets a second try.
        """
        call = self._in_flight.pop(number)
        # Whether it was answered or not, those that waited for its prefix are asked now.
        self._released += self._waiting.pop(call.question.prefix, ())
        verdicts = read_reply(call.question, reply)
        first_answer = call.first_answer
        if first_answer is None and reply.ok and call.question.double_check:
            self._double_checks.append(replace(call, first_answer=_FirstAnswer(reply, verdicts)))
            return None
        if first_answer is not None:
            reply = first_answer.reply  # it decides about a second try: the double check is none
            pairs = zip(first_answer.verdicts, verdicts, strict=True)
            verdicts = [reconsidered(first, second) for first, second in pairs]
        retried: list[int] = []
        if call.is_first_try:  # a second try is the last one
            retried = self._end_first_try(call, reply, verdicts)
        final = [position for position in range(len(verdicts)) if position not in retried]
        if not final:
            return None
        positions = tuple(call.positions[position] for position in final)
        return Answered(call.whole_question, positions, tuple(verdicts[position] for position in final))

    def _end_first_try(self, call: _Call, reply: Reply, verdicts: Sequence[Verdict]) -> list[int]:
        """Queue a second try for what is worth it, with room for twice as long an answer; return the positions of its propositions.

        None for the gate, and none any more once second tries outnumber both five and the answered calls: then failing is the rule.
        """
        self._first_tries_open -= 1
        if reply.ok:
            self._answered += 1
        are_exceptions = self._tried_again <= max(RETRIED_AT_LEAST, self._answered)
        retried: list[int] = []
        if are_exceptions and not call.question.gate:
            retried = _worth_second_try(reply, verdicts)
        if retried:
            self._tried_again += 1
            propositions = tuple(call.question.propositions[position] for position in retried)
            question = replace(call.question, propositions=propositions, max_tokens_factor=2)
            self._second_tries.append(_Call(question, call.whole_question, tuple(retried)))
        return retried


def _worth_second_try(reply: Reply, verdicts: Sequence[Verdict]) -> list[int]:
    """Return the positions of verdicts that a second call may better: invalid entries of an answer, or all of a failed call."""
    if reply.ok:
        return [position for position, verdict in enumerate(verdicts) if verdict.cause == MALFORMED]
    if reply.status in WORTH_SECOND_TRY:
        return list(range(len(verdicts)))
    return []


def ask_all(
    questions: Iterable[Question], *, deadline: float | None = None, ask: Asking | None = None
) -> Generator[Answered, None, None]:
    """Ask many questions at once; yield verdicts as they arrive.

    What is worth a second try is asked once more after everything else: invalid entries of a grouped answer, on their own, and calls that
    were refused, cut off, limited or not served, as long as these are the exception. A double check follows its first answer. Questions
    that begin alike (`Question.prefix`) wait for the first of them: sent together, none would find their prefix in the prompt cache.

    Args:
        questions: Made one by one, in the calling thread, as there is room for calls.
        deadline: Seconds per call; default `LLM_EVALUATION_DEADLINE`.
        ask: Asks the requests; default `complete_many`.
    """
    if ask is None:
        ask = partial(complete_many, deadline=deadline or settings.LLM_EVALUATION_DEADLINE)
    calls = _Calls(questions)
    for number, reply in ask(calls.requests()):
        answered = calls.take_reply(number, reply)
        if answered is not None:
            yield answered


def score_propositions(
    *,
    propositions: Sequence[Proposition],
    context: Context,
    label: Label,
    model: str = "",
    deadline: float | None = None,
) -> list[Verdict]:
    """Score propositions about one context, up to ten per call, grouped by equal windows (AC-6.0.4); one verdict each, in their order.

    Nothing is stored but the calls in the ledger. What could not be judged is unscored, with the reason.

    Args:
        propositions: What to judge; no rules, they need no judge.
        model: Overrides the configured judge.
        deadline: Seconds per call; default `LLM_EVALUATION_DEADLINE`.
    """
    positions_by_context: dict[object, list[int]] = {}
    for position, proposition in enumerate(propositions):
        positions_by_context.setdefault(proposition.context_key, []).append(position)
    questions: list[Question] = []
    for positions in positions_by_context.values():
        for start in range(0, len(positions), MAX_PER_CALL):
            chunk = positions[start : start + MAX_PER_CALL]
            asked = tuple(propositions[position] for position in chunk)
            questions.append(Question(propositions=asked, context=context, label=label, model=model, items=chunk))
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
    """Score one proposition with one call, without the second try and double check of `ask_all`.

    Args:
        gate: Whether a draft waits for it: the call is then neither retried nor asked again after a malformed answer.
        deadline: Seconds in total; default `LLM_EVALUATION_DEADLINE`.
    """
    question = Question(propositions=(proposition,), context=context, label=label, model=model, gate=gate)
    reply = complete(build_request(question), deadline=deadline or settings.LLM_EVALUATION_DEADLINE)
    return read_reply(question, reply)[0]


# -- whether a claim is true
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
    facts_of_claim = {**_facts_of_claim(proposition, claim), "measure": None, "hard": False}
    return _judge_request(
        check,
        task="check",
        system=(rubric_of_checks, *persona),
        turns=(user_turn(context, [("p1", claim)], check.nonce),),
        schema=entry_schema(value={"type": "boolean"}),
        parse=_Truth.model_validate,
        example={**_EXAMPLE, "value": True},
        max_tokens=1000,
        facts={"claims": {"p1": facts_of_claim}, "texts": context.judged_texts()},
    )


def read_check(check: Check, reply: Reply) -> CheckResult:
    """Return what a reply says of the check; `holds` is None where it says nothing, False where the judge saw no evidence."""
    judge = check.model or str(settings.JUDGE_MODEL)
    if not reply.ok:
        return CheckResult(holds=None, reason=f"{reply.status}: {reply.error}", judge=judge, call=reply.call_id)
    answer: _Truth = reply.value
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
    for item in asked:
        requests.append(build_check(item) if isinstance(item, Check) else build_request(item))
    replies = complete_guarded(requests, deadline=deadline, about=about)
    results: list[CheckResult | list[Verdict]] = []
    for item, reply in zip(asked, replies, strict=True):
        results.append(read_check(item, reply) if isinstance(item, Check) else read_reply(item, reply))
    return results
