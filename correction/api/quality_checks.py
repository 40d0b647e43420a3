"""The gate as a service: another program's draft is judged, and nothing is said or made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from decimal import Decimal
from typing import Any, NoReturn

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiExample, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from agents.api import parameters
from agents.api.bodies import Deadline, Flag, Said, SomeOf, StrictBody, Tags, Text, Traits, Whole, _Allowing
from agents.api.headers import IdempotentPosts
from agents.api.parameters import named_agent
from agents.api.requests import Sends
from agents.api.schema import documented
from agents.persona import render_persona
from agents.text.fences import MAX_CHARACTERS
from correction.api.figures import Sums
from correction.config.fields import GATE_DIMENSIONS, SETTINGS, ConfigError
from correction.gate.quality_check import (
    MOST_ATTEMPTS,
    MOST_PROPOSITIONS,
    Checked,
    QualityCheck,
    check_quality,
    read_propositions,
)
from correction.gate.sessions import SessionRefused
from correction.models import CorrectionLog, GateDimensionResult, Outcome
from evaluation.judge.prompts import Event
from evaluation.models import is_heuristic
from evaluation.propositions.files import LoadedFile
from evaluation.propositions.schema import PropositionFile

MOST_PERSONA = 60_000  # characters, as many as a judge is shown
MOST_EVENTS = 500
MOST_NAME = 120
KINDS = ("action", "stimulus")
_EVENT_FIELDS = ("name", "text", "kind")
_THRESHOLD = SETTINGS["gate_adherence_threshold"]


class PersonaFields(StrictBody):
    """Who speaks."""

    name = Text(required=False, most=MOST_NAME)
    system_prompt = Text(most=MOST_PERSONA)
    traits = Traits(required=False)


_PERSONA_SCHEMA: dict[str, Any] = {
    "oneOf": [
        {"type": "string", "minLength": 1, "maxLength": MOST_PERSONA},
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": MOST_NAME},
                "system_prompt": {"type": "string", "minLength": 1, "maxLength": MOST_PERSONA},
                "traits": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string", "minLength": 1, "maxLength": 120},
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


@extend_schema_field(_PERSONA_SCHEMA)
class Persona(_Allowing, serializers.JSONField):
    """A specification as text, or its name, system prompt and traits; read as a name and the text a judge is shown."""

    allowed = "a text, or an object with system_prompt and, if you like, name and traits"

    def to_internal_value(self, data: Any) -> tuple[str, str]:
        body = PersonaFields(data={"system_prompt": data} if isinstance(data, str) else data)
        if not isinstance(data, str | dict):
            self.refuse(data)
        if not body.is_valid():
            raise ValidationError([f"{self.field_name}.{text}" for texts in body.errors.values() for text in texts])
        fields = body.validated_data
        text = render_persona(system_prompt=fields["system_prompt"], traits=fields.get("traits", ()))
        return fields.get("name", ""), text


class EventFields(serializers.Serializer[Any]):
    """Something that was said before."""

    name = serializers.CharField(max_length=MOST_NAME, help_text="who said it")
    text = serializers.CharField(max_length=MAX_CHARACTERS)
    kind = serializers.ChoiceField(KINDS, help_text="action: the one whose draft it is; stimulus: anybody else")


class Trajectory(_Allowing, serializers.ListField):
    """What happened before, oldest first."""

    allowed = f"a list of at most {MOST_EVENTS} objects with {', '.join(_EVENT_FIELDS)}"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=EventFields(), max_length=MOST_EVENTS, **kwargs)

    def to_internal_value(self, data: Any) -> list[Event]:
        if not isinstance(data, list) or len(data) > MOST_EVENTS:
            self.refuse(data if not isinstance(data, list) else len(data))
        return [self._event(number, one) for number, one in enumerate(data)]

    def _event(self, number: int, one: Any) -> Event:
        given: Mapping[str, Any] = one if isinstance(one, dict) else {}
        if set(given) != set(_EVENT_FIELDS):
            self._wrong(f"[{number}]", one, f"an object with {', '.join(_EVENT_FIELDS)}")
        for name, most in (("name", MOST_NAME), ("text", MAX_CHARACTERS)):
            value = given[name]
            if not isinstance(value, str) or not value.strip() or len(value) > most:
                self._wrong(f"[{number}].{name}", value, f"a text of 1 to {most:,} characters")
        if given["kind"] not in KINDS:
            self._wrong(f"[{number}].kind", given["kind"], " or ".join(KINDS))
        if given["kind"] == "action":
            return Event("action", given["name"], given["text"])
        return Event("stimulus", "", given["text"], speaker=given["name"])

    def _wrong(self, place: str, value: Any, allowed: str) -> NoReturn:
        raise ValidationError([f"{self.field_name}{place} {repr(value)[:80]}: allowed: {allowed}"])


_THRESHOLD_SCHEMA = {"type": "number", "minimum": 0, "maximum": 9, "multipleOf": 0.1}


@extend_schema_field(
    {
        "type": "object",
        "properties": dict.fromkeys(GATE_DIMENSIONS, _THRESHOLD_SCHEMA),
        "additionalProperties": False,
    }
)
class Thresholds(_Allowing, serializers.DictField):
    """Per dimension the lowest score that passes."""

    allowed = f"an object of {', '.join(GATE_DIMENSIONS)} to numbers, {_THRESHOLD.allowed}"

    def to_internal_value(self, data: Any) -> dict[str, Decimal]:
        if not isinstance(data, dict) or not set(data) <= set(GATE_DIMENSIONS):
            self.refuse(data)
        for value in data.values():
            if isinstance(value, bool) or not isinstance(value, int | float):
                self.refuse(data)
        try:
            return {name: _THRESHOLD.read(value) for name, value in data.items()}
        except ConfigError:
            self.refuse(data)


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
class Propositions(_Allowing, serializers.ListField):
    """Proposition files as they are sent."""

    allowed = f"a list of at most {MOST_PROPOSITIONS} objects with dimension and propositions"

    def to_internal_value(self, data: Any) -> tuple[LoadedFile, ...]:
        if not isinstance(data, list) or len(data) > MOST_PROPOSITIONS:
            self.refuse(data)
        try:
            return read_propositions(data)
        except ValueError as error:
            raise ValidationError([f"{self.field_name}: {error}"]) from None


class CheckRequest(StrictBody):
    """A draft, who would say it, and what it is checked for."""

    draft = Said(help_text="the text that would be said")
    persona = Persona(required=False, help_text="of a speaker who is no agent here; this or agent")
    agent = Text(required=False, allowed="the slug of an agent", help_text="slug of an agent; this or persona")
    trajectory = Trajectory(required=False, help_text="what happened before, oldest first")
    dimensions = SomeOf(
        GATE_DIMENSIONS, required=False, help_text="default: what the configuration enables, else all of them"
    )
    thresholds = Thresholds(required=False, help_text="lowest scores that pass; default: the configuration's")
    propositions = Propositions(
        required=False,
        help_text="a persona's own, as files have them, without regular expressions; at action level (the default here) "
        "they take the place of the shipped ones of their dimension",
    )
    rules = Flag(required=False, help_text="whether rules are checked; default: as the configuration says, else true")
    deadline_seconds = Deadline(required=False)
    session = Text(required=False, most=64, allowed="the session that a rejected draft came with")
    attempt = Whole(
        required=False, least=1, most=MOST_ATTEMPTS, help_text="which attempt it is, where you keep no session"
    )
    tags = Tags(required=False, help_text="kept with the log")

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        if ("persona" in given) == ("agent" in given):
            said = "both are given" if "agent" in given else "none is given"
            raise ValidationError({"persona": [f"give a persona or the slug of an agent, exactly one of them; {said}"]})
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


class DimensionVerdict(serializers.Serializer[Any]):
    """A draft on one dimension."""

    score = serializers.FloatField(allow_null=True, help_text="0 to 9; null = not judged, then it passes")
    threshold = serializers.FloatField(help_text="lowest score that passes")
    passed = serializers.BooleanField()
    status = serializers.ChoiceField(GateDimensionResult.Status.values, help_text="scored, or why it was not")
    reason = serializers.CharField(allow_blank=True, help_text="why it was not judged")
    reasoning = serializers.CharField(allow_blank=True, help_text="of what decided the score")
    recommendations = serializers.CharField(allow_blank=True, help_text="where it failed")
    judge = serializers.CharField(allow_blank=True, help_text="rule, or the model that decided the score")
    heuristic = serializers.BooleanField(
        help_text="scored by an offline judge: not to be compared with a model's scores"
    )


class CheckAnswer(serializers.Serializer[Any]):
    """What became of a draft."""

    verdict = serializers.ChoiceField(["passed", "rejected"])
    outcome = serializers.ChoiceField(
        Outcome.values, help_text="such as passed; timeout_passed = passed for want of a verdict"
    )
    fully_judged = serializers.BooleanField(help_text="false: it passed although not everything could be judged")
    session = serializers.UUIDField(help_text="send the next attempt at the same message with it")
    attempt = serializers.IntegerField(min_value=1)
    attempts_left = serializers.IntegerField(min_value=0, help_text="further ones that the configuration grants")
    best_attempt = serializers.IntegerField(
        allow_null=True,
        min_value=1,
        help_text="the attempt of the session with the highest scores; null where it passed",
    )
    judge = serializers.CharField(allow_blank=True, help_text="the model that was asked")
    heuristic = serializers.BooleanField()
    dimensions = serializers.DictField(child=DimensionVerdict())
    feedback = serializers.CharField(
        allow_blank=True, help_text="for the writer of the next attempt; empty where it passed"
    )
    cost = Sums(help_text="of this attempt")
    duration_ms = serializers.IntegerField(min_value=0, help_text="milliseconds of judging")
    log = serializers.URLField(help_text="the attempt in the correction logs")


_EXAMPLE = OpenApiExample(
    "a draft out of character",
    request_only=True,
    value={
        "persona": {"name": "Ada", "system_prompt": "You are Ada, a dry and careful clerk. You never cheer."},
        "trajectory": [{"name": "Bob", "text": "Where is my file?", "kind": "stimulus"}],
        "draft": "Hooray, I found your file!!!",
        "dimensions": ["adherence"],
        "thresholds": {"adherence": 6.5},
        "deadline_seconds": 4,
    },
)


class QualityChecks(IdempotentPosts, GenericAPIView[CorrectionLog]):
    """POST a draft of your own agent: scores, a verdict, and feedback for the next attempt. Nothing is said, no agent is needed.

    Say who would speak: `persona` (a text, or `system_prompt`, `name` and `traits`), or an `agent` of this installation. `trajectory`
    is what was said before. When the verdict is `rejected`, write another draft with `feedback` in mind and send it with the
    `session`: feedback asks for more with each attempt. `attempts_left` 0 is advice: whether to say the draft, the `best_attempt` or
    nothing is yours to decide.

    What cannot be judged within `deadline_seconds` passes: `fully_judged` is false, `outcome` says why. Scores are never made up. A
    `heuristic` score comes from an offline judge. Every check is logged with its cost under the source `external`, in no figure of
    the gate's own messages. The persona and the trajectory are not stored.
    """

    queryset: QuerySet[CorrectionLog] = CorrectionLog.objects.all()
    serializer_class = CheckRequest
    throttle_classes = (Sends,)
    most_bytes = 500_000  # what a judge is shown costs by its length

    @documented(CheckAnswer, body=CheckRequest, examples=[_EXAMPLE], summary="Judge a draft of your own agent")
    def post(self, request: Request) -> Response:
        parameters.only(request)
        body = CheckRequest(data=request.data)
        body.is_valid(raise_exception=True)
        try:
            checked = check_quality(_asked(body.validated_data))
        except SessionRefused as error:
            raise ValidationError({"session": [str(error)]}) from None
        return Response(_shown(checked, request))


def _asked(given: dict[str, Any]) -> QualityCheck:
    name, persona = given.get("persona", ("", ""))
    return QualityCheck(
        draft=given["draft"],
        agent=named_agent(given["agent"]) if "agent" in given else None,
        name=name,
        persona=persona,
        events=tuple(given.get("trajectory", ())),
        dimensions=tuple(given.get("dimensions", ())),
        thresholds=given.get("thresholds", {}),
        propositions=given.get("propositions", ()),
        rules=given.get("rules"),
        deadline=given.get("deadline_seconds"),
        session=given.get("session", ""),
        attempt=given.get("attempt", 1),
        tags=given.get("tags", {}),
    )


def _shown(checked: Checked, request: Request) -> dict[str, Any]:
    log, result = checked.log, checked.result
    return {
        "verdict": "passed" if result.passed else "rejected",
        "outcome": str(log.outcome),
        "fully_judged": result.unjudged_outcome is None,
        "session": str(log.session),
        "attempt": log.attempt,
        "attempts_left": checked.left,
        "best_attempt": checked.best,
        "judge": result.judge,
        "heuristic": is_heuristic(result.judge),
        "dimensions": {one.dimension: _dimension(one) for one in result.dimensions},
        "feedback": log.feedback,
        "cost": {**asdict(checked.cost), "cost_usd": float(checked.cost.cost_usd)},
        "duration_ms": result.duration_ms,
        "log": str(reverse("correction:log", [log.pk], request=request)),
    }


def _dimension(check: GateDimensionResult) -> dict[str, Any]:
    return {
        "score": check.score,
        "threshold": float(check.threshold),
        "passed": check.passed,
        "status": check.status,
        "reason": check.reason,
        "reasoning": check.reasoning,
        "recommendations": check.recommendations,
        "judge": check.judge,
        "heuristic": is_heuristic(check.judge),
    }
