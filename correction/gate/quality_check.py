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
from correction.gate.check import Action, GateResult, check_action_quality, persona_of
from correction.gate.stage import best_attempt, feedback, load_attempts, open_session, write
from correction.models import CorrectionLog, GateDimensionResult, GateSession, Outcome
from evaluation.models import is_heuristic
from evaluation.propositions.files import LoadedFile, dotted, in_words, location_of
from evaluation.propositions.schema import PropositionFile, PropositionSpec, resolve
from evaluation.scorers.subjects import Event

OWNER = ""  # no agent's slug and no file's: what is read here holds for no other agent
MOST_PROPOSITIONS = 20  # of all dimensions; each may need a call of its own
MOST_PHRASES = 200  # of all rules and cues; each is looked for in the draft


def read_propositions(data: Sequence[Any]) -> tuple[LoadedFile, ...]:
    """Files as a request sends them, each an object with ``dimension`` and ``propositions``; ``level`` is ``action`` unless given.

    Raises:
        ValueError: They break the schema or a bound; names the place and what is allowed.
    """
    phrases = [phrase for one in data for phrase in _phrases(one)]
    if len(phrases) > MOST_PHRASES:
        raise ValueError(f"{len(phrases)} phrases: allowed: at most {MOST_PHRASES} in all rules and cues")
    files = tuple(_read(number, one) for number, one in enumerate(data))
    count = sum(len(file.propositions) for file in files)
    if count > MOST_PROPOSITIONS:
        raise ValueError(f"{count} propositions: allowed: at most {MOST_PROPOSITIONS} in all")
    return files


def _phrases(data: Any) -> Iterator[str]:
    """The phrases of all rules and cues as they were sent.

    Raises:
        ValueError: One is a regular expression. It is refused before the schema compiles it, which alone may take long.
    """
    rows = data.get("propositions") if isinstance(data, Mapping) else None
    for row in rows if isinstance(rows, list) else ():
        for name in ("rule", "cues") if isinstance(row, Mapping) else ():
            group = row.get(name)
            for key, value in group.items() if isinstance(group, Mapping) else ():
                phrases = [phrase for phrase in value if isinstance(phrase, str)] if isinstance(value, list) else []
                if key in ("matches", "not_matches") or any(phrase.startswith("/") for phrase in phrases):
                    raise ValueError("regular expressions stand in files only; allowed here: phrases")
                yield from phrases


def _read(number: int, data: Any) -> LoadedFile:
    if not isinstance(data, Mapping):
        raise ValueError(f"[{number}]: allowed: an object with dimension and propositions")
    if data.get("agent_id") is not None:
        raise ValueError(f"[{number}].agent_id: leave it out; they are the persona's of this request")
    try:
        file = PropositionFile.model_validate({"level": "action", **data})
    except ValidationError as error:
        item = dict(error.errors()[0])
        place = location_of(item)
        fields = PropositionSpec.model_fields if len(place) > 1 else PropositionFile.model_fields
        raise ValueError(f"[{number}].{dotted(place)}: {in_words(item, [*fields])}"[:500]) from None
    if file.dimension not in GATE_DIMENSIONS:
        raise ValueError(f"[{number}].dimension {file.dimension!r}: allowed of a draft: {', '.join(GATE_DIMENSIONS)}")
    resolved = tuple(resolve(spec, file, f"propositions[{number}]") for spec in file.propositions if spec.active)
    return LoadedFile(Path("request"), file.dimension, OWNER, file.level, resolved)


MOST_ATTEMPTS = 20  # at one message
MOST_PERSONA = 60_000  # characters, as many as a judge is shown
UNNAMED = "The agent"
HERE = "this conversation"
_THRESHOLD = SETTINGS["gate_adherence_threshold"]


class PersonaBody(Body):
    """Who speaks."""

    name: str = Field("", min_length=1, max_length=120)
    system_prompt: str = Field(min_length=1, max_length=MOST_PERSONA)
    traits: Traits = Field([])


def _persona(data: Any) -> Any:
    if not isinstance(data, str | dict):
        allowed = "a text, or an object with system_prompt and, if you like, name and traits"
        raise PydanticCustomError("persona", allowed)
    return {"system_prompt": data} if isinstance(data, str) else data


class EventBody(Body):
    """Something that was said before."""

    name: Annotated[str, StringConstraints(strip_whitespace=False, min_length=1, max_length=120)] = Field(
        description="who said it"
    )
    text: Annotated[str, StringConstraints(strip_whitespace=False, min_length=1, max_length=MAX_CHARACTERS)]
    kind: Annotated[str, OneOf("action", "stimulus")] = Field(
        description="action: the one whose draft it is; stimulus: anybody else"
    )


def _threshold(value: Any) -> Decimal:
    if type(value) in (int, float):
        with suppress(ConfigError):
            return Decimal(_THRESHOLD.read(value))
    raise PydanticCustomError("threshold", "a number, {allowed}", {"allowed": _THRESHOLD.allowed})


Threshold = Annotated[
    Decimal,
    PlainValidator(_threshold),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 9, "multipleOf": 0.1}),
]


class Thresholds(Body):
    """Per dimension the lowest score that passes."""

    adherence: Threshold = ABSENT
    consistency: Threshold = ABSENT
    fluency: Threshold = ABSENT


def _propositions(data: Any) -> Any:
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
    persona: Annotated[PersonaBody, BeforeValidator(_persona, json_schema_input_type=str | PersonaBody)] = Field(
        ABSENT, description="of a speaker who is no agent here, or its specification as a text; this or agent"
    )
    agent: AgentSlug = Field(ABSENT, description="slug of an agent; this or persona")
    trajectory: list[EventBody] = Field([], max_length=500, description="what happened before, oldest first")
    dimensions: list[Annotated[str, OneOf(*GATE_DIMENSIONS)]] = Field(
        [], min_length=1, description="default: what the configuration enables, else all of them"
    )
    thresholds: Thresholds = Field(Thresholds(), description="lowest scores that pass; default: the configuration's")
    propositions: Annotated[Any, PlainValidator(_propositions, json_schema_input_type=list[PropositionFile])] = Field(
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
        if (self.persona is None) == (self.agent is None):
            said = "none is given" if self.agent is None else "both are given"
            raise fault("persona", f"give a persona or the slug of an agent, exactly one of them; {said}")
        if self.agent and self.propositions:
            raise fault("propositions", "allowed with a persona only: an agent has its files")
        if self.session and "attempt" in self.model_fields_set:
            raise fault("attempt", "leave it out with a session, which counts the attempts")
        stray = {file.dimension for file in self.propositions} - {*(self.dimensions or GATE_DIMENSIONS)}
        if stray:
            raise fault("propositions", f"propositions of {sorted(stray)[0]}: not among the dimensions asked for")
        return self

    @property
    def speaker(self) -> str:
        """The name of who would say it."""
        if self.agent:
            return self.agent.display_name
        return self.persona.name or next((e.name for e in self.trajectory if e.kind == "action" and e.name), UNNAMED)


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
    """What became of a draft."""

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
    """Judge a draft of another program and log it. What cannot be judged passes, and says why. No transaction may be open here.

    Raises:
        SessionRefused: The session cannot be continued; names the value and why.
    """
    session = _session(check)
    number = session.next_number if check.session else check.attempt
    config = resolve_config(check.agent) if check.agent is not None else resolve_defaults()
    result = _judge(check, config, session)
    left = max(0, config["max_correction_attempts"] - number + 1)
    log = _write(check, session, number, result, left)
    return Checked(
        verdict="passed" if result.passed else "rejected",
        outcome=log.outcome,
        fully_judged=result.unjudged_outcome is None,
        session=log.session.uuid,
        attempt=log.attempt,
        attempts_left=left,
        best_attempt=None if result.passed else best_attempt([*session.attempts, log]).attempt,
        judge=result.judge,
        heuristic=is_heuristic(result.judge),
        dimensions={one.dimension: DimensionVerdict.model_validate(one) for one in result.dimensions},
        feedback=log.feedback,
        cost=CostSums(**asdict(totals(LLMCall.objects.filter(pk__in=result.calls)))),
        duration_ms=result.duration_ms,
        log_id=log.pk,
    )


def _session(check: QualityCheck) -> GateSession:
    if not check.session:
        return GateSession(
            source=GateSession.Source.EXTERNAL,
            agent=check.agent,
            speaker="" if check.agent is not None else check.speaker[:120],
            tags=dict(check.tags),
        )

    def problem(last: CorrectionLog) -> str:
        session = last.session
        other_name = session.agent_id is None and session.speaker != check.speaker[:120]
        if other_name or session.agent_id != (check.agent.pk if check.agent is not None else None):
            return "belongs to a message of another speaker; leave it out to begin a new message"
        full = last.attempt >= MOST_ATTEMPTS
        return f"has {last.attempt} attempts; leave it out to begin a new message" if full else ""

    attempts = load_attempts(session=check.session, source=GateSession.Source.EXTERNAL)
    return open_session(check.session, attempts, problem=problem)


def _judge(check: QualityCheck, config: ResolvedConfig, session: GateSession) -> GateResult:
    agent, name = check.agent, check.speaker
    chosen = {*check.dimensions, *(file.dimension for file in check.propositions)}
    if not chosen and not config.gate_dimensions:
        chosen = set(GATE_DIMENSIONS)
    left = float(config["gate_total_deadline_seconds"]) - session.spent_seconds
    action = Action(
        text=check.draft,
        agent_name=name,
        agent_slug=agent.slug if agent is not None else OWNER,
        seeded=agent is not None and agent.seeded,
        persona=persona_of(agent, None)
        if agent is not None
        else render_persona(system_prompt=check.persona.system_prompt, traits=check.persona.traits),
        events=tuple(
            Event("action", event.name, event.text)
            if event.kind == "action"
            else Event("stimulus", name, event.text, speaker=event.name)
            for event in check.trajectory
        ),
        channel_name=HERE,
    )
    return check_action_quality(
        agent=agent,
        config=config,
        work_id=session.work_id,
        deadline=check.deadline_seconds or min(float(config["gate_deadline_seconds"]), left),
        action=lambda propositions: action,
        dimensions=[d for d in GATE_DIMENSIONS if d in chosen],
        thresholds=check.thresholds.sent,
        own=check.propositions,
        rules=config.rules_if_asked if check.rules is None else check.rules,
    )


def _write(check: QualityCheck, session: GateSession, number: int, result: GateResult, left: int) -> CorrectionLog:
    agent, sent_back = check.agent, ""
    versions = agent.persona_versions.order_by("-number").values_list("pk", flat=True) if agent is not None else None
    if not result.passed:
        sent_back = feedback(draft=check.draft, result=result, attempt=number, left=left, external=True)
    log = result.log(
        session=session,
        attempt=number,
        feedback=sent_back,
        persona_version_id=versions.first() if versions is not None else None,
        original_text=check.draft,
        judged_text=check.draft,
    )
    try:
        return write(log)
    except IntegrityError:
        if agent is None or Agent.objects.filter(pk=agent.pk).exists():
            raise
        # The agent was deleted while its draft was judged; what was spent is logged all the same.
        session.agent = None
        session.speaker = check.speaker[:120]
        log.persona_version = None
        return write(log)
