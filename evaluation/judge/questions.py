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
from agents.kit.llm.requests import one_line as storable_line
from agents.kit.text.fences import fence, neutral, new_nonce, one_line, render_prompt
from agents.kit.text.patterns import Undecided, one_message
from agents.personas.persona import cut_persona
from evaluation.models import OUT_OF_REACH, RULE_JUDGE, STATISTIC, Method, is_heuristic
from evaluation.propositions.schema import CHECKS, Proposition, Rule, check_rule, fill
from evaluation.scorers.subjects import Context, Event, Window


@lru_cache(maxsize=2048)  # shown in the prompts of a whole channel, and of the estimate before
def one_event(event: Event, number: int) -> str:
    """Return one numbered entry. Further lines of a text are indented behind a bar, so that none can pass for an entry."""
    name, speaker = (neutral(" ".join(who.split()), 200)[0] for who in (event.name, event.speaker))
    head = f"{name} acts: " if event.kind == "action" else f"--> {name}: {f'{speaker} says: ' if event.speaker else ''}"
    return f"{number}. {head}" + neutral(event.text)[0].replace("\n", "\n    | ")


def render_trajectory(window: Window, *, nonce: str, marker: str = "TRAJECTORY") -> str:
    """Return the window inside its fence: numbered entries, and a line that says how many events were left out between them."""
    return fence(marker, "\n".join(_entries(window)) or "(nothing happened yet)", nonce)


def _entries(window: Window) -> list[str]:
    """The numbered entries; the line about what was left out belongs to the entry that follows it."""
    after = 1 + len(window.first) + window.omitted
    first = [one_event(event, number) for number, event in enumerate(window.first, 1)]
    last = [one_event(event, number) for number, event in enumerate(window.last, after)]
    if window.omitted:
        left_out = f"[… {window.omitted} events left out here …]"
        last[:1] = ["\n".join([left_out, *last[:1]])]
    return first + last


MOMENTS = ("EARLIER", "LATER")
PERSONA_CHARACTERS = 60_000


def render(name: str, /, **values: Any) -> str:
    return render_prompt(f"judge/{name}", **values)


@lru_cache(maxsize=8)
def rubric(*, hard: bool, environment: bool, method: str = "plumbline") -> str:
    """The scoring rubric, the same text however many claims a call asks, so that a prompt cache can hold it (AC-6.0.5)."""
    name = "rubric" if method == "plumbline" else f"rubric_{method}"
    return render(name, hard=hard, environment=environment)


# A run asks many questions about few windows and one persona: what they share is rendered once.
@lru_cache(maxsize=64)
def _persona_text(name: str, persona: str, nonce: str) -> str:
    text = neutral(cut_persona(persona, PERSONA_CHARACTERS), 2 * PERSONA_CHARACTERS)[0]
    return render("persona", name=name, persona=fence("PERSONA", text, nonce))


@lru_cache(maxsize=128)
def _trajectory_parts(
    name: str, window: Window, nonce: str, statistics: str, environment: bool, own_messages: bool
) -> tuple[str, ...]:
    """The text of a trajectory, cut where windows that begin alike end, so that the prompt cache can hold what they share."""
    text = render(
        "trajectory",
        name=name,
        trajectory=render_trajectory(window, nonce=nonce),
        statistics=fence("STATISTICS", neutral(statistics, 20_000)[0], nonce) if statistics else "",
        environment=environment,
        own_messages=own_messages,
    )
    entries, parts = _entries(window), []
    for begin, end in pairwise((0, *window.ends)):
        shared = "\n".join(entries[begin:end]) + "\n"
        before, _, text = text.partition(shared)
        parts.append(before + shared)
    return (*parts, text)


def system_blocks(
    context: Context, propositions: Sequence[Proposition], nonce: str, *, method: str = "plumbline"
) -> tuple[Block, ...]:
    """Rubric, then the persona where the claims may see it."""
    hard = any(p.hard for p in propositions)
    blocks = [Block(rubric(hard=hard, environment=context.environment, method=method), cache=True)]
    if context.persona is not None and propositions[0].include_personas:
        blocks.append(Block(_persona_text(one_line(context.agent_name), context.persona, nonce), cache=True))
    return tuple(blocks)


def user_turn(
    context: Context,
    claims: Sequence[tuple[str, str]],
    nonce: str,
    *,
    advised: Sequence[str] = (),
    alone: bool = False,
    again: bool = False,
) -> Turn:
    """The trajectory (cached, unless `alone`), then what is judged and the claims (cached if asked `again`): see `Question`."""
    blocks: list[Block] = []
    if context.window.events:
        statistics = json.dumps(context.statistics, ensure_ascii=False, indent=1) if context.statistics else ""
        parts = _trajectory_parts(
            one_line(context.agent_name), context.window, nonce, statistics, context.environment, context.own_messages
        )
        blocks += [Block(part, cache=not alone) for part in parts]
    if context.additional:
        background = neutral(json.dumps(context.additional, ensure_ascii=False, indent=1), 8_000)[0]
        text = render("additional", additional=fence("BACKGROUND", background, nonce))
        blocks.append(Block(text, cache=not alone))
    message = _judged(context.message, context, nonce) if context.message else ""
    draft = Event("action", context.agent_name, context.action) if context.action is not None else None
    action = _judged(draft, context, nonce) if draft else ""
    tail = render(
        "claims",
        name=one_line(context.agent_name),
        message=message,
        number=context.message_number,
        action=action,
        pair=[render_trajectory(w, nonce=nonce, marker=m) for w, m in zip(context.pair or (), MOMENTS, strict=False)],
        single=len(claims) == 1,
        advised=", ".join(advised),
        claims=[{"key": key, "text": neutral(text)[0]} for key, text in claims],
    )
    blocks.append(Block(tail, cache=again))
    return Turn("user", tuple(blocks))


def _judged(event: Event, context: Context, nonce: str) -> str:
    """The one message judged, in its fence, with where it was sent."""
    where = f"(in {neutral(' '.join(context.channel_name.split()), 200)[0]})\n" if context.channel_name else ""
    return fence("MESSAGE", where + one_event(event, 1).removeprefix("1. "), nonce)


MIN_SCORE, MAX_SCORE = 0, 9
MALFORMED = "malformed"
CONFIDENCES = [round(i / 10, 1) for i in range(11)]
_SCORE: dict[str, Any] = {"type": "integer", "enum": list(range(MIN_SCORE, MAX_SCORE + 1))}


def object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of an object with these properties, all of them required."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def entry_schema(hard: bool = False, advised: bool = False, value: Mapping[str, Any] = _SCORE) -> dict[str, Any]:
    """The fields of one claim's answer."""
    return object_schema(
        {
            "evidence": {"type": "string", "enum": ["present", "absent"]},
            "reasoning": {"type": "string"},
            "justification": {"type": "string"},
            **({"flaws": {"type": "array", "items": {"type": "string"}}} if hard else {}),
            "value": value,
            "confidence": {"type": "number", "enum": CONFIDENCES},
            **({"recommendations": {"type": "string"}} if advised else {}),
        }
    )


def answer_schema(keyed: Mapping[str, Proposition], advised: Sequence[str]) -> dict[str, Any]:
    """The schema of an answer: the fields themselves for one claim, an entry per key for several.

    The entries refer to one definition: written out, those of four claims are longer than the rest of the prompt.
    """
    hard = any(p.hard for p in keyed.values())
    if len(keyed) == 1:
        return entry_schema(hard, bool(advised))
    kinds = {key: "advised" if key in advised else "entry" for key in keyed}
    entries = object_schema({key: {"$ref": f"#/$defs/{kind}"} for key, kind in kinds.items()})
    return entries | {"$defs": {kind: entry_schema(hard, kind == "advised") for kind in sorted(set(kinds.values()))}}


_EXAMPLE: dict[str, Any] = {
    "evidence": "present",
    "reasoning": "Two of the three sentences show what the claim says, the last one works against it.",
    "justification": "The second sentence says it outright.",
    "value": 6,
    "confidence": 0.7,
}


def example_answer(keyed: Mapping[str, Proposition]) -> dict[str, Any]:
    """A valid answer to another question; only its shape is to be followed."""
    hard = any(p.hard for p in keyed.values())
    entry = {**_EXAMPLE, **({"flaws": ["the last sentence contradicts the persona"]} if hard else {})}
    return entry if len(keyed) == 1 else dict.fromkeys(keyed, entry)


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
        cause: Why it is unscored: the status of a call that failed, ``malformed``, `OUT_OF_REACH` (of this judge), or empty.
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
    """A judgement that could not be made. It has no number and enters no mean."""
    return Verdict(status="unscored", reason=reason[:300], **fields)


def trivial(reason: str, **fields: Any) -> Verdict:
    """A proposition that could not be false here (AC-6.0.15): stored as 9, not inverted, in no mean."""
    return Verdict(status="trivial", value=MAX_SCORE, reason=reason[:300], **fields)


def verdict_by_rule(rule: Rule, text: str, *, inverted: bool) -> Verdict:
    """The exact result of a rule: 9 when nothing is broken, else 0; unscored, with the pattern that takes too long, if it cannot tell."""
    who: dict[str, Any] = {"judge": RULE_JUDGE, "served_model": RULE_JUDGE}
    try:
        with one_message():
            problems = check_rule(rule, text)
    except Undecided as problem:
        return unscored(str(problem), **who)
    raw = MIN_SCORE if problems else MAX_SCORE
    found = [] if problems else _phrases(rule, text)
    return Verdict(
        status="scored",
        value=MAX_SCORE - raw if inverted else raw,
        raw_value=raw,
        evidence="present",
        reasoning="; ".join(problems) or (f"found: {', '.join(found)}" if found else "the rule holds"),
        confidence=1.0,
        **who,
    )


def _phrases(rule: Rule, text: str) -> list[str]:
    """Which phrases of `contains_any` occur, for the reader of an inverted rule."""
    found = []
    for phrase in rule.contains_any or ():
        with suppress(Undecided):
            if not CHECKS["contains_any"](text, [phrase]):
                found.append(f"“{phrase}”")
    return found


# An unusable confidence or advice must not cost the score beside it.
def _usable_confidence(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return float(value) if usable else None


def _usable_advice(value: Any) -> str:
    return value.strip()[:2000] if isinstance(value, str) else ""


class _Entry(BaseModel):
    """What the judge says of a claim. Strict: ``"7"``, 7.5, true, null and 97 are no scores, and 1 is not true.

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
    """The entries of a reply by claim key: a single claim is answered at the top level, several under their keys.

    Returns:
        An entry for every key; an invalid one is an `Abstention`, so that its neighbours stay.

    Raises:
        InvalidAnswer: Nothing in the reply is valid.
    """
    if not isinstance(data, dict):
        raise InvalidAnswer(f"expected a JSON object, got {type(data).__name__}")
    single = len(propositions) == 1
    entries = {key: _entry(data if single else data.get(key), proposition) for key, proposition in propositions.items()}
    bad = [f"{key}: {e.reason}" for key, e in entries.items() if isinstance(e, Abstention) and e.invalid]
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

    By TinyTroupe's method absent evidence counts as the 9 the judge was instructed to give, and penalties are the judge's own.
    """
    if isinstance(entry, Abstention):
        if entry.invalid:
            return unscored(f"malformed: {entry.reason}", cause=MALFORMED)
        return unscored(entry.reason, cause=OUT_OF_REACH if entry.out_of_reach else "")
    fields = entry.model_dump(include={"reasoning", "justification", "confidence"}) | {"evidence": entry.evidence or ""}
    if entry.evidence == "absent" and method != Method.TINYTROUPE:
        return trivial("the judge saw nothing to judge the claim by", raw_value=entry.value, **fields)
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


MAX_PER_CALL = 10  # AC-6.0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Propositions that share a context, to be asked in one call.

    Attributes:
        nonce: Marks the fences of the prompt. An evaluation gives all its questions the same one, so that they share the prompt cache.
        double_check: Ask again whether the judge is sure (AC-6.0.11).
        advise: Ask for a recommendation where the proposition has none (AC-6.0.14).
        alone: No other call shows this window, so writing it into the prompt cache would only cost.
        again: The very same prompt is sent again (repeats, a double check).
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
    alone: bool = False
    again: bool = False
    prefix: Hashable = None
    items: Sequence[Any] = field(default=(), repr=False, compare=False)
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
    keyed, claims, advised = question.keyed(), question.claims(), question.advised()
    facts = {
        "claims": {key: _fact(p, claims[key]) for key, p in zip(keyed, question.propositions, strict=True)},
        "texts": question.context.judged_texts(),
        "measured": question.context.measured,
        "history": question.context.history(),
    }
    return _request(
        question,
        task="score",
        system=system_blocks(question.context, question.propositions, question.nonce, method=question.method),
        turns=(
            user_turn(
                question.context,
                list(claims.items()),
                question.nonce,
                advised=advised,
                alone=question.alone,
                again=question.again,
            ),
        ),
        schema=answer_schema(keyed, advised),
        parse=lambda data: parse_answers(data, keyed),
        example=example_answer(keyed),
        max_tokens=(600 + 500 * len(keyed)) * question.max_tokens_factor,
        facts=facts,
    )


def _request(asked: Question | Check, **fields: Any) -> LLMRequest:
    """A call of the judge: in the gate it is neither retried nor asked again."""
    gate = asked.gate
    return LLMRequest(
        role="judge",
        label=asked.label,
        model=asked.model,
        nonce=asked.nonce,
        gate=gate,
        reask=not gate,
        retries=0 if gate else settings.LLM_EVALUATION_RETRIES,
        **fields,
    )


def _fact(p: Proposition, claim: str) -> dict[str, Any]:
    """What the offline judge may go by; a model is not shown it."""
    return {"text": claim, "cues": p.cues.model_dump() if p.cues else None, "measure": p.measure, "hard": p.hard}


def build_recheck(question: Question, reply: Reply) -> LLMRequest:
    """The follow-up to an answered question: is the judge sure?"""
    request = build_request(question)
    answered = Turn("assistant", (Block(reply.text or json.dumps(example_answer(question.keyed()))),))
    asked = Turn("user", (Block(render("double_check")),))
    return replace(request, turns=(*request.turns, answered, asked))


def read_reply(question: Question, reply: Reply) -> list[Verdict]:
    """One verdict per proposition of the question, in order. A reply without an answer makes all of them unscored, with the reason."""
    served, judge = storable_line(reply.served_model, 200), question.model or str(settings.JUDGE_MODEL)
    who: dict[str, Any] = {"judge": judge, "served_model": served, "call": reply.call_id}
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
    """How long the part of a request is that the prompt cache may hold."""
    blocks = [*request.system, *(block for turn in request.turns for block in turn.blocks)]
    cached = total = 0
    for block in blocks:
        total += len(block.text)
        if block.cache:
            cached = total
    return cached


Replies = Generator[tuple[int, Reply], None, None]
Asking = Callable[[Iterable[LLMRequest | None]], Replies]  # `complete_many`, or what stands in for it with batches
RETRIED_AT_LEAST = 5
GIVE_UP_AFTER = 10  # calls that failed before any succeeded
_WORTH_ANOTHER_TRY = (Status.REFUSED, Status.TRUNCATED, Status.RATE_LIMITED, Status.UNAVAILABLE)


class JudgeHealth:
    """Whether the judge answers at all, over everything that is asked together; `down` says why to stop. Usable from several threads."""

    def __init__(self) -> None:
        self.down = ""
        self._answered = self._failed = 0
        self._lock = threading.Lock()

    def note(self, *, failed: bool, why: str) -> None:
        """Count one call."""
        with self._lock:
            self._failed += failed
            self._answered += not failed
            if self._failed >= GIVE_UP_AFTER and not self._answered:
                self.down = self.down or f"the judge answered none of the first calls; the last: {why}"


@dataclass(frozen=True, slots=True)
class Answered:
    """Verdicts for some of a question's propositions, by position."""

    question: Question
    positions: tuple[int, ...]
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call: what it asks, and the positions of its propositions in the full question."""

    question: Question
    full: Question
    positions: tuple[int, ...]
    first: tuple[Reply, list[Verdict]] | None = None  # the answer of which the judge is asked whether it is sure


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
    fresh, checks, retries = iter(questions), deque[_Asked](), deque[_Asked]()
    waiting: dict[int, _Asked] = {}
    first_tries = served = retried = 0
    known: set[Hashable] = {None}
    # Questions that wait, by the prefix that a call in flight is writing into the prompt cache.
    held: dict[Hashable, list[Question]] = {}
    released: deque[Question] = deque()

    def next_question() -> Question | None:
        if released:
            return released.popleft()
        for question in fresh:
            if question.prefix not in held:
                return question
            held[question.prefix].append(question)
        return None

    def requests() -> Iterator[LLMRequest | None]:
        nonlocal first_tries
        number = 0
        while True:
            if checks:
                call = checks.popleft()
            elif (question := next_question()) is not None:
                call = _Asked(question, question, tuple(range(len(question.propositions))))
                first_tries += 1
            elif retries and not first_tries:
                call = retries.popleft()
            else:
                yield None
                continue
            waiting[number], number = call, number + 1
            if call.first:
                yield build_recheck(call.question, call.first[0])
                continue
            request = build_request(call.question)
            if call.question.prefix not in known:
                known.add(call.question.prefix)
                if cached_characters(request) >= CACHED_FROM:
                    held[call.question.prefix] = []
            yield request

    ask = ask or partial(complete_many, deadline=deadline or settings.LLM_EVALUATION_DEADLINE)
    for number, reply in ask(requests()):
        call = waiting.pop(number)
        released += held.pop(call.question.prefix, ())
        verdicts = read_reply(call.question, reply)
        if call.first is None and reply.ok and call.question.double_check:
            checks.append(replace(call, first=(reply, verdicts)))
            continue
        if call.first is not None:
            reply, before = call.first
            verdicts = [reconsidered(first, second) for first, second in zip(before, verdicts, strict=True)]
        again: tuple[int, ...] = ()
        if call.question is call.full:  # else it is a second try: the last one
            first_tries, served = first_tries - 1, served + reply.ok
            if (
                retried <= max(RETRIED_AT_LEAST, served) and not call.question.gate
            ):  # all of a failed call, or invalid entries
                worth = reply.status in _WORTH_ANOTHER_TRY
                again = tuple(i for i, v in enumerate(verdicts) if (v.cause == MALFORMED if reply.ok else worth))
        if again:
            retried += 1
            part = tuple(call.question.propositions[i] for i in again)
            retries.append(_Asked(replace(call.question, propositions=part, max_tokens_factor=2), call.full, again))
        if settled := [i for i in range(len(verdicts)) if i not in again]:
            yield Answered(call.full, tuple(call.positions[i] for i in settled), tuple(verdicts[i] for i in settled))


def score_propositions(
    *,
    propositions: Sequence[Proposition],
    context: Context,
    label: Label,
    model: str = "",
    deadline: float | None = None,
) -> list[Verdict]:
    """Score propositions about one context, up to ten per call, grouped by equal windows (AC-6.0.4); one verdict each, in their order.

    Args:
        propositions: What to judge; no rules, they need no judge.
        model: Overrides the configured judge.
        deadline: Seconds per call; default `LLM_EVALUATION_DEADLINE`.
    """
    groups: dict[object, list[int]] = {}
    for index, proposition in enumerate(propositions):
        groups.setdefault(proposition.context_key, []).append(index)
    questions = [
        Question(
            propositions=tuple(propositions[i] for i in chunk), context=context, label=label, model=model, items=chunk
        )
        for indexes in groups.values()
        for chunk in (indexes[i : i + MAX_PER_CALL] for i in range(0, len(indexes), MAX_PER_CALL))
    ]
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
    """Score one proposition alone, as experiments and the gate do."""
    question = Question(propositions=(proposition,), context=context, label=label, model=model, gate=gate)
    reply = complete(build_request(question), deadline=deadline or settings.LLM_EVALUATION_DEADLINE)
    return read_reply(question, reply)[0]


# -- whether a claim is true
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
    """The model request of a check.

    Raises:
        ValueError: The claim uses a variable that has no value here.
    """
    proposition, context = check.proposition, check.context
    claim = fill(proposition.claim, context.variables())
    rubric_of_checks = Block(render("check", environment=context.environment), cache=True)
    return _request(
        check,
        task="check",
        system=(rubric_of_checks, *system_blocks(context, (proposition,), check.nonce)[1:]),
        turns=(user_turn(context, [("p1", claim)], check.nonce),),
        schema=entry_schema(value={"type": "boolean"}),
        parse=_Truth.model_validate,
        example={**_EXAMPLE, "value": True},
        max_tokens=1000,
        facts={
            "claims": {"p1": _fact(proposition, claim) | {"measure": None, "hard": False}},
            "texts": context.judged_texts(),
        },
    )


def read_check(check: Check, reply: Reply) -> CheckResult:
    """What a reply says of the check; `holds` is None where it says nothing."""
    judge = check.model or str(settings.JUDGE_MODEL)
    if not reply.ok:
        return CheckResult(holds=None, reason=f"{reply.status}: {reply.error}", judge=judge, call=reply.call_id)
    answer: _Truth = reply.value
    said = answer.model_dump(include={"reasoning", "justification", "confidence"})
    return CheckResult(holds=answer.value and answer.evidence != "absent", judge=judge, call=reply.call_id, **said)


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
    """Ask several checks, and questions that are scored, at the same time, while a turn waits: see `complete_guarded` for `about`.

    Args:
        deadline: Seconds for all of it.

    Returns:
        In their order, a result for each check, and for each question one verdict per proposition.
    """
    requests = [build_check(one) if isinstance(one, Check) else build_request(one) for one in asked]
    replies = complete_guarded(requests, deadline=deadline, about=about)
    return [
        read_check(one, reply) if isinstance(one, Check) else read_reply(one, reply)
        for one, reply in zip(asked, replies, strict=True)
    ]
