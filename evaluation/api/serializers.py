"""Evaluations, judgements and baselines as the API shows them. *heuristic* stands beside every judge."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.reverse import reverse

from evaluation.calibration.agreement import Key, calibration_json
from evaluation.change.baselines import is_stale, stale_reasons
from evaluation.models import Baseline, Dimension, EvaluationRun, EvaluationScore, is_heuristic
from evaluation.runs.control import Progress, progress_of
from evaluation.runs.coverage import NOTHING, Share, shares_of

_OF_RUN = (
    *("id", "url", "agent", "channel", "status", "error", "dimensions", "is_baseline", "judge", "heuristic"),
    *(
        "procedure",
        "repeats",
        "batch",
        "window",
        "window_start",
        "window_end",
        "where",
        "samples",
        "sample_size",
        "seed",
    ),
    *(
        "per_call",
        "history",
        "history_where",
        "simulated",
        "overall_score",
        "coverage",
        "token_usage",
        "progress",
        "waits_for",
    ),
    *("created_at", "started_at", "finished_at"),
)
COVERAGE = "share scored of the judgements this judge can make, 0 to 1; null where there are none"
_ASKED = (
    *("id", "dimension", "proposition_id", "claim", "weight", "inverted", "repeat", "message", "position", "channel"),
    *("compared_with", "context_snippet"),
)
_OF_SCORE = (
    *_ASKED,
    *("status", "score", "raw_score", "first_score", "count", "flaws", "evidence"),
    *("reasoning", "justification", "confidence", "recommendations", "reason", "judge", "heuristic", "served_model"),
    *("call", "judged_at"),
)
_OF_BASELINE = (
    *(
        "id",
        "agent",
        "dimension",
        "score",
        "count",
        "coverage",
        "judge",
        "heuristic",
        "procedure",
        "calibration",
        "is_stale",
    ),
    "stale_reason",
    *("persona_digest", "captured_at", "evaluation_run", "run_url", "url", "compare_url"),
)


@extend_schema_field({"type": ["array", "null"], "items": {"type": "number"}, "minItems": 2, "maxItems": 2})
class IntervalField(serializers.ListField):
    """95 % interval: low, high."""


class ProgressShown(serializers.Serializer[Any]):
    """Judgements settled, and all; those of its channels included."""

    settled = serializers.IntegerField()
    total = serializers.IntegerField()


class CalibrationShown(serializers.Serializer[Any]):
    """How well a judge agrees with people in one dimension."""

    kappa = serializers.FloatField(allow_null=True, help_text="quadratic-weighted")
    interval = IntervalField(allow_null=True)
    labels = serializers.IntegerField()
    items = serializers.IntegerField()
    annotators = serializers.IntegerField()
    enough = serializers.BooleanField()
    stale = serializers.BooleanField()


class RunRow(serializers.ModelSerializer[EvaluationRun]):
    """An evaluation as lists show it. Needs ``progress`` in its context, by primary key."""

    url = serializers.HyperlinkedIdentityField(view_name="evaluation:run")
    agent = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    channel = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    dimensions = serializers.ListField(child=serializers.ChoiceField(Dimension.choices), read_only=True)
    where = serializers.DictField(child=serializers.CharField(), read_only=True)
    history_where = serializers.DictField(child=serializers.CharField(), read_only=True)
    heuristic = serializers.BooleanField(source="is_heuristic", read_only=True)
    procedure = serializers.CharField(read_only=True)
    coverage = serializers.SerializerMethodField(help_text=COVERAGE)
    progress = serializers.SerializerMethodField()
    waits_for = serializers.SerializerMethodField(
        help_text="the batches it waits for, and how far they are; mostly empty"
    )

    class Meta:
        model = EvaluationRun
        fields: tuple[str, ...] = _OF_RUN
        ref_name = "EvaluationRow"

    def get_coverage(self, run: EvaluationRun) -> float | None:
        found: Progress = self.context["progress"][run.pk]
        return found.share.rounded

    @extend_schema_field(ProgressShown)
    def get_progress(self, run: EvaluationRun) -> dict[str, int]:
        found: Progress = self.context["progress"][run.pk]
        return {"settled": found.settled, "total": found.total}

    def get_waits_for(self, run: EvaluationRun) -> str:
        found: Progress = self.context["progress"][run.pk]
        return found.waits_for


def shown_run(request: Request, run: EvaluationRun) -> dict[str, Any]:
    """One evaluation as lists show it."""
    return dict(RunRow(run, context={"request": request, "progress": progress_of([run])}).data)


def links_of(request: Request, run: EvaluationRun) -> dict[str, str]:
    """Where to go from an evaluation."""
    ways = {"scores_url": "run-scores", "cancel_url": "run-cancel", "resume_url": "run-resume"}
    links = {name: reverse(f"evaluation:{view}", [run.pk], request=request) for name, view in ways.items()}
    if run.agent is not None:
        compare = reverse("evaluation:baseline-compare", [run.agent.slug], request=request)
        links["compare_url"] = f"{compare}?run={run.pk}"
    return links


class ScoreRow(serializers.ModelSerializer[EvaluationScore]):
    """One judgement: a proposition on a message, or on all that was said when `message` is null."""

    position = serializers.IntegerField(source="message.position", read_only=True, allow_null=True, default=None)
    channel = serializers.CharField(source="message.channel.slug", read_only=True, allow_null=True, default=None)
    flaws = serializers.ListField(child=serializers.CharField(), read_only=True)
    heuristic = serializers.SerializerMethodField()

    class Meta:
        model = EvaluationScore
        fields = _OF_SCORE

    def get_heuristic(self, score: EvaluationScore) -> bool:
        return is_heuristic(score.judge)


class BlindScoreRow(ScoreRow):
    """What was judged, without what the judge said."""

    class Meta:
        model = EvaluationScore
        fields = _ASKED


class BaselineRow(serializers.ModelSerializer[Baseline]):
    """The current baseline of an agent in one dimension, by one judge and procedure. Needs ``agreements`` in its context."""

    agent = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    heuristic = serializers.SerializerMethodField()
    coverage = serializers.SerializerMethodField(help_text=COVERAGE)
    calibration = serializers.SerializerMethodField(help_text="how well the judge agrees with people; null = not known")
    is_stale = serializers.SerializerMethodField(help_text="the persona changed since it was captured")
    stale_reason = serializers.SerializerMethodField(
        help_text="which versions of the persona came since, what made them and what they changed; empty when not stale"
    )
    run_url = serializers.SerializerMethodField()
    url = serializers.SerializerMethodField()
    compare_url = serializers.SerializerMethodField()
    _stale_reasons: dict[int, str] | None = None
    _shares: dict[int, dict[str, Share]] | None = None

    class Meta:
        model = Baseline
        fields = _OF_BASELINE

    def get_heuristic(self, baseline: Baseline) -> bool:
        return is_heuristic(baseline.judge)

    @extend_schema_field(CalibrationShown(allow_null=True))
    def get_calibration(self, baseline: Baseline) -> dict[str, Any] | None:
        key = Key(baseline.judge, baseline.procedure, baseline.dimension)
        return calibration_json(self.context["agreements"].get(key))

    def get_coverage(self, baseline: Baseline) -> float | None:
        if self._shares is None:  # of all rows at once
            rows = [baseline] if self.parent is None else list(self.parent.instance)  # type: ignore[arg-type]
            self._shares = shares_of({row.evaluation_run_id for row in rows})
        return self._shares.get(baseline.evaluation_run_id, {}).get(baseline.dimension, NOTHING).rounded

    def get_is_stale(self, baseline: Baseline) -> bool:
        return is_stale(baseline)

    def get_stale_reason(self, baseline: Baseline) -> str:
        if self._stale_reasons is None:  # of all rows at once
            self._stale_reasons = stale_reasons([baseline] if self.parent is None else list(self.parent.instance))  # type: ignore[arg-type]
        return self._stale_reasons.get(baseline.pk, "")

    @extend_schema_field(OpenApiTypes.URI)
    def get_run_url(self, baseline: Baseline) -> str:
        return self._link("evaluation:run", baseline.evaluation_run_id)

    @extend_schema_field(OpenApiTypes.URI)
    def get_url(self, baseline: Baseline) -> str:
        return self._link("evaluation:baselines-of-agent", baseline.agent.slug)

    @extend_schema_field(OpenApiTypes.URI)
    def get_compare_url(self, baseline: Baseline) -> str:
        return self._link("evaluation:baseline-compare", baseline.agent.slug)

    def _link(self, view: str, key: object) -> str:
        return str(reverse(view, [key], request=self.context["request"]))
