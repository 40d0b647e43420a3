"""The gate as a service: another program's draft is judged, and nothing is said or made."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from drf_spectacular.utils import OpenApiExample, extend_schema_field
from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import (
    CharField,
    ChoiceField,
    DictField,
    FloatField,
    HyperlinkedRelatedField,
    IntegerField,
    Serializer,
    SerializerMethodField,
    UUIDField,
)

from agents.api.bodies import ABSENT, AgentSlug, Body, OneOf, Said, Tags, Traits, fault
from agents.api.overrides import Deadline
from agents.api.requests import SENDS
from agents.api.rows import Row
from agents.api.runs import UsageFields
from agents.api.schema import answers
from agents.api.views import View
from agents.persona import render_persona
from agents.text.fences import MAX_CHARACTERS
from correction.config.settings import GATE_DIMENSIONS, SETTINGS, ConfigError
from correction.gate.quality_check import (
    MOST_ATTEMPTS,
    MOST_PROPOSITIONS,
    Checked,
    QualityCheck,
    check_quality,
    read_propositions,
)
from correction.gate.stage import SessionRefused
from correction.models import CorrectionLog, GateDimensionResult, Outcome
from evaluation.api.serializers import Heuristic
from evaluation.propositions.schema import PropositionFile
from evaluation.scorers.subjects import Event

MOST_PERSONA = 60_000  # characters, as many as a judge is shown
_THRESHOLD = SETTINGS["gate_adherence_threshold"]


class PersonaBody(Body):
    """Who speaks."""

    name: str = Field("", min_length=1, max_length=120)
    system_prompt: str = Field(min_length=1, max_length=MOST_PERSONA)
    traits: Traits = Field([])


def _persona(data: Any) -> Any:
    if not isinstance(data, str | dict):
        raise PydanticCustomError(
            "persona", "a text, or an object with system_prompt and, if you like, name and traits"
        )
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
    raise PydanticCustomError("threshold", f"a number, {_THRESHOLD.allowed}".replace("{", "{{"))


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


class CheckRequest(Body):
    """A draft, who would say it, and what it is checked for."""

    draft: Said = Field(description="the text that would be said")
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
    def _fits_together(self) -> CheckRequest:
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

    def as_check(self) -> QualityCheck:
        """What the service is asked."""
        persona = self.persona
        return QualityCheck(
            draft=self.draft,
            agent=self.agent,
            name=persona.name if persona else "",
            persona=render_persona(system_prompt=persona.system_prompt, traits=persona.traits) if persona else "",
            events=tuple(
                Event("action", event.name, event.text)
                if event.kind == "action"
                else Event("stimulus", "", event.text, speaker=event.name)
                for event in self.trajectory
            ),
            dimensions=tuple(self.dimensions),
            thresholds=self.thresholds.sent,
            propositions=self.propositions,
            rules=self.rules,
            deadline=self.deadline_seconds,
            session=self.session,
            attempt=self.attempt,
            tags=self.tags,
        )


class Sums(UsageFields):
    """Calls, tokens and US dollars; `cost_usd` leaves out the `unpriced` calls."""

    cost_usd = FloatField()  # type: ignore[assignment]  # a number here


class DimensionVerdict(Row):
    """A draft on one dimension. The `score` is 0 to 9; null = not judged (`status` and `reason` say why), then it passes."""

    threshold = FloatField(help_text="lowest score that passes")
    heuristic = Heuristic(
        source="judge", help_text="scored by an offline judge: not to be compared with a model's scores"
    )

    class Meta:
        model = GateDimensionResult
        fields = (
            *("score", "threshold", "passed", "status", "reason", "reasoning", "recommendations", "judge", "heuristic"),
        )


class CheckAnswer(Serializer[Any]):
    """What became of a draft."""

    verdict = SerializerMethodField()
    outcome = ChoiceField(
        Outcome.values, source="log.outcome", help_text="such as passed; timeout_passed = passed for want of a verdict"
    )
    fully_judged = SerializerMethodField(help_text="false: it passed although not everything could be judged")
    session = UUIDField(source="log.session", help_text="send the next attempt at the same message with it")
    attempt = IntegerField(source="log.attempt", min_value=1)
    attempts_left = IntegerField(source="left", min_value=0, help_text="further ones that the configuration grants")
    best_attempt = IntegerField(
        source="best",
        allow_null=True,
        min_value=1,
        help_text="the attempt of the session with the highest scores; null where it passed",
    )
    judge = CharField(source="result.judge", allow_blank=True, help_text="the model that was asked")
    heuristic = Heuristic(source="result.judge")
    dimensions = SerializerMethodField()
    feedback = CharField(
        source="log.feedback", allow_blank=True, help_text="for the writer of the next attempt; empty where it passed"
    )
    cost = Sums(help_text="of this attempt")
    duration_ms = IntegerField(source="result.duration_ms", min_value=0, help_text="milliseconds of judging")
    log = HyperlinkedRelatedField[Any](
        view_name="correctionlog-detail", read_only=True, help_text="the attempt in the correction logs"
    )

    def get_verdict(self, checked: Checked) -> Literal["passed", "rejected"]:
        return "passed" if checked.result.passed else "rejected"

    def get_fully_judged(self, checked: Checked) -> bool:
        return checked.result.unjudged_outcome is None

    @extend_schema_field(DictField(child=DimensionVerdict()))
    def get_dimensions(self, checked: Checked) -> dict[str, Any]:
        return {one.dimension: DimensionVerdict(one).data for one in checked.result.dimensions}


EXAMPLE = {
    "persona": {"name": "Ada", "system_prompt": "You are Ada, a dry and careful clerk. You never cheer."},
    "trajectory": [{"name": "Bob", "text": "Where is my file?", "kind": "stimulus"}],
    "draft": "Hooray, I found your file!!!",
    "dimensions": ["adherence"],
    "thresholds": {"adherence": 6.5},
    "deadline_seconds": 4,
}


class QualityChecks(View):
    """The gate as a service."""

    queryset = CorrectionLog.objects.all()
    bodies: ClassVar = {"create": CheckRequest}
    example: ClassVar = EXAMPLE
    throttle_scope = SENDS
    most_bytes = 500_000  # what a judge is shown costs by its length

    @answers(CheckAnswer, examples=[OpenApiExample("a draft out of character", request_only=True, value=EXAMPLE)])
    def create(self, request: Request) -> Response:
        """Judge a draft of your own agent: scores, a verdict, and feedback for the next attempt. Nothing is said, no agent is needed.

        Say who would speak: `persona` (a text, or `system_prompt`, `name` and `traits`), or an `agent` of this installation. `trajectory`
        is what was said before. When the verdict is `rejected`, write another draft with `feedback` in mind and send it with the
        `session`: feedback asks for more with each attempt. `attempts_left` 0 is advice: whether to say the draft, the `best_attempt` or
        nothing is yours to decide.

        What cannot be judged within `deadline_seconds` passes: `fully_judged` is false, `outcome` says why. Scores are never made up. A
        `heuristic` score comes from an offline judge. Every check is logged with its cost under the source `external`, in no figure of
        the gate's own messages. The persona and the trajectory are not stored.
        """
        asked = self.read_body().as_check()
        try:
            checked = check_quality(asked)
        except SessionRefused as error:
            raise ValidationError({"session": [str(error)]}) from None
        return Response(CheckAnswer(checked, context=self.get_serializer_context()).data)
