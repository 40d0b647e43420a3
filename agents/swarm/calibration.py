"""Read a person's message before it is answered: in which register, how risky a wrong answer is, what is missing, what is new to remember.

One structured call asks all enabled calibrators of a swarm at once (`calibrate`). Without a model, and where the call fails, rules answer
(`by_rules`): a heuristic that says only what it sees, and leaves the rest as it was. The answer is typed: of what a message says, only
values of these types get any further, and entries with the words they rest on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agents.kit import llm
from agents.kit.llm.providers import is_heuristic
from agents.kit.llm.requests import object_schema
from agents.kit.text.fences import fence, indented, one_line, render_prompt, safe_and_cut
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

REGISTER: Mapping[str, Any] = {  # in which register to answer: each name with its values
    "tone": Tone,
    "formality": Formality,
    "jargon": Jargon,
    "expertise": Expertise,
    "length": Length,
    "units": Units,
    "learning_style": LearningStyle,
}
PREFERENCES: Mapping[str, tuple[str, ...]] = {  # what a person may prefer lastingly
    "tone": get_args(Tone),
    "units": get_args(Units),
    "length": get_args(Length),
    "learning_style": get_args(LearningStyle),
}


# -- the answer
def _one_of(values: Any) -> BeforeValidator:
    """Return a validator that takes any other value for none: a calibrator that is odd about the tone may be right about the rest."""
    allowed = get_args(values)

    def known_or_none(value: object) -> str | None:
        return value if isinstance(value, str) and value in allowed else None

    return BeforeValidator(known_or_none)


def _short_line(value: object) -> str:
    """Return a text on one line, shortened; empty where there is none."""
    line = " ".join(value.split()) if isinstance(value, str) else ""
    return line if len(line) <= TEXT_CHARACTERS else line[: TEXT_CHARACTERS - 1] + "…"


def _short_lines(value: object) -> list[str]:
    lines = [_short_line(text) for text in value] if isinstance(value, list | tuple) else []
    return [line for line in lines if line][:MOST_ENTRIES]


def _share(value: object) -> float:
    """Return a number within 0 to 1; 0 where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return min(1.0, max(0.0, float(value)))


def _valid_items(make: Callable[[Any], BaseModel]) -> BeforeValidator:
    """Return a validator that keeps the items of a list that `make` accepts, at most `MOST_ENTRIES`; nothing of what is no list."""

    def keep_valid(values: object) -> list[BaseModel]:
        valid: list[BaseModel] = []
        for value in values if isinstance(values, list) else []:
            try:
                valid.append(make(value))
            except (ValidationError, TypeError):
                continue
        return valid[:MOST_ENTRIES]

    return BeforeValidator(keep_valid)


def _entry(value: Any) -> Entry:
    """Make an entry of an answer; none can say that a person made it. Its text is its quote: a model's own words are not kept.

    Raises:
        ValidationError: It has no quote or no position.
    """
    if isinstance(value, Entry):
        return value
    fields = value if isinstance(value, Mapping) else {}
    return Entry.model_validate(
        {
            "text": fields.get("quote"),
            "position": fields.get("position"),
            "quote": fields.get("quote"),
            "pinned": fields.get("pinned") is True,
            "by": "rule" if fields.get("by") == "rule" else "model",
        }
    )


Text = Annotated[str, BeforeValidator(_short_line)]
Share = Annotated[float, BeforeValidator(_share)]
Entries = Annotated[list[Entry], _valid_items(_entry)]


class Preference(BaseModel):
    """How a person wants to be answered from now on, with the words in which they say so."""

    name: Literal["tone", "units", "length", "learning_style"]
    value: str
    position: int
    quote: Text


class MessageCalibration(BaseModel):
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
    missing: Annotated[list[str], BeforeValidator(_short_lines)] = Field(default_factory=list)
    question: Text = ""
    cannot: Text = ""
    assumption: Text = ""
    anchor: Entries = Field(default_factory=list)
    goal: Entries = Field(default_factory=list)
    facts: Entries = Field(default_factory=list)
    decisions: Entries = Field(default_factory=list)
    preferences: Annotated[list[Preference], _valid_items(Preference.model_validate)] = Field(default_factory=list)
    heuristic: bool = False


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """A message's calibration and how it was made.

    Attributes:
        failure: Why the model gave no answer, so that rules calibrated; empty when it did, or none was asked.
        milliseconds: That the call took; None when none was made.
    """

    calibration: MessageCalibration
    failure: str = ""
    milliseconds: int | None = None


def stated_preferences(calibration: MessageCalibration, messages: Iterable[Message]) -> dict[str, str]:
    """Return name to value of the preferences that a person states in these messages; of several values the last.

    Left out are unknown values, and those whose quote does not stand in a person's message at its position.
    """
    texts = {message.position: message.text for message in messages if message.agent_id is None}
    stated: dict[str, str] = {}
    for preference in calibration.preferences:
        text = texts.get(preference.position, "")
        if preference.value in PREFERENCES[preference.name] and quoted(preference.quote, text):
            stated[preference.name] = preference.value
    return stated


def guidance(
    calibration: MessageCalibration,
    *,
    preferences: Mapping[str, str] | None = None,
    assumption: str = "",
    nonce: str = "",
) -> str:
    """Render the calibration as plain advice for the one who answers; empty when there is none to give.

    Args:
        preferences: Of the person; they come before what this message alone suggests.
        assumption: To be stated in the answer. A model wrote it about a person's words, so it is fenced.
        nonce: Of the turn's fences.
    """
    register = {name: getattr(calibration, name) for name in REGISTER}
    for name, value in (preferences or {}).items():
        if value in PREFERENCES.get(name, ()):
            register[name] = value
    fenced = fence("ASSUMPTION", safe_and_cut(_short_line(assumption)), nonce) if assumption else ""
    return render_prompt("swarm/guidance", **register, uncertain=calibration.uncertainty > UNCERTAIN, assumption=fenced)


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
) -> CalibrationResult:
    """Ask the calibrators about a message, all in one call; where that fails, rules answer, and ask only for what is required.

    Nothing is raised for a call that fails: the result names the failure.

    Args:
        trigger: The message to be answered.
        transcript: Of its channel, oldest first. Entries are made of those after `state.position`.
        phases: Enabled calibrators in their order.
        deadline: Seconds in all.
        nonce: Of the turn's fences.
        run_id: Of the turn, for the ledger; None: the ledger names the message in its place.
        model: Acts instead of the agent's own; empty: its own.
        temperature: None leaves it to the server.
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
        parse=_calibration_of_answer,
        temperature=temperature,
        max_tokens=MAX_TOKENS,
        nonce=nonce,
        facts={"trigger": trigger, "transcript": list(transcript), "state": state},
    )
    started = time.monotonic()
    reply = llm.complete(request, deadline=deadline)
    milliseconds = round((time.monotonic() - started) * 1000)
    if reply.ok:
        calibration: MessageCalibration = reply.value
        if is_heuristic(reply.model):
            calibration = calibration.model_copy(update={"heuristic": True})
        return CalibrationResult(calibration, milliseconds=milliseconds)
    calibration = by_rules(trigger=trigger, transcript=transcript, state=state)
    if not calibration.missing:  # a failed call is no reason to ask back
        calibration = calibration.model_copy(update={"risk": 0.0, "question": ""})
    return CalibrationResult(calibration, failure=f"{reply.status}: {reply.error}", milliseconds=milliseconds)


def _calibration_of_answer(answer: Any) -> MessageCalibration:
    """Read a model's answer, which must at least hold a risk.

    Raises:
        InvalidAnswer: It is something else.
    """
    risk = answer.get("risk") if isinstance(answer, Mapping) else None
    if isinstance(risk, bool) or not isinstance(risk, int | float):
        raise llm.InvalidAnswer(f"risk: expected a number from 0 to 1, got {risk!r:.40}")
    return MessageCalibration.model_validate(answer)


def offline(request: llm.LLMRequest) -> Mapping[str, Any]:
    """Calibrate by rules (responder for the task ``swarm_calibration``)."""
    return by_rules(**request.facts).model_dump(mode="json")


def _instructions(agent: Agent, phases: Sequence[SwarmPhase]) -> str:
    calibrators = [{"name": phase.name, "prompt": phase.prompt.strip()} for phase in phases]
    name = one_line(agent.display_name)
    return render_prompt("swarm/calibration", name=name, phases=calibrators, allowed=PREFERENCES)


def _material(agent: Agent, trigger: Message, transcript: Sequence[Message], state: DialogState, nonce: str) -> str:
    """Render the conversation, what is known of it, the question that waits, and the message, each fenced; what is empty is left out."""
    earlier = [_numbered_line(message, agent) for message in transcript if message.position < trigger.position]
    known_lines = _known_lines(state)
    pending = _short_line((state.pending or {}).get("question", ""))
    return render_prompt(
        "swarm/message",
        earlier=fence("CONVERSATION", "\n".join(earlier), nonce) if earlier else "",
        known=fence("KNOWN", "\n".join(known_lines), nonce) if known_lines else "",
        pending=fence("QUESTION", safe_and_cut(pending), nonce) if pending else "",
        message=fence("MESSAGE", _numbered_line(trigger, agent), nonce),
        number=trigger.position,
        since=state.position,
    )


def _numbered_line(message: Message, agent: Agent) -> str:
    """Return a message as the calibrators read it: position, author ("you" is the agent), text."""
    author = "(you)" if message.agent_id == agent.pk else one_line(message.author_name)
    return f"{message.position}. {author}: {indented(message.text, MESSAGE_CHARACTERS)}"


def _known_lines(state: DialogState) -> list[str]:
    """Return what the state holds, a line each."""
    labels = {"anchor": "about", "goal": "goal", "facts": "fact", "decisions": "decision"}
    return [f"{labels[entry.kind]}: {safe_and_cut(_short_line(entry.text))}" for entry in entries(state, *labels)]


def _choice_or_null(values: Any) -> dict[str, Any]:
    return {"anyOf": [{"type": "string", "enum": list(get_args(values))}, {"type": "null"}]}


_TEXT_SCHEMA = {"type": "string"}
_NUMBER_SCHEMA = {"type": "number"}
_POSITION_SCHEMA = {"type": "integer"}
_ENTRIES_SCHEMA = {
    "type": "array",
    "items": object_schema({"position": _POSITION_SCHEMA, "quote": _TEXT_SCHEMA, "pinned": {"type": "boolean"}}),
}
_PREFERENCE_SCHEMA = object_schema(
    {
        "name": {"type": "string", "enum": list(PREFERENCES)},
        "value": _TEXT_SCHEMA,
        "position": _POSITION_SCHEMA,
        "quote": _TEXT_SCHEMA,
    }
)
SCHEMA = object_schema(
    {name: _choice_or_null(values) for name, values in REGISTER.items()}
    | dict.fromkeys(("risk", "uncertainty"), _NUMBER_SCHEMA)
    | {"missing": {"type": "array", "items": _TEXT_SCHEMA}}
    | dict.fromkeys(("question", "cannot", "assumption"), _TEXT_SCHEMA)
    | dict.fromkeys(("anchor", "goal", "facts", "decisions"), _ENTRIES_SCHEMA)
    | {"preferences": {"type": "array", "items": _PREFERENCE_SCHEMA}}
)


# -- rules
def by_rules(*, trigger: Message, transcript: Sequence[Message], state: DialogState) -> MessageCalibration:
    """Return what can be seen of a message without a model; nothing is claimed of what cannot, such as what else a request leaves open.

    Entries and preferences are those of all people's messages after `state.position`; the register and what is missing are the trigger's.
    Of several goals the newest counts. An anchor is named only where the state has none.
    """
    text = trigger.text[:MESSAGE_CHARACTERS]
    earlier = [message for message in transcript if message.position < trigger.position and message.agent_id is None]
    new_messages = [message for message in earlier if message.position > state.position]
    new_messages.append(trigger)

    goal: list[Entry] = []
    facts: list[Entry] = []
    decisions: list[Entry] = []
    preferences: list[Preference] = []
    for message in new_messages:
        goal = _sentences_that_state(message, "goal")[-1:] or goal
        facts += _sentences_that_state(message, "facts")
        decisions += _sentences_that_state(message, "decisions")
        preferences += _lasting_preferences(message)
    calibration = MessageCalibration(
        **_register_of(text), goal=goal, facts=facts, decisions=decisions, preferences=preferences, heuristic=True
    )
    if not entries(state, "anchor"):
        calibration.anchor = _first_sentence(new_messages[0])
    if _sentence_patterns()["vague_number"].search(text):
        calibration.uncertainty = 0.3  # above `UNCERTAIN`

    missing = _missing_information(trigger, earlier, state)
    if missing:
        calibration.risk = 0.9  # certainly worth a question
        calibration.missing = [information.name for information in missing]
        calibration.question = missing[0].question
        calibration.cannot = missing[0].cannot
    return calibration


@dataclass(frozen=True, slots=True)
class RequiredInformation:
    """Information without which some requests have no answer that could be trusted.

    Attributes:
        asks: Found in such a request. `for_another`: found where it is for another than the one who writes.
        given: Found where the information is given. `own`: where people give theirs, which is none of another's.
        question: Asks for it. `cannot`: says that without it there is no answer.
    """

    name: str
    asks: re.Pattern[str]
    for_another: re.Pattern[str]
    given: re.Pattern[str]
    own: re.Pattern[str]
    question: str
    cannot: str

    def is_given(self, request: str, lines: Sequence[str]) -> bool:
        """Return whether one of the lines gives what a request needs."""
        if self.for_another.search(request):
            lines = [self.own.sub("", line) for line in lines]
        return any(self.given.search(line) for line in lines)


@cache
def _rules() -> dict[str, Any]:
    """Return what ``rules.yaml`` holds."""
    rules: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("rules.yaml").read_text(encoding="utf-8"))
    return rules


@cache
def _register_patterns() -> dict[str, dict[str, re.Pattern[str]]]:
    """Return the patterns of each value of a register, by the register's name."""
    patterns: dict[str, dict[str, re.Pattern[str]]] = {}
    for name, values in _rules()["register"].items():
        patterns[name] = {value: re.compile(pattern, re.IGNORECASE) for value, pattern in values.items()}
    return patterns


@cache
def _sentence_patterns() -> dict[str, re.Pattern[str]]:
    return {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _rules()["sentences"].items()}


@cache
def _required_information() -> list[RequiredInformation]:
    required: list[RequiredInformation] = []
    for row in _rules()["required"]:
        information = RequiredInformation(
            name=row["name"],
            asks=re.compile(row["asks"], re.IGNORECASE),
            for_another=re.compile(row["for_another"], re.IGNORECASE),
            given=re.compile(row["given"], re.IGNORECASE),
            own=re.compile(row["own"], re.IGNORECASE),
            question=row["question"],
            cannot=row["cannot"],
        )
        required.append(information)
    return required


def _register_of(text: str) -> dict[str, str]:
    """Return the first value of each register whose pattern occurs in a text."""
    values: dict[str, str] = {}
    for name, patterns in _register_patterns().items():
        for value, pattern in patterns.items():
            if pattern.search(text):
                values.setdefault(name, value)
    return values


def _missing_information(message: Message, earlier: Sequence[Message], state: DialogState) -> list[RequiredInformation]:
    """Return the required information that a request lacks: of this message, or of the one whose question it should have answered.

    It is not lacking where the same person gives it in this message, in an earlier one, or in a fact of the state.

    Args:
        earlier: People's messages before it.
        state: Its `pending` question says what was asked for; a new request or a command in this message drops that.
    """
    text = message.text[:MESSAGE_CHARACTERS]
    pending = state.pending or {}
    # On one line with its question, so that "70" answers "How much do you weigh?".
    lines = [f"{pending.get('question', '')} {text}"]
    own_texts = [text]  # newest first
    for other in reversed(earlier):
        if (other.user_id, other.outsider) == (message.user_id, message.outsider):
            own_texts.append(other.text[:MESSAGE_CHARACTERS])
    lines += own_texts[1:]
    lines += [fact.text for fact in entries(state, "facts") if fact.author == message.author_name]
    asked_for = set(pending.get("missing", ()))
    if _sentence_patterns()["new_request"].search(text) or intent_of(text) in COMMANDS:
        asked_for = set()  # the person dropped the matter
    missing: list[RequiredInformation] = []
    for information in _required_information():
        is_needed = information.name in asked_for or information.asks.search(text)
        request = next((own for own in own_texts if information.asks.search(own)), "")
        if is_needed and not information.is_given(f"{request}\n{text}", lines):
            missing.append(information)
    return missing


def _sentences_that_state(message: Message, kind: str) -> list[Entry]:
    """Return the sentences of a message that state this kind of thing (goal, facts or decisions).

    Goals and decisions are pinned, and facts that say they last ("allergic", "always", a number).
    """
    stated: list[Entry] = []
    for sentence in split_sentences(message.text[:MESSAGE_CHARACTERS]):
        if not _states(sentence, kind):
            continue
        is_pinned = kind != "facts" or bool(_sentence_patterns()["lasting"].search(sentence))
        stated.append(_entry_of(sentence, message, pinned=is_pinned))
    return stated


def _states(sentence: str, kind: str) -> bool:
    """Return whether a sentence states a goal, a decision, or a fact that is neither; a question or a very long one states none."""
    if len(sentence) > TEXT_CHARACTERS or "?" in sentence:
        return False
    patterns = _sentence_patterns()
    if kind == "facts" and (patterns["decisions"].search(sentence) or patterns["goal"].search(sentence)):
        return False
    return patterns[kind].search(sentence) is not None


def _first_sentence(message: Message) -> list[Entry]:
    """Return a message's first sentence as what the conversation is about; nothing where there is none."""
    sentences = split_sentences(message.text[:MESSAGE_CHARACTERS])
    return [_entry_of(sentences[0], message)] if sentences else []


def _entry_of(sentence: str, message: Message, *, pinned: bool = False) -> Entry:
    words = " ".join(sentence.split())
    if len(words) > TEXT_CHARACTERS:
        words = words[:TEXT_CHARACTERS].rsplit(" ", 1)[0]  # a quote is whole words
    return Entry(text=words, position=message.position, quote=words, pinned=pinned, by="rule")


def _lasting_preferences(message: Message) -> list[Preference]:
    """Return what a person asks for lastingly: each value in a sentence that says so, such as "From now on keep it short."."""
    stated: list[Preference] = []
    for sentence in split_sentences(message.text[:MESSAGE_CHARACTERS]):
        if not _sentence_patterns()["preference"].search(sentence):
            continue
        for name in PREFERENCES:
            for value, pattern in _register_patterns()[name].items():
                if pattern.search(sentence):
                    fields = {"name": name, "value": value, "position": message.position, "quote": sentence}
                    stated.append(Preference.model_validate(fields))
    return stated
