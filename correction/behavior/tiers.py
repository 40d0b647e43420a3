"""The three questions about a message: does it ask for a change (gate), of what (extract), and as which trait (map)? (specification 002)

What a person quotes is never shown (`own_words`). What an earlier tier answered is data to the later ones. Answers are stored as they
arrive: `next_tier` says from them alone what is to be asked next. `try_text` asks all of them and changes nothing.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, get_args

import sentry_sdk
from django.conf import settings
from django.template.loader import render_to_string

from agents.llm import Block, InvalidAnswer, Label, LLMRequest, Reply, Turn, complete
from agents.llm.endpoints import model_of
from agents.models import Agent, LLMCall
from agents.persona import TraitLike, TraitValue, render_persona
from agents.text.fences import fence, neutral, new_nonce, one_line
from correction.behavior.rules import (
    LONGEST_NAME,
    MOST_TOUCHED,
    Change,
    Decision,
    Requester,
    as_value,
    decide,
    made_by_requests,
    name_key,
    read_map,
)
from correction.config.settings import ResolvedConfig

LONGEST_WORDS = (
    12_000  # characters of own words that are read: a request stands at the beginning or the end of what is longer
)

_OPENING = re.compile(
    r"""
    ^[ ]{0,3}(?P<line>>.*(?:\n[ ]{0,3}>.*)*)       # quoted line by line
    | ^[ ]{0,3}(?P<fence>`{3,}|~{3,})              # a block of code
    | ^-{2,}[ ]?(?:original|forwarded)[ ]message[ ]?-{2,}(?P<rest>)   # a mail: what follows is another's
    | (?P<mark>\"{3}|'{3}|\[quote\b[^\]\n]{0,80}\]|<blockquote>|[\u201c\u201e\u00ab\u300c\u300e])
    """,
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
_CLOSING = {
    "\u201c": "\u201d", "\u201e": "\u201c", "\u00ab": "\u00bb", "\u300c": "\u300d", "\u300e": "\u300f",
    "[": "[/quote]", "<": "</blockquote>", '"': '"""', "'": "'''",
}  # fmt: skip
_TYPOGRAPHIC = (
    "\u201c\u201e\u00ab\u300c\u300e"  # such quotes are a block when they go over a line's end, else part of a sentence
)


@dataclass(frozen=True, slots=True)
class Words:
    """A person's own words in a message.

    Attributes:
        text: Without what is quoted in blocks, of which a mark says how much it was; cut in the middle when it is too long.
        quoted: Characters of the quoted blocks.
        cut: Characters of own words that were left out.
    """

    text: str
    quoted: int = 0
    cut: int = 0

    @property
    def say_something(self) -> bool:
        """Whether there is a letter of any script: signs, numbers and emoji alone ask for nothing."""
        return any(char.isalpha() for char in _QUOTE_MARK.sub("", self.text))


_QUOTE_MARK = re.compile(r"\[quoted text, [\d,]+ characters?\]")


def own_words(text: str) -> Words:
    """Read a message. Takes time in proportion to its length, whatever it holds."""
    search = _Search(text)
    kept: list[str] = []
    quoted = position = 0
    while opening := _OPENING.search(text, position):
        end = _end(search, opening)
        if end is None:
            kept.append(text[position : opening.end()])
            position = opening.end()
            continue
        length = end - opening.start()
        quoted += length
        kept += (text[position : opening.start()], f"[quoted text, {length:,} character{'s' * (length != 1)}]")
        position = end
    kept.append(text[position:])
    return _shortened("".join(kept).strip(), quoted)


class _Search:
    """Looks from growing positions for the next place of a few texts, and remembers it: each character is looked at once per text."""

    def __init__(self, text: str) -> None:
        lowered = text.lower()
        self.text = lowered if len(lowered) == len(text) else text
        self._found: dict[str, int] = {}

    def next(self, needle: str, start: int) -> int:
        """The next place of `needle` at or after `start`; the length of the text when there is none."""
        found = self._found.get(needle, -1)
        if found < start:
            found = self.text.find(needle, start)
            found = self._found[needle] = len(self.text) if found < 0 else found
        return found


def _end(search: _Search, opening: re.Match[str]) -> int | None:
    """Where a quotation ends; None when it is none."""
    whole = len(search.text)
    if opening["line"]:
        return opening.end()
    if opening["rest"] is not None:
        return whole
    if opening["fence"]:
        closing = "\n" + opening["fence"]
        return min(whole, search.next(closing, opening.end()) + len(closing))
    closing, begin = _CLOSING[opening["mark"][0]], opening.end()
    closed = search.next(closing, begin)
    if closed == whole or (opening["mark"] in _TYPOGRAPHIC and search.next("\n", begin) > closed):
        return None
    return closed + len(closing)


def _shortened(text: str, quoted: int) -> Words:
    cut = len(text) - LONGEST_WORDS
    if cut <= 0:
        return Words(text, quoted)
    half = LONGEST_WORDS // 2
    return Words(f"{text[:half]}\n[… {cut:,} characters cut …]\n{text[-half:]}", quoted, cut)


CONFIDENCES = ("high", "medium", "low")
LONGEST_TEXT = 2_000  # characters kept of each text of an answer
_STRENGTHS = [round(step / 20, 2) for step in range(21)]
_SENTIMENTS = [round(step / 10 - 1, 1) for step in range(21)]
_TEXT = {"type": "string"}
_BOOLEAN = {"type": "boolean"}


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }


SCHEMAS: Mapping[str, dict[str, Any]] = {
    "gate": _object(
        {"has_request": _BOOLEAN, "confidence": {"type": "string", "enum": list(CONFIDENCES)}, "reason": _TEXT}
    ),
    "extract": _object(dict.fromkeys(("behavior_name", "current_state", "requested_change"), _TEXT)),
    "map": _object(
        {
            "name": _TEXT,
            "description": _TEXT,
            "sentiment": {"type": "number", "enum": _SENTIMENTS},
            "strength": {"type": "number", "enum": _STRENGTHS},
            "is_new": _BOOLEAN,
            "replaces_trait": {"anyOf": [_TEXT, {"type": "null"}]},
            "contradicts_persona": _BOOLEAN,
            "contradiction": _TEXT,
            "touches": {"type": "array", "items": _TEXT},
        },
        required=[],  # an empty object says that nothing is to be changed
    ),
}
EXAMPLES: Mapping[str, dict[str, Any]] = {
    "gate": {"has_request": True, "confidence": "high", "reason": "The message forbids the character to use slang."},
    "extract": {
        "behavior_name": "slang",
        "current_state": "The character uses slang.",
        "requested_change": "It shall use slang only now and then.",
    },
    "map": {
        "name": "slang",
        "description": "Now and then lets a slang word slip in where it fits.",
        "sentiment": 0.0,
        "strength": 0.3,
        "is_new": True,
        "replaces_trait": None,
        "contradicts_persona": False,
        "contradiction": "",
        "touches": [],
    },
}


def read_gate(data: Any) -> dict[str, Any]:
    """``has_request``, ``confidence`` (one of `CONFIDENCES`) and ``reason``.

    Raises:
        InvalidAnswer: It does not say true or false.
    """
    found = _fields(data)
    if not isinstance(found.get("has_request"), bool):
        raise InvalidAnswer(f"has_request: expected true or false, got {_short(found.get('has_request'))}")
    said = found.get("confidence")
    confidence = said.strip().casefold() if isinstance(said, str) else ""
    answer: dict[str, Any] = {
        "has_request": found["has_request"],
        "confidence": confidence if confidence in CONFIDENCES else "low",
        "reason": _text(found, "reason"),
    }
    if confidence not in CONFIDENCES:
        answer["warning"] = f"confidence {_short(said)} is none of {', '.join(CONFIDENCES)}; taken as low"
    return answer


def read_extract(data: Any) -> dict[str, Any]:
    """``behavior_name`` (empty: no behaviour was found after all), ``current_state`` and ``requested_change``.

    Raises:
        InvalidAnswer: It names no behaviour and does not say that there is none.
    """
    found = _fields(data)
    if found and not isinstance(found.get("behavior_name"), str | None):
        raise InvalidAnswer(f"behavior_name: expected a text, got {_short(found['behavior_name'])}")
    if found and "behavior_name" not in found:
        raise InvalidAnswer("behavior_name: missing")
    return {name: _text(found, name) for name in ("behavior_name", "current_state", "requested_change")}


def read_map_answer(data: Any) -> dict[str, Any]:
    """The trait as the model would have it; empty when nothing is to be changed. Its numbers are not yet checked for their range.

    Raises:
        InvalidAnswer: A field that decides what becomes of the trait is not of its type.
    """
    found = _fields(data)
    name = found.get("name")
    if not isinstance(name, str | None):
        raise InvalidAnswer(f"name: expected a text, got {_short(name)}")
    if not found or (name is not None and not name.strip()):
        return {}
    if name is None:
        raise InvalidAnswer("name: missing")
    replaces = found.get("replaces_trait")
    if not isinstance(replaces, str | None):
        raise InvalidAnswer(f"replaces_trait: expected a text or null, got {_short(replaces)}")
    answer: dict[str, Any] = {
        "name": _text(found, "name"),
        "description": _text(found, "description"),
        **{key: _number(found, key) for key in ("sentiment", "strength") if found.get(key) is not None},
        "is_new": found.get("is_new") is True,
        "replaces_trait": _text(found, "replaces_trait") or None,
        "contradicts_persona": found.get("contradicts_persona") is not False,
        "contradiction": _text(found, "contradiction"),
    }
    if isinstance(touches := found.get("touches"), list):  # left out = it is not known whether there are any
        answer["touches"] = [
            " ".join(name.split())[:LONGEST_NAME] for name in touches[:MOST_TOUCHED] if isinstance(name, str)
        ]
    if not isinstance(found.get("contradicts_persona"), bool):
        answer["contradiction"] = answer["contradiction"] or "the answer leaves open whether it fits the persona"
    return answer


READERS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "gate": read_gate,
    "extract": read_extract,
    "map": read_map_answer,
}


def _fields(data: Any) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise InvalidAnswer(f"expected a JSON object, got {type(data).__name__}")
    return data


def _text(found: Mapping[str, Any], name: str) -> str:
    """A text on one line; empty where there is none. What is too long is cut, visibly."""
    value = found.get(name)
    line = " ".join(value.split()) if isinstance(value, str) else ""
    return line if len(line) <= LONGEST_TEXT else line[: LONGEST_TEXT - 1] + "…"


def _number(found: Mapping[str, Any], name: str) -> float:
    """A number, also one written as a text ("0.3"): small models do that, and it leaves no doubt.

    Raises:
        InvalidAnswer: It is none, or not finite.
    """
    value = found[name]
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidAnswer(f"{name}: expected a number, got {_short(value)}")
    return number


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"


Tier = Literal["gate", "extract", "map"]
TIERS: tuple[Tier, ...] = get_args(Tier)
Found = dict[str, dict[str, Any]]  # tier to its answer

PURPOSE = MECHANISM = "behavior"  # in the ledger; the tier is the dimension
JUDGED_WITHOUT_MODEL = "rule"
LONGEST_PERSONA, LONGEST_DESCRIPTION = 60_000, 500  # characters shown
MAX_TOKENS: Mapping[Tier, int] = {"gate": 800, "extract": 800, "map": 1_500}
NOTHING_SAID = {"has_request": False, "confidence": "high", "reason": "the message has no words of its author's own"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whom the message is addressed to. Values, no rows.

    Attributes:
        name: Display name.
        persona: The system prompt, without traits.
        traits: As they are now; only the map tier is shown them and the persona.
    """

    name: str
    persona: str
    traits: Sequence[TraitLike] = ()
    agent_id: int | None = None


def found_without_model(words: Words) -> Found:
    """What needs no model to be known: a message of signs, emoji or quotations alone asks for nothing."""
    return {} if words.say_something else {"gate": dict(NOTHING_SAID)}


def next_tier(found: Mapping[str, Any]) -> Tier | None:
    """The question to ask next, from the answers so far; None when there is nothing more to ask."""
    if found.get("gate") is None:
        return "gate"
    if not found["gate"]["has_request"]:
        return None
    if found.get("extract") is None:
        return "extract"
    if not found["extract"]["behavior_name"]:
        return None
    return "map" if found.get("map") is None else None


def warnings_about(words: Words, found: Mapping[str, Any]) -> list[str]:
    """What was odd about the message or the gate's answer, for people."""
    warnings = []
    if words.quoted:
        warnings.append(f"{words.quoted:,} characters of quoted text were not read: they are somebody else's words")
    if words.cut:
        warnings.append(f"{words.cut:,} characters in the middle of the message were not read")
    if warning := (found.get("gate") or {}).get("warning"):
        warnings.append(str(warning))
    return warnings


def ask(
    tier: Tier, *, words: Words, subject: Subject, found: Mapping[str, Any], work_id: str = "", model: str = ""
) -> Reply:
    """Ask one question; the reply's `value` is the answer to keep. Nobody waits: retries and time are those of evaluations.

    Args:
        tier: Which question.
        words: The message.
        subject: Whom it is addressed to.
        found: The answers of the tiers before.
        work_id: Of the ledger row.
        model: Overrides the configured judge.
    """
    request = tier_request(tier, words=words, subject=subject, found=found, work_id=work_id, model=model)
    with sentry_sdk.start_span(op="correction.behavior", name=tier) as span:
        reply = complete(request, deadline=settings.LLM_EVALUATION_DEADLINE)
        span.set_data("status", str(reply.status))
        if reply.ok and tier == "gate":
            span.set_data("has_request", reply.value["has_request"])
    return reply


def tier_request(
    tier: Tier,
    *,
    words: Words,
    subject: Subject,
    found: Mapping[str, Any],
    work_id: str = "",
    model: str = "",
    nonce: str = "",
) -> LLMRequest:
    """The question as it is sent. `facts` are for the offline detector: what the prompt holds, and in every tier the words."""
    nonce = nonce or new_nonce()
    facts: dict[str, Any] = {"name": subject.name, "text": words.text}
    if tier == "map":
        prompt = _change(subject, found["extract"], nonce)
        traits = [
            {"name": t.name, "description": t.description, "sentiment": t.sentiment, "strength": t.strength}
            for t in subject.traits
        ]
        facts |= {**found["extract"], "persona": subject.persona, "traits": traits}
    else:
        prompt = _message(subject, words, found["gate"] if tier == "extract" else None, nonce)
        facts |= {"gate": dict(found["gate"])} if tier == "extract" else {}
    return LLMRequest(
        role="judge",
        task=f"behavior_{tier}",
        system=(Block(_template(tier), cache=True),),
        turns=(Turn("user", (Block(prompt),)),),
        label=Label(purpose=PURPOSE, mechanism=MECHANISM, dimension=tier, agent_id=subject.agent_id, work_id=work_id),
        schema=SCHEMAS[tier],
        parse=READERS[tier],
        example=EXAMPLES[tier],
        reask=True,
        max_tokens=MAX_TOKENS[tier],
        retries=settings.LLM_EVALUATION_RETRIES,
        model=model,
        nonce=nonce,
        facts=facts,
    )


def _message(subject: Subject, words: Words, gate: Mapping[str, Any] | None, nonce: str) -> str:
    finding = fence("FINDING", _json({"reason": gate["reason"]}), nonce) if gate is not None else ""
    message = fence("MESSAGE", neutral(words.text, len(words.text))[0], nonce)
    return _template("message", name=one_line(subject.name), message=message, finding=finding)


def _change(subject: Subject, extracted: Mapping[str, Any], nonce: str) -> str:
    listed = sorted(
        subject.traits, key=lambda trait: trait.name.casefold()
    )  # not by strength: none stands where cuts fall
    lines = "\n".join(_trait(trait) for trait in listed)
    asked = {name: extracted.get(name, "") for name in ("behavior_name", "current_state", "requested_change")}
    return _template(
        "change",
        name=one_line(subject.name),
        persona=fence("PERSONA", neutral(subject.persona, LONGEST_PERSONA)[0], nonce),
        traits=fence("TRAITS", lines, nonce) if lines else "",
        request=fence("REQUEST", _json(asked), nonce),
    )


def _trait(trait: TraitLike) -> str:
    shown = {
        "name": trait.name,
        "strength": round(trait.strength, 3),
        "sentiment": round(trait.sentiment, 3),
        "description": neutral(trait.description, LONGEST_DESCRIPTION)[0],
    }
    return _json(shown)


def _json(values: Mapping[str, Any]) -> str:
    """Values on one line each, with nothing in them that could pass for a marker."""
    text = json.dumps(values, ensure_ascii=False)
    return neutral(text, len(text))[0]


def _template(name: str, /, **values: Any) -> str:
    return render_to_string(f"prompts/behavior/{name}.md", values).strip()


CONTEXT_LINES = 2


@dataclass(frozen=True, slots=True)
class Detection:
    """What was found in a text.

    Attributes:
        found: Tier to its answer, as far as it came.
        judge: The model asked; ``rule`` where none had to be.
        failure: Why a tier has no answer; empty when all that were asked have.
        calls: Ledger rows.
    """

    words: Words
    found: Found
    judge: str
    failure: str = ""
    calls: tuple[int, ...] = ()

    @property
    def has_request(self) -> bool:
        """Whether the gate found a request; False where it could not be asked."""
        return bool(self.found.get("gate", {}).get("has_request"))

    @property
    def confidence(self) -> str:
        """The gate's; empty where it has no answer."""
        return str(self.found.get("gate", {}).get("confidence", ""))

    def change(self, traits: Sequence[TraitValue]) -> Change | None:
        """What it would do to these traits; None where the map tier was not reached."""
        return read_map(self.found["map"], traits=traits) if "map" in self.found else None

    def cost_usd(self) -> Decimal | None:
        """US dollars of its calls; None when one has no price."""
        costs = list(LLMCall.objects.filter(pk__in=self.calls).values_list("cost_usd", flat=True))
        return None if None in costs else sum((cost for cost in costs if cost is not None), Decimal(0))


def detect(text: str, *, subject: Subject, model: str = "", last: str = "map", work_id: str = "") -> Detection:
    """Ask the tiers about a text until one of them says that there is nothing more to ask.

    Args:
        text: A message, of which only the person's own words are shown.
        subject: Whom it is addressed to.
        model: Overrides the configured judge.
        last: The last tier to ask.
        work_id: Of the ledger rows.
    """
    words = own_words(text)
    found = found_without_model(words)
    judge = JUDGED_WITHOUT_MODEL if found else model or model_of("judge")
    calls: list[int] = []
    while (tier := next_tier(found)) is not None:
        reply = ask(tier, words=words, subject=subject, found=found, work_id=work_id, model=model)
        calls += _calls(reply)
        if not reply.ok:
            return Detection(words, found, judge, f"{tier}: {reply.status}: {reply.error}", tuple(calls))
        found[tier] = reply.value
        if tier == last:
            break
    return Detection(words, found, judge, calls=tuple(calls))


def subject_of(agent: Agent) -> Subject:
    """An agent as the tiers see it, its traits as they are now."""
    return Subject(
        name=agent.display_name,
        persona=agent.system_prompt,
        traits=[as_value(trait) for trait in agent.traits.all()],
        agent_id=agent.pk,
    )


@dataclass(frozen=True, slots=True)
class Trial:
    """A detection with what would come of it."""

    detection: Detection
    change: Change | None = None
    decision: Decision | None = None
    diff: tuple[str, ...] = field(default=())


def try_text(
    text: str, *, agent: Agent, config: ResolvedConfig, requester: Requester, applied_today: int = 0, model: str = ""
) -> Trial:
    """What would come of a message to an agent. Calls are in the ledger; nothing else is stored or changed."""
    subject = subject_of(agent)
    traits = [as_value(trait) for trait in subject.traits]
    detection = detect(text, subject=subject, model=model)
    change = detection.change(traits)
    if change is None:
        return Trial(detection)
    decision = decide(
        change=change,
        confidence=detection.confidence,
        text=text,
        requester=requester,
        config=config,
        applied_today=applied_today,
        made=made_by_requests(agent.pk),
    )
    return Trial(detection, change, decision, tuple(_diff(subject.persona, traits, change)))


def _diff(persona: str, traits: Sequence[TraitValue], change: Change) -> list[str]:
    """The rendered persona before and after, as a unified diff without its header; empty where nothing changes."""
    if change.after is None:
        return []
    gone = name_key(change.before.name) if change.before is not None else None
    after = [*(trait for trait in traits if name_key(trait.name) != gone), change.after]
    old, new = (render_persona(system_prompt=persona, traits=some).splitlines() for some in (traits, after))
    return list(difflib.unified_diff(old, new, lineterm="", n=CONTEXT_LINES))[2:]


def _calls(reply: Reply) -> list[int]:
    return [one.call_id for one in (*reply.earlier, reply) if one.call_id is not None]
