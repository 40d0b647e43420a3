"""The three questions about a message: does it ask for a change (gate), of what (extract), and as which trait (map)? (specification 002)

The gate is shown a person's own words alone (`own_words`); the others also what was said before and what the person quotes, only for what
"that" refers to (`context_of`). What an earlier tier answered is data to the later ones. Answers are stored as they arrive: `next_tier`
says from them alone what is to be asked next. `try_text` asks all of them and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any, Literal, get_args

import sentry_sdk
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q
from pydantic import BaseModel, Field

from agents.kit.llm import Block, InvalidAnswer, Label, LLMRequest, Reply, Turn, complete
from agents.kit.llm.endpoints import model_of
from agents.kit.models import LLMCall
from agents.kit.text.fences import fence, indented, new_nonce, one_line, render_prompt, safe_and_cut
from agents.models import Agent, Message
from agents.personas.persona import TraitLike, TraitValue
from correction.behavior.own_words import OwnWords, own_words
from correction.behavior.policy import (
    Decision,
    Requester,
    count_applied_today,
    count_traits_made,
    decide,
    requester_of,
    why_not_heard,
)
from correction.behavior.scope import PERSONA_KEY, scope_for, traits_in, user_key
from correction.behavior.trait_change import UNSURE, MapAnswer, Operation, as_value, read_map
from correction.config.settings import ResolvedConfig, Scope

Tier = Literal["gate", "extract", "map"]
TIERS: tuple[Tier, ...] = get_args(Tier)
Answers = dict[str, dict[str, Any]]  # by tier

CONFIDENCES = ("high", "medium", "low")
PURPOSE = MECHANISM = "behavior"  # in the ledger; the tier is the dimension
JUDGED_WITHOUT_MODEL = "rule"
LONGEST_TEXT = 2_000  # characters stored of each text of an answer
LONGEST_PERSONA, LONGEST_DESCRIPTION = 60_000, 500  # characters shown
MOST_EARLIER = 4  # messages before the one that asks
LONGEST_EARLIER = 1_000  # characters shown of each of them, and of all quotations
MAX_TOKENS: Mapping[Tier, int] = {"gate": 800, "extract": 800, "map": 1_500}
FIELDS_OF_SPECIFICATION = {
    "name",
    "description",
    "sentiment",
    "strength",
    "is_new",
    "replaces_trait",
}  # of a map, by specification 002
CHECKED_BY_RULE = "the model did not say whether it fits the persona: checked by rules alone"
EXTRACT_FIELDS = ("behavior_name", "current_state", "requested_change")
GATE_WITHOUT_WORDS = {
    "has_request": False,
    "confidence": "high",
    "reason": "nothing in the message is said to this agent in its author's own words",
}


def _schema(properties: Mapping[str, Any], *, may_be_empty: bool = False) -> dict[str, Any]:
    required = [] if may_be_empty else list(properties)
    return {"type": "object", "properties": dict(properties), "required": required, "additionalProperties": False}


_TEXT, _BOOLEAN = {"type": "string"}, {"type": "boolean"}
SCHEMAS: Mapping[str, dict[str, Any]] = {
    "gate": _schema(
        {
            "has_request": _BOOLEAN,
            "confidence": {"type": "string", "enum": list(CONFIDENCES)},
            "reason": _TEXT,
        }
    ),
    "extract": _schema(dict.fromkeys(EXTRACT_FIELDS, _TEXT)),
    "map": _schema(
        {
            "name": _TEXT,
            "description": _TEXT,
            "sentiment": {"type": "number", "enum": [round(step / 10 - 1, 1) for step in range(21)]},
            "strength": {"type": "number", "enum": [round(step / 20, 2) for step in range(21)]},
            "is_new": _BOOLEAN,
            "replaces_trait": {"anyOf": [_TEXT, {"type": "null"}]},
            "contradicts_persona": _BOOLEAN,
            "contradiction": _TEXT,
            "touches": {"type": "array", "items": _TEXT},
        },
        may_be_empty=True,  # where nothing is to be changed
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
    """Return ``has_request``, ``confidence`` (one of `CONFIDENCES`) and ``reason`` of the gate's answer.

    Another confidence is read as low, and a ``warning`` says so.

    Raises:
        InvalidAnswer: It is no object, or does not say true or false.
    """
    fields = _object_fields(data)
    has_request = fields.get("has_request")
    if not isinstance(has_request, bool):
        raise InvalidAnswer(f"has_request: expected true or false, got {has_request!r:.40}")
    answer = {"has_request": has_request, "confidence": "low", "reason": _one_line_text(fields.get("reason"))}
    confidence = fields.get("confidence")
    if isinstance(confidence, str) and confidence.strip().casefold() in CONFIDENCES:
        answer["confidence"] = confidence.strip().casefold()
    else:
        answer["warning"] = f"confidence {confidence!r:.40} is none of {', '.join(CONFIDENCES)}; read as low"
    return answer


def read_extract(data: Any) -> dict[str, Any]:
    """Return ``behavior_name`` (empty: there is no behaviour after all), ``current_state`` and ``requested_change``.

    An empty object, and a name that is null, say that there is none. Texts are on one line, of at most 2,000 characters.

    Raises:
        InvalidAnswer: It is no object, or has fields but no name as text or null.
    """
    fields = _object_fields(data)
    is_null = "behavior_name" in fields and fields["behavior_name"] is None
    if fields and not is_null and not isinstance(fields.get("behavior_name"), str):
        raise InvalidAnswer(f"behavior_name: expected a text, got {fields.get('behavior_name', 'none')!r:.40}")
    return {name: _one_line_text(fields.get(name)) for name in EXTRACT_FIELDS}


def read_map_answer(data: Any) -> dict[str, Any]:
    """Return the trait as the model would have it; empty when nothing is to be changed. Numbers are not checked for their range.

    An answer of exactly the six fields of the specification says nothing against the persona: only the rules check that then, and a
    ``warning`` says so. Any other that leaves ``contradicts_persona`` open counts as one that contradicts.

    Raises:
        InvalidAnswer: It is no object, or names no trait.
        ValidationError: A field that decides the change is not of its type.
    """
    fields = _object_fields(data)
    is_without_name = isinstance(fields.get("name"), str) and not fields["name"].strip()
    if not fields or is_without_name:
        return {}
    if fields.get("name") is None:
        raise InvalidAnswer("name: missing")
    map_answer = MapAnswer.model_validate(fields)
    is_of_specification = fields.keys() == FIELDS_OF_SPECIFICATION
    is_unsure = not is_of_specification and not isinstance(fields.get("contradicts_persona"), bool)
    contradiction = map_answer.contradiction
    if is_unsure and not contradiction:
        contradiction = UNSURE
    answer = map_answer.model_dump(exclude_none=True)
    answer["name"] = _one_line_text(map_answer.name)
    answer["description"] = _one_line_text(map_answer.description)
    answer["replaces_trait"] = _one_line_text(map_answer.replaces_trait) or None
    answer["contradicts_persona"] = is_unsure or map_answer.contradicts_persona
    answer["contradiction"] = _one_line_text(contradiction)
    if is_of_specification:
        answer["warning"] = CHECKED_BY_RULE
    return answer


READERS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "gate": read_gate,
    "extract": read_extract,
    "map": read_map_answer,
}


def _object_fields(data: Any) -> Mapping[str, Any]:
    """Return the fields of a JSON object.

    Raises:
        InvalidAnswer: It is none.
    """
    if not isinstance(data, Mapping):
        raise InvalidAnswer(f"expected a JSON object, got {type(data).__name__}")
    return data


def _one_line_text(value: object) -> str:
    """Return a text on one line, cut visibly where it is too long; empty for what is no text."""
    if not isinstance(value, str):
        return ""
    line = " ".join(value.split())
    return line if len(line) <= LONGEST_TEXT else line[: LONGEST_TEXT - 1] + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whom the message is addressed to. Values, no rows.

    Attributes:
        persona: The system prompt, without traits.
        traits: As they are now; only the map tier is shown them and the persona.
    """

    name: str
    persona: str
    traits: Sequence[TraitLike] = ()
    agent_id: int | None = None


def subject_of(agent: Agent, traits: Sequence[TraitValue] | None = None) -> Subject:
    """Return an agent as the tiers see it.

    Args:
        traits: As they hold where the request does; default the agent's own.
    """
    if traits is None:
        traits = [as_value(trait) for trait in agent.traits.all()]
    return Subject(name=agent.display_name, persona=agent.system_prompt, traits=traits, agent_id=agent.pk)


def context_of(message: Message, agent: Agent, config: ResolvedConfig) -> tuple[str, ...]:
    """Return the messages before a message as ``name: text``, oldest first: the last four of its channel, or of its thread.

    The message that it replies to is always among those of a thread, as a fifth where it would be left out.

    Words of people who may not ask for a change themselves are left out, so that none of them enters the persona by a "do that".
    """
    earlier = Message.objects.filter(
        channel=message.channel_id, position__lt=message.position, synthetic=message.synthetic
    )
    earlier = earlier.select_related("agent", "user", "channel").order_by("-position")
    if message.parent_id is None:
        rows = list(earlier[:MOST_EARLIER])
    else:
        rows = list(earlier.filter(Q(pk=message.parent_id) | Q(parent_id=message.parent_id))[:MOST_EARLIER])
        if all(row.pk != message.parent_id for row in rows):
            rows += earlier.filter(pk=message.parent_id)
    lines = []
    for row in reversed(rows):
        if row.agent_id is None and why_not_heard(requester_of(row), config):
            continue
        character = " (the character)" if row.agent_id == agent.pk else ""
        lines.append(f"{one_line(row.author_name)}{character}: {row.text}")
    return tuple(lines)


def answers_without_model(words: OwnWords) -> Answers:
    """Return the gate's answer to a message of signs, emoji or quotations alone, which asks for nothing; else no answer."""
    return {} if words.have_letters else {"gate": dict(GATE_WITHOUT_WORDS)}


def next_tier(answers: Mapping[str, Any]) -> Tier | None:
    """Return the question to ask next, from the answers so far; None when there is nothing more to ask.

    That is where no change is asked for, no behaviour could be named, or all three are answered; an answer of None is still to come.
    """
    if answers.get("gate") is None:
        return "gate"
    if not answers["gate"]["has_request"]:
        return None
    if answers.get("extract") is None:
        return "extract"
    if not answers["extract"]["behavior_name"] or answers.get("map") is not None:
        return None
    return "map"


def warnings_about(words: OwnWords, answers: Mapping[str, Any]) -> list[str]:
    """Return sentences for people: quotations were left out, the message was cut, and what was odd about the answers; empty for nothing."""
    warnings = []
    if words.quoted:
        warnings.append(f"{words.quoted:,} characters of quoted text ask for nothing: another author wrote them")
    if words.cut:
        warnings.append(f"{words.cut:,} characters in the middle of the message were not read")
    for tier in ("gate", "map"):
        answer = answers.get(tier) or {}
        if answer.get("warning"):
            warnings.append(str(answer["warning"]))
    return warnings


def ask(
    tier: Tier,
    *,
    words: OwnWords,
    subject: Subject,
    answers: Mapping[str, Any],
    context: Sequence[str] = (),
    work_id: str = "",
    model: str = "",
    deadline: float | None = None,
) -> Reply:
    """Ask one question; the reply's `value` is the answer to store.

    Args:
        answers: Those of the tiers before, by tier.
        context: What was said before the message (`context_of`).
        model: Empty: the configured judge.
        deadline: Seconds, where a person waits; None: as long as a call of an evaluation. Retries are those of evaluations.

    Returns:
        Also where the call failed: `ok` is false then, and there is no `value`.
    """
    request = tier_request(
        tier, words=words, subject=subject, answers=answers, context=context, work_id=work_id, model=model
    )
    with sentry_sdk.start_span(op="correction.behavior", name=tier) as span:
        reply = complete(request, deadline=deadline or settings.LLM_EVALUATION_DEADLINE)
        span.set_data("status", str(reply.status))
        if reply.ok and tier == "gate":
            span.set_data("has_request", reply.value["has_request"])
    return reply


def tier_request(
    tier: Tier,
    *,
    words: OwnWords,
    subject: Subject,
    answers: Mapping[str, Any],
    context: Sequence[str] = (),
    work_id: str = "",
    model: str = "",
    nonce: str = "",
) -> LLMRequest:
    """Return the question as it is sent. Its `facts` are for the offline judge: the words in every tier, no context, which it cannot read.

    Args:
        answers: Those of the tiers before, by tier: extract needs that of the gate, map that of extract.
        context: What was said before; the gate is not shown it, nor what the message quotes.
        model: Empty: the configured judge.
        nonce: Marks what is data in the prompt; empty: a new one.
    """
    nonce = nonce or new_nonce()
    earlier = ""
    if tier != "gate" and (context or words.quotes):
        earlier = fence("EARLIER", _earlier_entries(context, words), nonce)
    facts: dict[str, Any] = {"name": subject.name, "text": words.text}
    if tier == "map":
        prompt = _map_prompt(subject, answers["extract"], earlier, nonce)
        facts |= answers["extract"]
        facts["persona"] = subject.persona
        facts["traits"] = [asdict(as_value(trait)) for trait in subject.traits]
    elif tier == "extract":
        finding = fence("FINDING", _fenced_json({"reason": answers["gate"]["reason"]}), nonce)
        prompt = _message_prompt(subject, words, finding, earlier, nonce)
        facts["gate"] = dict(answers["gate"])
    else:
        prompt = _message_prompt(subject, words, "", earlier, nonce)
    return LLMRequest(
        role="judge",
        task=f"behavior_{tier}",
        system=(Block(_template(tier), cache=True),),
        turns=(Turn("user", (Block(prompt),)),),
        label=Label(purpose=PURPOSE, mechanism=MECHANISM, dimension=tier, agent_id=subject.agent_id, work_id=work_id),
        schema=SCHEMAS[tier],
        parse=READERS[tier],
        example=EXAMPLES[tier],
        reask=True,  # once, where the answer cannot be read
        max_tokens=MAX_TOKENS[tier],
        retries=settings.LLM_EVALUATION_RETRIES,
        model=model,
        nonce=nonce,
        facts=facts,
    )


def _message_prompt(subject: Subject, words: OwnWords, finding: str, earlier: str, nonce: str) -> str:
    """Return what the gate and the extract tier are asked about a message."""
    message = fence("MESSAGE", safe_and_cut(words.text, len(words.text)), nonce)
    return _template("message", name=one_line(subject.name), message=message, finding=finding, earlier=earlier)


def _map_prompt(subject: Subject, extracted: Mapping[str, Any], earlier: str, nonce: str) -> str:
    """Return what the map tier is asked: the persona (at most 60,000 characters), its traits, the request and what was said earlier."""
    # Sorted by name: where a long list is cut, it must not always be the weak traits that are missing.
    traits = sorted(subject.traits, key=lambda trait: trait.name.casefold())
    trait_lines = "\n".join(_trait_json(trait) for trait in traits)
    request = {name: extracted.get(name, "") for name in EXTRACT_FIELDS}
    return _template(
        "change",
        name=one_line(subject.name),
        persona=fence("PERSONA", safe_and_cut(subject.persona, LONGEST_PERSONA), nonce),
        traits=fence("TRAITS", trait_lines, nonce) if trait_lines else "",
        request=fence("REQUEST", _fenced_json(request), nonce),
        earlier=earlier,
    )


def _earlier_entries(context: Sequence[str], words: OwnWords) -> str:
    """Return the messages before, and what the message quotes, as numbered entries that cannot pass for each other."""
    entries = list(context)
    if words.quotes:
        entries.append(f"[quoted in the message] {' '.join(words.quotes)}")
    lines = [f"{number}. {indented(entry, LONGEST_EARLIER)}" for number, entry in enumerate(entries, 1)]
    return "\n".join(lines)


def _trait_json(trait: TraitLike) -> str:
    """Return a trait as one line of JSON, its description cut at 500 characters, with nothing that could pass for a fence's marker."""
    return _fenced_json(
        {
            "name": trait.name,
            "strength": round(trait.strength, 3),
            "sentiment": round(trait.sentiment, 3),
            "description": safe_and_cut(trait.description, LONGEST_DESCRIPTION),
        }
    )


def _fenced_json(values: Mapping[str, Any]) -> str:
    """Return values as JSON, with nothing in them that could pass for the marker of a fence."""
    text = json.dumps(values, ensure_ascii=False)
    return safe_and_cut(text, len(text))


def _template(name: str, /, **values: Any) -> str:
    return render_prompt(f"behavior/{name}", **values)


@dataclass(slots=True)
class Detection:
    """The answers of the tiers about a message.

    Attributes:
        failure: Why a tier has no answer; empty when all that were asked have.
        calls: Keys of the ledger's rows.
    """

    answers: Answers
    failure: str = ""
    calls: list[int] = field(default_factory=list)


def detect(
    words: OwnWords, subject: Subject, *, context: Sequence[str] = (), model: str = "", work_id: str = ""
) -> Detection:
    """Ask the tiers about a message, in their order, until there is nothing more to ask, or a call fails (`failure` says why).

    A message without a letter is answered without a call. Nothing is stored but the calls, in the ledger.
    """
    detection = Detection(answers_without_model(words))
    while (tier := next_tier(detection.answers)) is not None:
        reply = ask(
            tier,
            words=words,
            subject=subject,
            answers=detection.answers,
            context=context,
            work_id=work_id,
            model=model,
        )
        for call in (*reply.earlier, reply):
            if call.call_id is not None:
                detection.calls.append(call.call_id)
        if not reply.ok:
            detection.failure = f"{tier}: {reply.status}: {reply.error}"
            break
        detection.answers[tier] = reply.value
    return detection


class Trial(BaseModel):
    """The outcome that a message would have: the tiers' answers (null = not asked), the trait before and after, the decision."""

    agent: str
    judge: str = Field(description="the model asked; rule where none had to be")
    has_request: bool = False
    confidence: str | None = None
    gate: dict[str, Any] | None = None
    extract: dict[str, Any] | None = None
    map: dict[str, Any] | None = None
    operation: Operation = "none"
    scope: str = Field(
        description="where it would hold: persona, channel or person (who may edit the persona; else behavior_scope)"
    )
    trait_before: TraitValue | None = None
    trait_after: TraitValue | None = None
    decision: Decision | None = None
    warnings: list[str]
    failure: str
    calls: int
    cost_usd: float | None = Field(description="null = a call has no price")


def try_text(
    text: str,
    *,
    agent: Agent,
    config: ResolvedConfig,
    requester: Requester,
    writer: User | None = None,
    context: Sequence[str] = (),
    model: str = "",
) -> Trial:
    """Return the outcome that a message to an agent would have. Calls are in the ledger; nothing else is stored or changed.

    Args:
        requester: Who would write it.
        writer: Their account, on which depends where it would hold; None: a person without one, who asks for the first time.
        context: What was said before it, oldest first, as ``name: text``; the last four count.
        model: Empty: the configured judge.

    Returns:
        Without decision and trait where the map tier was not asked, or a call failed (`failure`).
    """
    scope = scope_for(writer, config)
    key = user_key(writer.pk) if writer is not None and scope == Scope.PERSON else PERSONA_KEY
    is_first = scope != Scope.PERSONA and key == PERSONA_KEY  # in a channel, or of a person, that is not known
    subject = subject_of(agent, traits_in(agent, key))
    words = own_words(text)
    context = context[-MOST_EARLIER:]
    detection = detect(words, subject, context=context, model=model)
    gate = detection.answers.get("gate", {})
    trial = Trial(
        agent=agent.slug,
        judge=JUDGED_WITHOUT_MODEL,
        has_request=bool(gate.get("has_request")),
        confidence=gate.get("confidence"),
        scope=scope,
        **detection.answers,
        warnings=warnings_about(words, detection.answers),
        failure=detection.failure,
        calls=len(detection.calls),
        cost_usd=_cost_of(detection.calls),
    )
    if detection.calls:
        trial.judge = model or model_of("judge")
    if trial.map is None:
        return trial
    change = read_map(trial.map, traits=subject.traits)
    trial.operation = change.operation
    trial.trait_before = change.before
    trial.trait_after = change.after
    trial.warnings += change.warnings
    trial.decision = decide(
        change=change,
        confidence=trial.confidence or "",
        text=text,
        requester=requester,
        config=config,
        applied_today=0 if is_first else count_applied_today(agent.pk, key),
        made=0 if is_first else count_traits_made(agent.pk, key),
        context=context,
    )
    return trial


def _cost_of(calls: Sequence[int]) -> float | None:
    """Return what these calls cost, in US dollars; None where one has no price."""
    total = Decimal(0)
    for cost in LLMCall.objects.filter(pk__in=calls).values_list("cost_usd", flat=True):
        if cost is None:
            return None
        total += cost
    return float(total)
