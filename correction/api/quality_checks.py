"""The gate as a service: another program's draft is judged, and nothing is said or made."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from agents.api import parameters
from agents.api.idempotency import IdempotentPosts
from agents.api.lookups import named_agent
from agents.api.schema import documented
from agents.api.throttles import Sends
from correction.api.answers import Sums
from correction.api.quality_body import CheckRequest
from correction.gate.quality_check import Checked, QualityCheck, SessionRefused, check_quality
from correction.gate.scores import DimensionCheck
from correction.models import CorrectionLog, GateDimensionResult, Outcome
from evaluation.models import is_heuristic


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
        allow_blank=True, help_text="for whoever writes the next attempt; empty where it passed"
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
        "fully_judged": checked.fully_judged,
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


def _dimension(found: DimensionCheck) -> dict[str, Any]:
    return {
        "score": found.score,
        "threshold": float(found.threshold),
        "passed": found.passed,
        "status": found.status,
        "reason": found.reason,
        "reasoning": found.reasoning,
        "recommendations": found.recommendations,
        "judge": found.judge,
        "heuristic": is_heuristic(found.judge),
    }
