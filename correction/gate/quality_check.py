"""The gate for drafts of other programs: judged like an agent's own, logged apart. No message is sent and no agent is made.

A request may bring propositions for a persona that has no files here: the schema of the files, within bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from django.db import IntegrityError
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    computed_field,
    model_validator,
)
from pydantic_core import PydanticCustomError

from agents.api.overrides import Deadline
from agents.bodies import AgentSlug, Traits
from agents.kit.bodies import ABSENT, Body, MessageText, OneOf, Tags, fault
from agents.kit.llm.ledger import totals
from agents.kit.models import LLMCall
from agents.kit.text.fences import MAX_CHARACTERS
from agents.models import Agent
from agents.personas.persona import render_persona
from correction.config.settings import (
    GATE_DIMENSIONS,
    SETTINGS,
    ConfigError,
    ResolvedConfig,
    resolve_config,
    resolve_defaults,
)
from correction.costs import CostSums
from correction.gate.actions import Action, persona_of
from correction.gate.check import check_action_quality
from correction.gate.plan import plan_check
from correction.gate.results import GateResult
from correction.gate.sessions import best_attempt, find_open_session, load_attempts, write_attempt
from correction.gate.stage import feedback
from correction.models import CorrectionLog, GateDimensionResult, GateSession, Outcome
from evaluation.models import is_heuristic
from evaluation.propositions.files import LoadedFile, dotted, in_words, location_of
from evaluation.propositions.schema import PropositionFile, PropositionSpec, resolve
from evaluation.scorers.context import Event

NO_SLUG = ""  # stands for the request's persona: no agent has it, and no file
MOST_PROPOSITIONS = 20  # of all dimensions; each may need a call of its own
MOST_PHRASES = 200  # of all rules and cues; each is looked for in the draft


def read_propositions(data: Sequence[Any]) -> tuple[LoadedFile, ...]:
    """Read files as a request sends them, each an object with ``dimension`` and ``propositions``; ``level`` is ``action`` unless given.

    Raises:
        ValueError: They break the schema or a bound, or hold a regular expression; names what is allowed.
    """
    phrases = 0
    for file_data in data:
        for rule_or_cues in _rules_and_cues(file_data):
            phrases += _count_phrases(rule_or_cues)
    if phrases > MOST_PHRASES:
        raise ValueError(f"{phrases} phrases: allowed: at most {MOST_PHRASES} in all rules and cues")
    files = tuple(_read_file(number, file_data) for number, file_data in enumerate(data))
    propositions = sum(len(file.propositions) for file in files)
    if propositions > MOST_PROPOSITIONS:
        raise ValueError(f"{propositions} propositions: allowed: at most {MOST_PROPOSITIONS} in all")
    return files


def _rules_and_cues(file_data: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the rules and cues of a file as they were sent; what has another shape is passed over, as the schema refuses it later."""
    propositions = file_data.get("propositions") if isinstance(file_data, Mapping) else None
    if not isinstance(propositions, list):
        return
    for proposition in propositions:
        if isinstance(proposition, Mapping):
            for name in ("rule", "cues"):
                if isinstance(proposition.get(name), Mapping):
                    yield proposition[name]


def _count_phrases(rule_or_cues: Mapping[str, Any]) -> int:
    """Count the phrases of a rule or of cues.

    Raises:
        ValueError: One is a regular expression: it has a key for these, or begins with a slash. It is refused before the schema compiles
            it, which alone may take long.
    """
    count = 0
    for key, value in rule_or_cues.items():
        phrases = []
        if isinstance(value, list):
            phrases = [phrase for phrase in value if isinstance(phrase, str)]
        if key in ("matches", "not_matches") or any(phrase.startswith("/") for phrase in phrases):
            raise ValueError("regular expressions stand in files only; allowed here: phrases")
        count += len(phrases)
    return count


def _read_file(number: int, file_data: Any) -> LoadedFile:
    """Read one file of a request; propositions that are not active are left out.

    Args:
        number: Its place in the list, from 0; for the errors.

    Raises:
        ValueError: It is no object, names an agent, breaks the schema, or its dimension has no gate; names the place and what is allowed.
    """
    if not isinstance(file_data, Mapping):
        raise ValueError(f"[{number}]: allowed: an object with dimension and propositions")
    if file_data.get("agent_id") is not None:
        raise ValueError(f"[{number}].agent_id: leave it out; they are the persona's of this request")
    try:
        file = PropositionFile.model_validate({"level": "action", **file_data})
    except ValidationError as error:
        first_error = dict(error.errors()[0])
        location = location_of(first_error)
        is_of_proposition = len(location) > 1
        fields = PropositionSpec.model_fields if is_of_proposition else PropositionFile.model_fields
        sentence = f"[{number}].{dotted(location)}: {in_words(first_error, [*fields])}"
        raise ValueError(sentence[:500]) from None
    if file.dimension not in GATE_DIMENSIONS:
        raise ValueError(f"[{number}].dimension {file.dimension!r}: allowed of a draft: {', '.join(GATE_DIMENSIONS)}")
    propositions = tuple(resolve(spec, file, f"propositions[{number}]") for spec in file.propositions if spec.active)
    return LoadedFile(Path("request"), file.dimension, NO_SLUG, file.level, propositions)


MOST_ATTEMPTS = 20  # at one message
MOST_PERSONA = 60_000  # characters, as many as a judge is shown
UNNAMED = "The agent"  # a speaker whose name the request does not say
CHANNEL_NAME = "this conversation"  # the request names no channel
LONGEST_SPEAKER = 120  # characters, as the column's
_THRESHOLD = SETTINGS["gate_adherence_threshold"]  # each dimension's threshold allows the same


class PersonaBody(Body):
    """Who speaks."""

    name: str = Field("", min_length=1, max_length=120)
    system_prompt: str = Field(min_length=1, max_length=MOST_PERSONA)
    traits: Traits = Field([])


def _read_persona(data: Any) -> Any:
    """Return the persona as an object; a text is its system prompt."""
    if isinstance(data, str):
        return {"system_prompt": data}
    if isinstance(data, dict):
        return data
    allowed = "a text, or an object with system_prompt and, if you like, name and traits"
    raise PydanticCustomError("persona", allowed)


class EventBody(Body):
    """Something that was said before."""

    name: Annotated[str, StringConstraints(strip_whitespace=False, min_length=1, max_length=120)] = Field(
        description="who said it"
    )
    text: Annotated[str, StringConstraints(strip_whitespace=False, min_length=1, max_length=MAX_CHARACTERS)]
    kind: Annotated[str, OneOf("action", "stimulus")] = Field(
        description="action: the one whose draft it is; stimulus: anybody else"
    )


def _read_threshold(value: Any) -> Decimal:
    """Return a number as a threshold."""
    if type(value) in (int, float):
        with suppress(ConfigError):
            return Decimal(_THRESHOLD.read(value))
    raise PydanticCustomError("threshold", "a number, {allowed}", {"allowed": _THRESHOLD.allowed})


Threshold = Annotated[
    Decimal,
    PlainValidator(_read_threshold),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 9, "multipleOf": 0.1}),
]


class Thresholds(Body):
    """Per dimension the lowest score that passes."""

    adherence: Threshold = ABSENT
    consistency: Threshold = ABSENT
    fluency: Threshold = ABSENT


def _read_propositions_field(data: Any) -> Any:
    """Return the files of the field; a refusal names the field."""
    if not isinstance(data, list) or len(data) > MOST_PROPOSITIONS:
        allowed = f"a list of at most {MOST_PROPOSITIONS} objects with dimension and propositions"
        raise PydanticCustomError("propositions", allowed)
    try:
        return read_propositions(data)
    except ValueError as error:
        raise fault("", f"propositions: {error}") from None


class QualityCheck(Body):
    """A draft, who would say it, and what it is checked for.

    An agent brings its persona, propositions, configuration and budget; for a persona the defaults of the configuration hold.
    """

    draft: MessageText = Field(description="the text that would be said")
    persona: Annotated[PersonaBody, BeforeValidator(_read_persona, json_schema_input_type=str | PersonaBody)] = Field(
        ABSENT, description="of a speaker who is no agent here, or its specification as a text; this or agent"
    )
    agent: AgentSlug = Field(ABSENT, description="slug of an agent; this or persona")
    trajectory: list[EventBody] = Field([], max_length=500, description="what happened before, oldest first")
    dimensions: list[Annotated[str, OneOf(*GATE_DIMENSIONS)]] = Field(
        [], min_length=1, description="default: what the configuration enables, else all of them"
    )
    thresholds: Thresholds = Field(Thresholds(), description="lowest scores that pass; default: the configuration's")
    propositions: Annotated[
        Any, PlainValidator(_read_propositions_field, json_schema_input_type=list[PropositionFile])
    ] = Field(
        (),
        description="a persona's own, as files have them, without regular expressions; at action level (the default here) "
        "they take the place of the shipped ones of their dimension",
    )
    rules: bool = Field(ABSENT, description="whether rules are checked; default: as the configuration says, else true")
    deadline_seconds: Deadline = ABSENT
    session: str = Field("", min_length=1, max_length=64, description="the session that a rejected draft came with")
    attempt: int = Field(1, ge=1, le=MOST_ATTEMPTS, description="which attempt it is, where you have no session")
    tags: Tags = Field({}, description="stored with the log")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Refuse fields that contradict each other."""
        has_persona = self.persona is not None
        has_agent = self.agent is not None
        if not has_persona and not has_agent:
            raise fault("persona", "give a persona or the slug of an agent, exactly one of them; none is given")
        if has_persona and has_agent:
            raise fault("persona", "give a persona or the slug of an agent, exactly one of them; both are given")
        if has_agent and self.propositions:
            raise fault("propositions", "allowed with a persona only: an agent has its files")
        if self.session and "attempt" in self.model_fields_set:
            raise fault("attempt", "leave it out with a session, which counts the attempts")
        allowed_dimensions = self.dimensions or GATE_DIMENSIONS  # none asked for: any may be checked
        for dimension in sorted({file.dimension for file in self.propositions}):
            if dimension not in allowed_dimensions:
                raise fault("propositions", f"propositions of {dimension}: not among the dimensions asked for")
        return self

    @property
    def speaker(self) -> str:
        """Return the name of who would say it: the agent's, the persona's, else that of its first own event; "The agent" without any."""
        if self.agent:
            return self.agent.display_name
        if self.persona.name:
            return self.persona.name
        for event in self.trajectory:
            if event.kind == "action" and event.name:
                return event.name
        return UNNAMED


class DimensionVerdict(BaseModel):
    """A draft on one dimension. The `score` is 0 to 9; null = not judged (`status` and `reason` say why), then it passes."""

    model_config = ConfigDict(from_attributes=True)

    score: float | None
    threshold: float = Field(description="lowest score that passes")
    passed: bool
    status: Annotated[str, OneOf(*GateDimensionResult.Status.values)]
    reason: str
    reasoning: str
    recommendations: str
    judge: str

    @computed_field(  # type: ignore[prop-decorator]
        description="scored by an offline judge: not to be compared with a model's scores"
    )
    @property
    def heuristic(self) -> bool:
        return is_heuristic(self.judge)


class Checked(BaseModel):
    """The verdict on a draft, as the API answers it."""

    verdict: Literal["passed", "rejected"]
    outcome: Annotated[str, OneOf(*Outcome.values)] = Field(
        description="such as passed; timeout_passed = passed for want of a verdict"
    )
    fully_judged: bool = Field(description="false: it passed although not everything could be judged")
    session: UUID = Field(description="send the next attempt at the same message with it")
    attempt: int
    attempts_left: int = Field(description="further ones that the configuration grants")
    best_attempt: int | None = Field(
        description="the attempt of the session with the highest scores; null where it passed"
    )
    judge: str = Field(description="the model that was asked")
    heuristic: bool
    dimensions: dict[str, DimensionVerdict]
    feedback: str = Field(description="for the writer of the next attempt; empty where it passed")
    cost: CostSums = Field(description="of this attempt")
    duration_ms: int = Field(description="milliseconds of judging")
    log_id: int = Field(exclude=True)


def check_quality(check: QualityCheck) -> Checked:
    """Judge a draft of another program, log it and return the verdict. Nothing is sent. No transaction may be open.

    An unjudgeable draft is let through, and the answer says why. A draft that failed is answered with feedback and the number of the
    session's best attempt so far; one that passed ends the session.

    Raises:
        SessionRefused: The session cannot be continued; names the value and why.
    """
    session = _session_of(check)
    attempt = session.next_number if check.session else check.attempt
    config = resolve_config(check.agent) if check.agent is not None else resolve_defaults()
    result = _judge_draft(check, config, session)
    # The first draft is attempt 1, and the setting counts only those after it.
    attempts_left = max(0, config["max_correction_attempts"] - attempt + 1)
    feedback_text = ""
    if not result.passed:
        feedback_text = feedback(draft=check.draft, result=result, attempt=attempt, left=attempts_left, external=True)
    log = result.log(
        session=session,
        attempt=attempt,
        feedback=feedback_text,
        persona_version_id=newest_version(check.agent),
        original_text=check.draft,
        judged_text=check.draft,
    )
    _write_log(check, log)
    best = None if result.passed else best_attempt([*session.attempts, log]).attempt
    return Checked(
        verdict="passed" if result.passed else "rejected",
        outcome=log.outcome,
        fully_judged=result.unjudged_outcome is None,
        session=log.session.uuid,
        attempt=log.attempt,
        attempts_left=attempts_left,
        best_attempt=best,
        judge=result.judge,
        heuristic=is_heuristic(result.judge),
        dimensions={row.dimension: DimensionVerdict.model_validate(row) for row in result.dimensions},
        feedback=log.feedback,
        cost=CostSums(**asdict(totals(LLMCall.objects.filter(pk__in=result.calls)))),
        duration_ms=result.duration_ms,
        log_id=log.pk,
    )


def _session_of(check: QualityCheck) -> GateSession:
    """Return the open session that the request names, or a new one, not saved yet, where it names none.

    Raises:
        SessionRefused: It is unknown, closed, another speaker's, or has as many attempts as are allowed; names the value and why.
    """
    speaker = "" if check.agent is not None else check.speaker[:LONGEST_SPEAKER]
    if not check.session:
        return GateSession(
            source=GateSession.Source.EXTERNAL, agent=check.agent, speaker=speaker, tags=dict(check.tags)
        )
    agent_id = check.agent.pk if check.agent is not None else None

    def problem(last_attempt: CorrectionLog) -> str:
        """Say why the session is not that of this request; empty where it is."""
        session = last_attempt.session
        is_other_speaker = session.agent_id is None and session.speaker != check.speaker[:LONGEST_SPEAKER]
        if session.agent_id != agent_id or is_other_speaker:
            return "belongs to a message of another speaker; leave it out to begin a new message"
        if last_attempt.attempt >= MOST_ATTEMPTS:
            return f"has {last_attempt.attempt} attempts; leave it out to begin a new message"
        return ""

    attempts = load_attempts(session=check.session, source=GateSession.Source.EXTERNAL)
    return find_open_session(check.session, attempts, problem=problem)


def _judge_draft(check: QualityCheck, config: ResolvedConfig, session: GateSession) -> GateResult:
    """Judge the draft on the dimensions that the request names, by itself or by its propositions.

    Where it names none: on those that the configuration checks; where that checks nothing, on all that the gate knows.
    Its own deadline, in seconds, goes before the configured ones, of which the total of the session counts, too.
    """
    chosen = {*check.dimensions, *(file.dimension for file in check.propositions)}
    if not chosen and not config.gate_dimensions:
        chosen = set(GATE_DIMENSIONS)
    plan = plan_check(
        agent=check.agent,
        config=config,
        # An empty list means those of the configuration.
        dimensions=[dimension for dimension in GATE_DIMENSIONS if dimension in chosen],
        thresholds=check.thresholds.sent,
        own=check.propositions,
        # Where the request does not say, rules are checked unless they are switched off.
        check_rules=config.rules_if_asked if check.rules is None else check.rules,
    )
    seconds_left = float(config["gate_total_deadline_seconds"]) - session.spent_seconds
    configured_deadline = min(float(config["gate_deadline_seconds"]), seconds_left)
    return check_action_quality(
        _action(check),
        plan,
        work_id=session.work_id,
        deadline=check.deadline_seconds or configured_deadline,
    )


def _action(check: QualityCheck) -> Action:
    """Return the draft with everything it is judged by; an agent's persona is its present one.

    What another speaker did before is a stimulus to the speaker, with the other one's name.
    """
    agent = check.agent
    events = []
    for event in check.trajectory:
        if event.kind == "action":
            events.append(Event("action", event.name, event.text))
        else:
            events.append(Event("stimulus", check.speaker, event.text, speaker=event.name))
    return Action(
        text=check.draft,
        agent_name=check.speaker,
        agent_slug=agent.slug if agent is not None else NO_SLUG,
        seeded=agent is not None and agent.seeded,
        persona=_rendered_persona(check),
        events=tuple(events),
        channel_name=CHANNEL_NAME,
    )


def _rendered_persona(check: QualityCheck) -> str:
    if check.agent:
        return persona_of(check.agent, version_id=None)
    return render_persona(system_prompt=check.persona.system_prompt, traits=check.persona.traits)


def newest_version(agent: Agent | None) -> int | None:
    """Return the key of the agent's newest persona version."""
    if agent is None:
        return None
    return agent.persona_versions.order_by("-number").values_list("pk", flat=True).first()


def _write_log(check: QualityCheck, log: CorrectionLog) -> None:
    """Store the attempt; without its agent where that was deleted while the draft was judged: what was spent is logged all the same."""
    try:
        write_attempt(log)
    except IntegrityError:
        agent = check.agent
        if agent is None or Agent.objects.filter(pk=agent.pk).exists():
            raise
        log.session.agent = None
        log.session.speaker = check.speaker[:LONGEST_SPEAKER]
        log.persona_version = None
        write_attempt(log)
