"""The three questions about a message: does it ask for a change (gate), of what (extract), and as which trait (map)? (specification 002)

The gate is shown a person's own words alone (`own_words`); the others also what was said before and what the person quotes, only for what
"that" refers to (`context_of`). What an earlier tier answered is data to the later ones. Answers are stored as they arrive: `next_tier`
says from them alone what is to be asked next. `try_text` asks all of them and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import sentry_sdk
from django.conf import settings
from django.db.models import Q
from pydantic import BaseModel, Field

from agents.kit.llm import Block, InvalidAnswer, Label, LLMRequest, Reply, Turn, complete
from agents.kit.llm.endpoints import model_of
from agents.kit.models import LLMCall
from agents.kit.text.fences import fence, indented, neutral, new_nonce, one_line, render_prompt
from agents.models import Agent, Message
from agents.personas.persona import TraitLike, TraitValue
from correction.behavior.own_words import OwnWords, own_words
from correction.behavior.policy import Decision, Requester, count_traits_made, decide, requester_of, why_not_heard
from correction.behavior.trait_change import UNSURE, MapAnswer, Operation, as_value, read_map
from correction.config.settings import ResolvedConfig

Tier = Literal["gate", "extract", "map"]
TIERS: tuple[Tier, ...] = get_args(Tier)
Answers = dict[str, dict[str, Any]]  # by tier

CONFIDENCES = ("high", "medium", "low")
PURPOSE = MECHANISM = "behavior"  # in the ledger; the tier is the dimension
JUDGED_WITHOUT_MODEL = "rule"
LONGEST_TEXT = 2_000  # characters stored of each text of an answer
LONGEST_PERSONA, LONGEST_DESCRIPTION = 60_000, 500  # characters shown
MOST_EARLIER, LONGEST_EARLIER = (
    4,
    1_000,
)  # messages before the one that asks, and characters shown of each and of all quotations
MAX_TOKENS: Mapping[Tier, int] = {"gate": 800, "extract": 800, "map": 1_500}
SPECIFIED = {
    "name",
    "description",
    "sentiment",
    "strength",
    "is_new",
    "replaces_trait",
}  # of a map, by specification 002
CHECKED_BY_RULE = "the model did not say whether it fits the persona: checked by rules alone"
EXTRACTED = ("behavior_name", "current_state", "requested_change")
NOTHING_SAID = {
    "has_request": False,
    "confidence": "high",
    "reason": "nothing in the message is said to this agent in its author's own words",
}


def _schema(**properties: Any) -> dict[str, Any]:
    required = [] if "is_new" in properties else list(properties)  # an empty map says that nothing is to be changed
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_TEXT, _BOOLEAN = {"type": "string"}, {"type": "boolean"}
SCHEMAS: Mapping[str, dict[str, Any]] = {
    "gate": _schema(has_request=_BOOLEAN, confidence={"type": "string", "enum": list(CONFIDENCES)}, reason=_TEXT),
    "extract": _schema(**dict.fromkeys(EXTRACTED, _TEXT)),
    "map": _schema(
        name=_TEXT,
        description=_TEXT,
        sentiment={"type": "number", "enum": [round(step / 10 - 1, 1) for step in range(21)]},
        strength={"type": "number", "enum": [round(step / 20, 2) for step in range(21)]},
        is_new=_BOOLEAN,
        replaces_trait={"anyOf": [_TEXT, {"type": "null"}]},
        contradicts_persona=_BOOLEAN,
        contradiction=_TEXT,
        touches={"type": "array", "items": _TEXT},
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
    fields = _fields(data)
    asks, said = fields.get("has_request"), fields.get("confidence")
    if not isinstance(asks, bool):
        raise InvalidAnswer(f"has_request: expected true or false, got {asks!r:.40}")
    level = said.strip().casefold() if isinstance(said, str) else ""
    known = level in CONFIDENCES
    answer = {"has_request": asks, "confidence": level if known else "low", "reason": _short(fields.get("reason"))}
    if not known:
        answer["warning"] = f"confidence {said!r:.40} is none of {', '.join(CONFIDENCES)}; read as low"
    return answer


def read_extract(data: Any) -> dict[str, Any]:
    """``behavior_name`` (empty: there is no behaviour after all), ``current_state`` and ``requested_change``.

    Raises:
        InvalidAnswer: It names no behaviour and does not say that there is none.
    """
    fields = _fields(data)
    if fields and not isinstance(fields.get("behavior_name", 0), str | None):
        raise InvalidAnswer(f"behavior_name: expected a text, got {fields.get('behavior_name', 'none')!r:.40}")
    return {name: _short(fields.get(name)) for name in EXTRACTED}


def read_map_answer(data: Any) -> dict[str, Any]:
    """The trait as the model would have it; empty when nothing is to be changed. Its numbers are not yet checked for their range.

    An answer of exactly the six fields of the specification says nothing against the persona: only the rules check that then.

    Raises:
        InvalidAnswer: It is no object, or names no trait.
        ValidationError: A field that decides what becomes of the trait is not of its type.
    """
    fields = _fields(data)
    if not fields or (isinstance(fields.get("name"), str) and not fields["name"].strip()):
        return {}
    if fields.get("name") is None:
        raise InvalidAnswer("name: missing")
    read = MapAnswer.model_validate(fields)
    is_bare = fields.keys() == SPECIFIED
    unsure = not is_bare and not isinstance(fields.get("contradicts_persona"), bool)
    texts = {"name": read.name, "description": read.description, "replaces_trait": read.replaces_trait}
    texts["contradiction"] = read.contradiction or (UNSURE if unsure else "")
    answer = read.model_dump(exclude_none=True) | {name: _short(text) for name, text in texts.items()}
    contradicts = unsure or read.contradicts_persona
    answer |= {"replaces_trait": answer["replaces_trait"] or None, "contradicts_persona": contradicts}
    return answer | ({"warning": CHECKED_BY_RULE} if is_bare else {})


READERS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "gate": read_gate,
    "extract": read_extract,
    "map": read_map_answer,
}


def _fields(data: Any) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise InvalidAnswer(f"expected a JSON object, got {type(data).__name__}")
    return data


def _short(value: object) -> str:
    """A text on one line; empty where there is none. What is too long is cut, visibly."""
    line = " ".join(value.split()) if isinstance(value, str) else ""
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
    """An agent as the tiers see it, its traits as they are now, or as they hold where the request does."""
    traits = [as_value(trait) for trait in agent.traits.all()] if traits is None else traits
    return Subject(name=agent.display_name, persona=agent.system_prompt, traits=traits, agent_id=agent.pk)


def context_of(message: Message, agent: Agent, config: ResolvedConfig) -> tuple[str, ...]:
    """What was said before a message, oldest first: the last four messages of its channel, or of its thread with the one it replies to.

    OwnWords of people who may not ask for a change themselves are left out, so that none of them enters the persona by a "do that".
    """
    said = Message.objects.filter(
        channel=message.channel_id, position__lt=message.position, synthetic=message.synthetic
    )
    thread = Q(pk=message.parent_id) | Q(parent_id=message.parent_id)
    said = said.select_related("agent", "user", "channel").order_by("-position")
    rows = list((said.filter(thread) if message.parent_id is not None else said)[:MOST_EARLIER])
    if message.parent_id is not None and all(row.pk != message.parent_id for row in rows):
        rows += said.filter(pk=message.parent_id)
    return tuple(
        f"{one_line(row.author_name)}{' (the character)' if row.agent_id == agent.pk else ''}: {row.text}"
        for row in reversed(rows)
        if row.agent_id is not None or not why_not_heard(requester_of(row), config)
    )


def answers_without_model(words: OwnWords) -> Answers:
    """What needs no model to be known: a message of signs, emoji or quotations alone asks for nothing."""
    return {} if words.have_letters else {"gate": dict(NOTHING_SAID)}


def next_tier(answers: Mapping[str, Any]) -> Tier | None:
    """The question to ask next, from the answers so far; None when there is nothing more to ask."""
    if answers.get("gate") is None:
        return "gate"
    if not answers["gate"]["has_request"]:
        return None
    if answers.get("extract") is None:
        return "extract"
    return "map" if answers["extract"]["behavior_name"] and answers.get("map") is None else None


def warnings_about(words: OwnWords, answers: Mapping[str, Any]) -> list[str]:
    """What was odd about the message or the answers, for people."""
    warnings = []
    if words.quoted:
        warnings.append(f"{words.quoted:,} characters of quoted text ask for nothing: another author wrote them")
    if words.cut:
        warnings.append(f"{words.cut:,} characters in the middle of the message were not read")
    for tier in ("gate", "map"):
        if warning := (answers.get(tier) or {}).get("warning"):
            warnings.append(str(warning))
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
        context: What was said before the message (`context_of`).
        deadline: Seconds, where a person waits; else as long as a call of an evaluation. Retries are those of evaluations.
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
    """The question as it is sent. `facts` are for the offline detector: in every tier the words, and no context, which it cannot read."""
    nonce = nonce or new_nonce()
    name = one_line(subject.name)
    earlier = fence("EARLIER", _earlier(context, words), nonce) if tier != "gate" and (context or words.quotes) else ""
    facts: dict[str, Any] = {"name": subject.name, "text": words.text}
    if tier == "map":
        traits = sorted(subject.traits, key=lambda trait: trait.name.casefold())  # no order in which cuts hit the weak
        lines = "\n".join(map(_trait, traits))
        prompt = _template(
            "change",
            name=name,
            persona=fence("PERSONA", neutral(subject.persona, LONGEST_PERSONA)[0], nonce),
            traits=fence("TRAITS", lines, nonce) if lines else "",
            request=fence("REQUEST", _json({name: answers["extract"].get(name, "") for name in EXTRACTED}), nonce),
            earlier=earlier,
        )
        facts |= {**answers["extract"], "persona": subject.persona}
        facts["traits"] = [asdict(as_value(trait)) for trait in subject.traits]
    else:
        gate = dict(answers["gate"]) if tier == "extract" else None
        finding = fence("FINDING", _json({"reason": gate["reason"]}), nonce) if gate else ""
        message = fence("MESSAGE", neutral(words.text, len(words.text))[0], nonce)
        prompt = _template("message", name=name, message=message, finding=finding, earlier=earlier)
        facts |= {"gate": gate} if gate else {}
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


def _earlier(context: Sequence[str], words: OwnWords) -> str:
    """What was said before, and what the message quotes, as entries that cannot pass for each other."""
    quoted = [f"[quoted in the message] {' '.join(words.quotes)}"] if words.quotes else []
    return "\n".join(f"{n}. {indented(entry, LONGEST_EARLIER)}" for n, entry in enumerate((*context, *quoted), 1))


def _trait(trait: TraitLike) -> str:
    return _json(
        {
            "name": trait.name,
            "strength": round(trait.strength, 3),
            "sentiment": round(trait.sentiment, 3),
            "description": neutral(trait.description, LONGEST_DESCRIPTION)[0],
        }
    )


def _json(values: Mapping[str, Any]) -> str:
    """Values on one line each, with nothing in them that could pass for a marker."""
    text = json.dumps(values, ensure_ascii=False)
    return neutral(text, len(text))[0]


def _template(name: str, /, **values: Any) -> str:
    return render_prompt(f"behavior/{name}", **values)


def detect(
    words: OwnWords, subject: Subject, *, context: Sequence[str] = (), model: str = "", work_id: str = ""
) -> tuple[Answers, str, list[int]]:
    """Ask the tiers about a message until one of them says that there is nothing more to ask.

    Returns:
        The answers by tier, why a tier has none (empty when all that were asked have), and the keys of the ledger's rows.
    """
    answers, failure, calls = answers_without_model(words), "", list[int]()
    while not failure and (tier := next_tier(answers)) is not None:
        reply = ask(tier, words=words, subject=subject, answers=answers, context=context, work_id=work_id, model=model)
        calls += [one.call_id for one in (*reply.earlier, reply) if one.call_id is not None]
        if reply.ok:
            answers[tier] = reply.value
        else:
            failure = f"{tier}: {reply.status}: {reply.error}"
    return answers, failure, calls


class Trial(BaseModel):
    """What would come of a message: the tiers' answers (null = not asked), the trait before and after, and what would be decided."""

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
    scope: str,
    applied_today: int = 0,
    context: Sequence[str] = (),
    model: str = "",
) -> Trial:
    """What would come of a message to an agent. Calls are in the ledger; nothing else is stored or changed.

    Args:
        scope: Where it would hold (`scope.scope_for`).
        context: What was said before it, oldest first, as ``name: text``; the last four count.
    """
    subject, words, context = subject_of(agent), own_words(text), context[-MOST_EARLIER:]
    traits = [as_value(trait) for trait in subject.traits]
    answers, failure, calls = detect(words, subject, context=context, model=model)
    gate = answers.get("gate", {})
    costs = list(LLMCall.objects.filter(pk__in=calls).values_list("cost_usd", flat=True))
    trial = Trial(
        agent=agent.slug,
        judge=model or model_of("judge") if calls else JUDGED_WITHOUT_MODEL,
        has_request=bool(gate.get("has_request")),
        confidence=gate.get("confidence"),
        scope=scope,
        **answers,
        warnings=warnings_about(words, answers),
        failure=failure,
        calls=len(calls),
        cost_usd=None if None in costs else float(sum(cost for cost in costs if cost is not None)),
    )
    if trial.map is None:
        return trial
    change = read_map(trial.map, traits=traits)
    decision = decide(
        change=change,
        confidence=trial.confidence or "",
        text=text,
        requester=requester,
        config=config,
        applied_today=applied_today,
        made=count_traits_made(agent.pk),
        context=context,
    )
    return trial.model_copy(
        update={
            "operation": change.operation,
            "trait_before": change.before,
            "trait_after": change.after,
            "decision": decision,
            "warnings": [*trial.warnings, *change.warnings],
        }
    )
