"""Read a person's message before it is answered: in which register, how risky a wrong answer is, what is missing, what is new to remember.

One structured call asks all enabled calibrators of a swarm at once (`calibrate`). Without a model, and where the call fails, rules answer
(`by_rules`): a heuristic that says only what it sees, and leaves the rest as it was. The answer is typed: of what a message says, only
values of these types get any further, and entries with the words they rest on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agents.kit import llm
from agents.kit.llm.requests import object_schema
from agents.kit.text.fences import fence, indented, neutral, one_line, render_prompt
from agents.kit.text.tokens import split_sentences
from agents.models import Agent, Message
from agents.swarm.intents import COMMANDS, intent_of
from agents.swarm.models import DialogState, SwarmPhase
from agents.swarm.state import Entry, entries, quoted

MAX_TOKENS = 1_200
TEXT_CHARACTERS = 300  # of a text in the answer
MOST_ENTRIES = 8  # of a kind in one answer
MESSAGE_CHARACTERS = 4_000
UNCERTAIN = 0.15  # above it, numbers are echoed once

Tone = Literal["calm", "friendly", "direct"]
Formality = Literal["casual", "neutral", "formal"]
Jargon = Literal["none", "some", "technical"]
Expertise = Literal["novice", "intermediate", "advanced"]
Length = Literal["brief", "standard"]
Units = Literal["imperial", "metric"]
LearningStyle = Literal["visual", "step-by-step", "conceptual"]

REGISTER: Mapping[str, Any] = {
    **{"tone": Tone, "formality": Formality, "jargon": Jargon, "expertise": Expertise},
    **{"length": Length, "units": Units, "learning_style": LearningStyle},
}
PREFERENCES: Mapping[str, tuple[str, ...]] = {  # what a person may prefer lastingly
    name: get_args(REGISTER[name]) for name in ("tone", "units", "length", "learning_style")
}


# -- the answer
def _one_of(kind: Any) -> BeforeValidator:
    """Any other value counts as none: a calibrator that is odd about the tone may be right about the rest."""
    allowed = get_args(kind)
    return BeforeValidator(lambda value: value if isinstance(value, str) and value in allowed else None)


def _short(value: object) -> str:
    """A text on one line; empty where there is none."""
    line = " ".join(value.split()) if isinstance(value, str) else ""
    return line if len(line) <= TEXT_CHARACTERS else line[: TEXT_CHARACTERS - 1] + "…"


def _share(value: object) -> float:
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
    return min(1.0, max(0.0, number))


def _valid(kind: Callable[[Any], BaseModel]) -> BeforeValidator:
    def read(values: object) -> list[BaseModel]:
        """Those that are valid; no more than `MOST_ENTRIES`."""
        valid: list[BaseModel] = []
        for value in values if isinstance(values, list) else []:
            try:
                valid.append(kind(value))
            except (ValidationError, TypeError):
                continue
        return valid[:MOST_ENTRIES]

    return BeforeValidator(read)


def _names(value: object) -> list[str]:
    texts = [_short(one) for one in value] if isinstance(value, list | tuple) else []
    return [text for text in texts if text][:MOST_ENTRIES]


def _entry(value: Any) -> Entry:
    """An entry of an answer; none can say that a person made it."""
    if isinstance(value, Entry):
        return value
    fields = value if isinstance(value, Mapping) else {}
    quoted = {"text": fields.get("quote"), "position": fields.get("position"), "quote": fields.get("quote")}
    by = "rule" if fields.get("by") == "rule" else "model"
    return Entry.model_validate({**quoted, "pinned": fields.get("pinned") is True, "by": by})


Text = Annotated[str, BeforeValidator(_short)]
Share = Annotated[float, BeforeValidator(_share)]
Entries = Annotated[list[Entry], _valid(_entry)]


class Preference(BaseModel):
    """How a person wants to be answered from now on, with the words in which they say so."""

    name: Literal["tone", "units", "length", "learning_style"]
    value: str
    position: int
    quote: Text


class Calibration(BaseModel):
    """What the calibrators say of one message. None and empty: not seen.

    Attributes:
        tone, formality, jargon, expertise, length, units, learning_style: In which register to answer.
        risk: That an answer misses what the person meant, where this would cost them something; 0 to 1.
        uncertainty: Of the numbers that matter, 0 to 1.
        missing: Information without which the request cannot be answered.
        question: The one to ask, if one is asked. `cannot`: says that without what is missing there is no answer.
        assumption: What to assume if no question is asked.
        anchor, goal: What the conversation is about, what the person wants now; at most one entry each.
        facts, decisions, preferences: New in these messages.
        heuristic: Read by rules, without a model.
    """

    model_config = ConfigDict(extra="ignore")

    tone: Annotated[Tone | None, _one_of(Tone)] = None
    formality: Annotated[Formality | None, _one_of(Formality)] = None
    jargon: Annotated[Jargon | None, _one_of(Jargon)] = None
    expertise: Annotated[Expertise | None, _one_of(Expertise)] = None
    length: Annotated[Length | None, _one_of(Length)] = None
    units: Annotated[Units | None, _one_of(Units)] = None
    learning_style: Annotated[LearningStyle | None, _one_of(LearningStyle)] = None
    risk: Share = 0.0
    uncertainty: Share = 0.0
    missing: Annotated[list[str], BeforeValidator(_names)] = Field(default_factory=list)
    question: Text = ""
    cannot: Text = ""
    assumption: Text = ""
    anchor: Entries = Field(default_factory=list)
    goal: Entries = Field(default_factory=list)
    facts: Entries = Field(default_factory=list)
    decisions: Entries = Field(default_factory=list)
    preferences: Annotated[list[Preference], _valid(Preference.model_validate)] = Field(default_factory=list)
    heuristic: bool = False


def stated_preferences(calibration: Calibration, messages: Iterable[Message]) -> dict[str, str]:
    """The preferences that a person states in these messages: known values whose quote stands in a message of a person."""
    texts = {message.position: message.text for message in messages if message.agent_id is None}
    return {
        one.name: one.value
        for one in calibration.preferences
        if one.value in PREFERENCES[one.name] and quoted(one.quote, texts.get(one.position, ""))
    }


def guidance(
    calibration: Calibration, *, preferences: Mapping[str, str] | None = None, assumption: str = "", nonce: str = ""
) -> str:
    """The calibration as plain advice for the one who answers; empty when there is none to give.

    Args:
        preferences: Of the person; they come before what this message alone suggests.
        assumption: To be stated in the answer. A model wrote it about a person's words, so it is fenced.
        nonce: Of the turn's fences.
    """
    seen = {name: getattr(calibration, name) for name in REGISTER}
    seen |= {name: value for name, value in (preferences or {}).items() if value in PREFERENCES.get(name, ())}
    return render_prompt(
        "swarm/guidance",
        **seen,
        uncertain=calibration.uncertainty > UNCERTAIN,
        assumption=fence("ASSUMPTION", neutral(_short(assumption))[0], nonce) if assumption else "",
    )


# -- asking a model
def calibrate(
    *,
    agent: Agent,
    trigger: Message,
    transcript: Sequence[Message],
    state: DialogState,
    phases: Sequence[SwarmPhase],
    deadline: float,
    nonce: str,
    run_id: int | None = None,
    model: str = "",
    temperature: float | None = None,
) -> tuple[Calibration, llm.Reply]:
    """Ask the calibrators about a message, all in one call; where that fails, rules answer.

    Args:
        trigger: The message to be answered.
        transcript: Of its channel, oldest first. Entries are made of those after `state.position`.
        phases: Enabled calibrators in their order.
        deadline: Seconds in all.
        model: Acts instead of the agent's own.

    Returns:
        The calibration, and the reply, which says what happened.
    """
    work = f"run:{run_id}" if run_id else f"message:{trigger.pk}"
    request = llm.LLMRequest(
        role="actor",
        task="swarm_calibration",
        model=model or agent.model_id,
        system=(llm.Block(_instructions(agent, phases), cache=True),),
        turns=(llm.Turn("user", (llm.Block(_material(agent, trigger, transcript, state, nonce)),)),),
        label=llm.Label(purpose="swarm", mechanism="pre", agent_id=agent.pk, run_id=run_id, work_id=work),
        schema=SCHEMA,
        parse=_read,
        temperature=temperature,
        max_tokens=MAX_TOKENS,
        nonce=nonce,
        facts={"trigger": trigger, "transcript": list(transcript), "state": state},
    )
    reply = llm.complete(request, deadline=deadline)
    if not reply.ok:
        return by_rules(trigger=trigger, transcript=transcript, state=state), reply
    answer: Calibration = reply.value
    return answer.model_copy(update={"heuristic": reply.provider == "offline"}), reply


def _read(data: Any) -> Calibration:
    """A model's answer, which must at least hold a risk.

    Raises:
        InvalidAnswer: It is something else.
    """
    risk = data.get("risk") if isinstance(data, Mapping) else None
    if isinstance(risk, bool) or not isinstance(risk, int | float):
        raise llm.InvalidAnswer(f"risk: expected a number from 0 to 1, got {risk!r:.40}")
    return Calibration.model_validate(data)


def offline(request: llm.LLMRequest) -> Mapping[str, Any]:
    """Calibrate by rules (responder for the task ``swarm_calibration``)."""
    return by_rules(**request.facts).model_dump(mode="json")


def _instructions(agent: Agent, phases: Sequence[SwarmPhase]) -> str:
    parts = [{"name": phase.name, "prompt": phase.prompt.strip()} for phase in phases]
    return render_prompt("swarm/calibration", name=one_line(agent.display_name), phases=parts, allowed=PREFERENCES)


def _known(state: DialogState) -> str:
    """What the state holds, on one line each."""
    names = {"anchor": "about", "goal": "goal", "facts": "fact", "decisions": "decision"}
    return "\n".join(
        f"{names[entry.kind]}: {neutral(_short(entry.text))[0]}"
        for entry in entries(state, *names)
        if entry.replaced_by_id is None
    )


def _material(agent: Agent, trigger: Message, transcript: Sequence[Message], state: DialogState, nonce: str) -> str:
    """The conversation, what is known of it, the question that waits, and the message, each fenced."""

    def line(message: Message) -> str:
        who = "(you)" if message.agent_id == agent.pk else one_line(message.author_name)
        return f"{message.position}. {who}: {indented(message.text, MESSAGE_CHARACTERS)}"

    earlier = [line(message) for message in transcript if message.position < trigger.position]
    known, pending = _known(state), _short(str((state.pending or {}).get("question", "")))
    return render_prompt(
        "swarm/message",
        earlier=fence("CONVERSATION", "\n".join(earlier), nonce) if earlier else "",
        known=fence("KNOWN", known, nonce) if known else "",
        pending=fence("QUESTION", neutral(pending)[0], nonce) if pending else "",
        message=fence("MESSAGE", line(trigger), nonce),
        number=trigger.position,
        since=state.position,
    )


def _choice(kind: Any) -> dict[str, Any]:
    return {"anyOf": [{"type": "string", "enum": list(get_args(kind))}, {"type": "null"}]}


_TEXT, _NUMBER, _POSITION = {"type": "string"}, {"type": "number"}, {"type": "integer"}
_ENTRIES = {
    "type": "array",
    "items": object_schema({"position": _POSITION, "quote": _TEXT, "pinned": {"type": "boolean"}}),
}
_NAME = {"type": "string", "enum": list(PREFERENCES)}
_PREFERENCE = object_schema({"name": _NAME, "value": _TEXT, "position": _POSITION, "quote": _TEXT})
SCHEMA = object_schema(
    {name: _choice(kind) for name, kind in REGISTER.items()}
    | dict.fromkeys(("risk", "uncertainty"), _NUMBER)
    | {"missing": {"type": "array", "items": _TEXT}}
    | dict.fromkeys(("question", "cannot", "assumption"), _TEXT)
    | dict.fromkeys(("anchor", "goal", "facts", "decisions"), _ENTRIES)
    | {"preferences": {"type": "array", "items": _PREFERENCE}}
)


# -- rules
def by_rules(*, trigger: Message, transcript: Sequence[Message], state: DialogState) -> Calibration:
    """What can be seen of a message without a model; nothing is claimed of what cannot, such as what else a request leaves open."""
    text = trigger.text[:MESSAGE_CHARACTERS]
    earlier = [message for message in transcript if message.position < trigger.position]
    new = [m for m in earlier if m.position > state.position and m.agent_id is None] + [trigger]
    seen: dict[str, Any] = {
        name: next((value for value, pattern in values.items() if pattern.search(text)), None)
        for name, values in _signs("register").items()
    }
    for kind in ("goal", "facts", "decisions"):
        seen[kind] = [entry for message in new for entry in _sentences(kind, message)]
    seen["goal"] = seen["goal"][-1:]
    if not entries(state, "anchor") and (first := next(iter(split_sentences(new[0].text[:MESSAGE_CHARACTERS])), "")):
        seen["anchor"] = [_said(first, new[0])]
    seen["preferences"] = [one for message in new for one in _preferences(message)]
    seen["uncertainty"] = 0.3 if _signs("sentences")["vague_number"].search(text) else 0.0
    if needs := _missing(text, [m.text[:MESSAGE_CHARACTERS] for m in earlier if m.agent_id is None], state):
        seen |= {"risk": 0.9, "missing": [need["name"] for need in needs]}
        seen |= {"question": needs[0]["question"], "cannot": needs[0]["cannot"]}
    return Calibration(**seen, heuristic=True)


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("rules.yaml").read_text(encoding="utf-8"))
    return data


@cache
def _signs(group: str) -> dict[str, Any]:
    """The patterns of a group in ``rules.yaml``, compiled."""

    def compiled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: compiled(one) for name, one in value.items()}
        return re.compile(value, re.IGNORECASE)

    signs: dict[str, Any] = compiled(_data()[group])
    return signs


@cache
def _needs() -> list[dict[str, Any]]:
    rows = _data()["required"]
    return [{**row, **{name: re.compile(row[name], re.IGNORECASE) for name in ("asks", "given")}} for row in rows]


def _missing(text: str, earlier: Sequence[str], state: DialogState) -> list[dict[str, Any]]:
    """The required information that a request lacks: of this message, or of the one whose question it should have answered."""
    pending = state.pending or {}
    facts = [fact.text for fact in entries(state, "facts") if fact.replaced_by_id is None]
    known = "\n".join([f"{pending.get('question', '')} {text}", *earlier, *facts])
    waiting = set(pending.get("missing", ()))
    if _signs("sentences")["new_request"].search(text) or intent_of(text) in COMMANDS:
        waiting = set()
    return [
        need
        for need in _needs()
        if (need["asks"].search(text) or need["name"] in waiting) and not need["given"].search(known)
    ]


def _sentences(kind: str, message: Message) -> list[Entry]:
    """The sentences of a person that state a goal, fact or decision."""
    signs = _signs("sentences")
    stated = (kind, "goal", "decisions") if kind == "facts" else (kind,)
    stating = []
    for sentence in split_sentences(message.text[:MESSAGE_CHARACTERS]):
        if len(sentence) <= TEXT_CHARACTERS and "?" not in sentence:
            first = next((name for name in reversed(stated) if signs[name].search(sentence)), "")
            if first == kind:
                pinned = kind != "facts" or bool(signs["lasting"].search(sentence))
                stating.append(_said(sentence, message, pinned=pinned))
    return stating


def _said(sentence: str, message: Message, *, pinned: bool = False) -> Entry:
    words = " ".join(sentence.split())
    if len(words) > TEXT_CHARACTERS:
        words = words[:TEXT_CHARACTERS].rsplit(" ", 1)[0]  # a quote is whole words
    return Entry(text=words, position=message.position, quote=words, pinned=pinned, by="rule")


def _preferences(message: Message) -> list[dict[str, Any]]:
    """What a person asks for lastingly: a sentence that says so, with a value of the register in it."""
    register, lasting = _signs("register"), _signs("sentences")["preference"]
    return [
        {"name": name, "value": value, "position": message.position, "quote": sentence}
        for sentence in split_sentences(message.text[:MESSAGE_CHARACTERS])
        if lasting.search(sentence)
        for name, values in register.items()
        if name in PREFERENCES
        for value, pattern in values.items()
        if pattern.search(sentence)
    ]
