"""The gate as a service: another program's draft is judged, and nothing is said or made."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar, Literal

from drf_spectacular.utils import OpenApiExample, extend_schema_field
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import (
    BooleanField,
    CharField,
    ChoiceField,
    DictField,
    FloatField,
    HyperlinkedRelatedField,
    IntegerField,
    ListField,
    Serializer,
    SerializerMethodField,
    UUIDField,
    empty,
)

from agents.api.bodies import AgentField, Anything, Body, Said, Tags, TraitBody, many, refusal, says, trait_values
from agents.api.overrides import Deadline
from agents.api.requests import SENDS
from agents.api.rows import Row
from agents.api.runs import UsageFields
from agents.api.schema import answers
from agents.api.views import View
from agents.persona import TraitValue, render_persona
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


class PersonaFields(Body):
    """Who speaks: a text, or a specification with name and traits."""

    needed: ClassVar[tuple[str, ...]] = ("system_prompt",)

    name = CharField(max_length=120)
    system_prompt = CharField(max_length=MOST_PERSONA)
    traits = many(TraitBody, most=200)

    def validate_traits(self, traits: list[dict[str, Any]]) -> list[TraitValue]:
        return trait_values(traits)


_TEXT = {"type": "string", "minLength": 1}


@extend_schema_field(
    {
        "oneOf": [
            {**_TEXT, "maxLength": MOST_PERSONA},
            {
                "type": "object",
                "properties": {
                    "name": {**_TEXT, "maxLength": 120},
                    "system_prompt": {**_TEXT, "maxLength": MOST_PERSONA},
                    "traits": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "name": {**_TEXT, "maxLength": 120},
                                "description": {"type": "string"},
                                "strength": {"type": "number", "minimum": 0, "maximum": 1},
                                "sentiment": {"type": "number", "minimum": -1, "maximum": 1},
                            },
                            "required": ["name"],
                            "additionalProperties": False,
                        },
                    },
                },
                "required": ["system_prompt"],
                "additionalProperties": False,
            },
        ]
    }
)
class Persona(PersonaFields):
    """A specification as text, or its name, system prompt and traits; read as a name and the text a judge is shown."""

    default_error_messages = says("a text, or an object with system_prompt and, if you like, name and traits")
    json_types = (str, dict)

    def run_validation(self, data: Any = empty) -> Any:
        return super().run_validation({"system_prompt": data} if isinstance(data, str) else data)

    def to_internal_value(self, data: Any) -> tuple[str, str]:
        fields = super().to_internal_value(data)
        text = render_persona(system_prompt=fields["system_prompt"], traits=fields.get("traits", ()))
        return fields.get("name", ""), text


class EventFields(Body):
    """Something that was said before."""

    needed: ClassVar[tuple[str, ...]] = ("name", "text", "kind")

    name = CharField(max_length=120, trim_whitespace=False, help_text="who said it")
    text = CharField(max_length=MAX_CHARACTERS, trim_whitespace=False)
    kind = ChoiceField(("action", "stimulus"), help_text="action: the one whose draft it is; stimulus: anybody else")


_THRESHOLD_SCHEMA = {"type": "number", "minimum": 0, "maximum": 9, "multipleOf": 0.1}


@extend_schema_field(
    {"type": "object", "properties": dict.fromkeys(GATE_DIMENSIONS, _THRESHOLD_SCHEMA), "additionalProperties": False}
)
class Thresholds(Anything):
    """Per dimension the lowest score that passes."""

    default_error_messages = says(f"an object of {', '.join(GATE_DIMENSIONS)} to numbers, {_THRESHOLD.allowed}")

    def to_internal_value(self, data: Any) -> dict[str, Decimal]:
        if not set(data) <= {*GATE_DIMENSIONS} or any(type(value) not in (int, float) for value in data.values()):
            raise ValidationError("")
        try:
            return {name: _THRESHOLD.read(value) for name, value in data.items()}
        except ConfigError:
            raise ValidationError("") from None


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """A JSON schema without references, which mean something else in an OpenAPI document."""
    if isinstance(schema, list):
        return [_inlined(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {name: _inlined(part, definitions) for name, part in schema.items() if name != "$defs"}


_FILE = PropositionFile.model_json_schema()


@extend_schema_field({"type": "array", "maxItems": MOST_PROPOSITIONS, "items": _inlined(_FILE, _FILE["$defs"])})
class Propositions(ListField):
    """Proposition files as they are sent."""

    default_error_messages = says(f"a list of at most {MOST_PROPOSITIONS} objects with dimension and propositions")

    def to_internal_value(self, data: Any) -> Any:
        if len(data) > MOST_PROPOSITIONS:
            raise ValidationError("")
        try:
            return read_propositions(data)
        except ValueError as error:
            raise refusal(f"{self.field_name}: {error}") from None


class CheckRequest(Body):
    """A draft, who would say it, and what it is checked for."""

    needed: ClassVar[tuple[str, ...]] = ("draft",)

    draft = Said(help_text="the text that would be said")
    persona = Persona(help_text="of a speaker who is no agent here; this or agent")
    agent = AgentField(help_text="slug of an agent; this or persona")
    trajectory = many(EventFields, most=500, source="events", help_text="what happened before, oldest first")
    dimensions = ListField(
        child=ChoiceField(GATE_DIMENSIONS),
        allow_empty=False,
        help_text="default: what the configuration enables, else all of them",
    )
    thresholds = Thresholds(help_text="lowest scores that pass; default: the configuration's")
    propositions = Propositions(
        help_text="a persona's own, as files have them, without regular expressions; at action level (the default here) "
        "they take the place of the shipped ones of their dimension"
    )
    rules = BooleanField(help_text="whether rules are checked; default: as the configuration says, else true")
    deadline_seconds = Deadline(source="deadline")
    session = CharField(max_length=64, error_messages=says("the session that a rejected draft came with"))
    attempt = IntegerField(
        min_value=1, max_value=MOST_ATTEMPTS, help_text="which attempt it is, where you have no session"
    )
    tags = Tags(help_text="stored with the log")

    def validate_trajectory(self, events: list[dict[str, str]]) -> tuple[Event, ...]:
        return tuple(
            Event("action", event["name"], event["text"])
            if event["kind"] == "action"
            else Event("stimulus", "", event["text"], speaker=event["name"])
            for event in events
        )

    def to_internal_value(self, data: Any) -> Any:
        if ("persona" in data) == ("agent" in data):
            said = "both are given" if "agent" in data else "none is given"
            raise ValidationError({"persona": [f"give a persona or the slug of an agent, exactly one of them; {said}"]})
        return super().to_internal_value(data)

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        if "agent" in given and "propositions" in given:
            raise ValidationError({"propositions": ["allowed with a persona only: an agent has its files"]})
        if "session" in given and "attempt" in given:
            raise ValidationError({"attempt": ["leave it out with a session, which counts the attempts"]})
        stray = {f.dimension for f in given.get("propositions", ())} - {*given.get("dimensions", GATE_DIMENSIONS)}
        if stray:
            raise ValidationError(
                {"propositions": [f"propositions of {sorted(stray)[0]}: not among the dimensions asked for"]}
            )
        return given


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
        fields = self.read_body()
        name, persona = fields.pop("persona", ("", ""))
        try:
            checked = check_quality(QualityCheck(name=name, persona=persona, **fields))
        except SessionRefused as error:
            raise ValidationError({"session": [str(error)]}) from None
        return Response(CheckAnswer(checked, context=self.get_serializer_context()).data)
