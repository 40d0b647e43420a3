"""Evaluations, judgements and baselines as the API shows them. *heuristic* stands beside every judge."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.reverse import reverse

from agents.api.rows import Row
from evaluation.calibration.agreement import Key, calibration_json
from evaluation.change.evidence import is_stale, stale_reasons
from evaluation.models import Baseline, Dimension, EvaluationRun, EvaluationScore, is_heuristic
from evaluation.runs.control import Progress, progress_of
from evaluation.runs.summary import NOTHING, Share, shares_of

COVERAGE = "share scored of the judgements this judge can make, 0 to 1; null where there are none"
_ASKED = (
    *("id", "dimension", "proposition_id", "claim", "weight", "inverted", "repeat", "message", "position", "channel"),
    *("compared_with", "context_snippet"),
)


class Heuristic(serializers.BooleanField):
    """Whether a judge is an offline one, whose scores are never compared with a model's."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(read_only=True, **kwargs)

    def to_representation(self, value: Any) -> bool:
        return is_heuristic(value)


def run_link(source: str = "evaluation_run") -> serializers.HyperlinkedRelatedField[Any]:
    """The address of the row's evaluation."""
    return serializers.HyperlinkedRelatedField(source=source, view_name="evaluationrun-detail", read_only=True)


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


class RunRow(Row):
    """An evaluation as lists show it. Needs ``progress`` in its context, by primary key."""

    dimensions = serializers.ListField(child=serializers.ChoiceField(Dimension.choices), read_only=True)
    where = serializers.DictField(child=serializers.CharField(), read_only=True)
    history_where = serializers.DictField(child=serializers.CharField(), read_only=True)
    heuristic = Heuristic(source="judge")
    procedure = serializers.CharField(read_only=True)
    coverage = serializers.SerializerMethodField(help_text=COVERAGE)
    progress = serializers.SerializerMethodField()
    waits_for = serializers.SerializerMethodField(
        help_text="the batches it waits for, and how far they are; mostly empty"
    )

    class Meta:
        model = EvaluationRun
        fields: tuple[str, ...] = (
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
            ),
            *("seed", "per_call", "history", "history_where", "simulated", "overall_score", "coverage", "token_usage"),
            *("progress", "waits_for", "created_at", "started_at", "finished_at"),
        )
        ref_name = "EvaluationRow"

    def get_coverage(self, run: EvaluationRun) -> float | None:
        return self._progress(run).share.rounded

    @extend_schema_field(ProgressShown)
    def get_progress(self, run: EvaluationRun) -> dict[str, int]:
        return {"settled": self._progress(run).settled, "total": self._progress(run).total}

    def get_waits_for(self, run: EvaluationRun) -> str:
        return self._progress(run).waits_for

    def _progress(self, run: EvaluationRun) -> Progress:
        progress: Progress = self.context["progress"][run.pk]
        return progress


def shown_run(request: Request, run: EvaluationRun) -> dict[str, Any]:
    """One evaluation as lists show it."""
    return dict(RunRow(run, context={"request": request, "progress": progress_of([run])}).data)


def links_of(request: Request, run: EvaluationRun) -> dict[str, str]:
    """Where to go from an evaluation."""
    ways = ("scores", "cancel", "resume")
    links = {f"{way}_url": str(reverse(f"evaluationrun-{way}", [run.pk], request=request)) for way in ways}
    if run.agent is not None:
        compare = reverse("baseline-compare", [run.agent.slug], request=request)
        links["compare_url"] = f"{compare}?run={run.pk}"
    return links


class ScoreRow(Row):
    """One judgement: a proposition on a message, or on all that was said when `message` is null."""

    position = serializers.IntegerField(source="message.position", read_only=True, allow_null=True, default=None)
    channel = serializers.CharField(source="message.channel.slug", read_only=True, allow_null=True, default=None)
    flaws = serializers.ListField(child=serializers.CharField(), read_only=True)
    heuristic = Heuristic(source="judge")

    class Meta:
        model = EvaluationScore
        fields: tuple[str, ...] = (
            *_ASKED,
            *("status", "score", "raw_score", "first_score", "count", "flaws", "evidence"),
            *("reasoning", "justification", "confidence", "recommendations", "reason", "judge", "heuristic"),
            *("served_model", "call", "judged_at"),
        )


class BlindScoreRow(ScoreRow):
    """What was judged, without what the judge said."""

    class Meta(ScoreRow.Meta):
        fields = _ASKED


class BaselineRow(Row):
    """The current baseline of an agent in one dimension, by one judge and procedure. Needs ``agreements`` in its context."""

    heuristic = Heuristic(source="judge")
    coverage = serializers.SerializerMethodField(help_text=COVERAGE)
    calibration = serializers.SerializerMethodField(help_text="how well the judge agrees with people; null = not known")
    is_stale = serializers.SerializerMethodField(help_text="the persona changed since it was captured")
    stale_reason = serializers.SerializerMethodField(
        help_text="which versions of the persona came since, what made them and what they changed; empty when not stale"
    )
    run_url = run_link()
    url, compare_url = (
        serializers.HyperlinkedRelatedField[Any](
            source="agent", view_name=view, lookup_field="slug", lookup_url_kwarg="agent", read_only=True
        )
        for view in ("baseline-detail", "baseline-compare")
    )
    _stale_reasons: dict[int, str] | None = None
    _shares: dict[int, dict[str, Share]] | None = None

    class Meta:
        model = Baseline
        fields = (
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
            ),
            *(
                "is_stale",
                "stale_reason",
                "persona_digest",
                "captured_at",
                "evaluation_run",
                "run_url",
                "url",
                "compare_url",
            ),
        )

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


class ChannelScoreShown(serializers.Serializer[Any]):
    channel = serializers.CharField(allow_null=True)
    evaluation_run = serializers.IntegerField()
    messages = serializers.IntegerField()
    score = serializers.FloatField(required=False, allow_null=True)
    count = serializers.FloatField(required=False, allow_null=True)
    coverage = serializers.FloatField(allow_null=True, help_text=COVERAGE)


class IdeaShown(serializers.Serializer[Any]):
    idea = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    same = serializers.ListField(child=serializers.CharField())
    positions = serializers.ListField(child=serializers.IntegerField())
    by = serializers.ListField(child=serializers.CharField())


class DimensionSummaryShown(serializers.Serializer[Any]):
    """A dimension of an evaluation; one that is counted has `count` where others have `score`."""

    score = serializers.FloatField(required=False, allow_null=True, help_text="0 to 9")
    count = serializers.FloatField(required=False, allow_null=True)
    scored = serializers.IntegerField()
    trivial = serializers.IntegerField()
    unscored = serializers.IntegerField()
    coverage = serializers.FloatField(allow_null=True, help_text=COVERAGE)
    propositions = serializers.DictField(child=serializers.FloatField(allow_null=True))
    calibration = CalibrationShown(required=False, allow_null=True)
    noise = serializers.FloatField(required=False, help_text="spread of repeated judgements, in points")
    figures = serializers.JSONField(required=False)
    ideas = IdeaShown(many=True, required=False)
    channels = ChannelScoreShown(many=True, required=False)
    reason = serializers.CharField(required=False, help_text="why there is no score")


class SummaryShown(serializers.Serializer[Any]):
    """What an evaluation found."""

    agent = serializers.CharField(required=False, allow_null=True)
    channel = serializers.CharField(required=False)
    evaluation_run = serializers.IntegerField()
    status = serializers.ChoiceField(EvaluationRun.Status.choices)
    error = serializers.CharField(allow_blank=True)
    procedure = serializers.CharField(required=False)
    repeats = serializers.IntegerField(required=False)
    simulated = serializers.BooleanField(required=False)
    actor_model = serializers.CharField(required=False, allow_blank=True)
    persona_digest = serializers.CharField(allow_blank=True)
    overall_score = serializers.FloatField(allow_null=True)
    coverage = serializers.FloatField(allow_null=True, help_text=COVERAGE)
    dimensions = serializers.DictField(child=DimensionSummaryShown())
    calls = serializers.IntegerField()
    tokens = serializers.IntegerField()
    cost_usd = serializers.FloatField(allow_null=True, help_text="of the priced calls; null = none has a price")
    unpriced_calls = serializers.IntegerField()
    cache_read_share = serializers.FloatField(allow_null=True)


class ChannelRunShown(serializers.Serializer[Any]):
    """An evaluation of a channel that stands behind an agent's."""

    channel = serializers.CharField(allow_null=True)
    messages = serializers.IntegerField()
    status = serializers.ChoiceField(EvaluationRun.Status.choices)
    evaluation_run = serializers.IntegerField()
    url = serializers.URLField()


class WholeRun(RunRow):
    """One evaluation with what it found."""

    scores_url = serializers.URLField()
    cancel_url = serializers.URLField()
    resume_url = serializers.URLField()
    compare_url = serializers.URLField(required=False, help_text="of an agent's evaluation")
    summary = SummaryShown()
    channels = ChannelRunShown(many=True)
    scores = ScoreRow(many=True)
    scores_complete = serializers.BooleanField()

    class Meta(RunRow.Meta):
        fields = (
            *RunRow.Meta.fields,
            *("scores_url", "cancel_url", "resume_url", "compare_url", "summary", "channels", "scores"),
            "scores_complete",
        )
        ref_name = "WholeEvaluation"


class AcceptedRun(RunRow):
    """An evaluation that a worker will make."""

    taken_up = serializers.BooleanField(required=False, help_text="the same was asked for before and has not ended")

    class Meta(RunRow.Meta):
        fields = (*RunRow.Meta.fields, "taken_up")
        ref_name = "AcceptedEvaluation"


class MeasurementShown(serializers.Serializer[Any]):
    name = serializers.CharField()
    evaluation_run = serializers.IntegerField(allow_null=True)
    where = serializers.DictField(child=serializers.CharField(), allow_null=True)
    persona_digest = serializers.CharField(allow_blank=True)


class ChangeShown(serializers.Serializer[Any]):
    """A score now and in the baseline. `n` and `baseline_n` count what `unit` says; `p` is adjusted for all that was compared."""

    baseline = serializers.FloatField(allow_null=True)
    candidate = serializers.FloatField(allow_null=True)
    delta = serializers.FloatField(allow_null=True)
    interval = IntervalField(allow_null=True)
    interval_note = serializers.CharField(allow_blank=True)
    verdict = serializers.CharField()
    worse = serializers.BooleanField()
    reason = serializers.CharField(allow_blank=True)
    p = serializers.FloatField(allow_null=True)
    n = serializers.IntegerField()
    baseline_n = serializers.IntegerField()
    unit = serializers.CharField()
    n_more = serializers.IntegerField(allow_null=True)
    coverage = serializers.FloatField(allow_null=True, help_text=COVERAGE)
    baseline_coverage = serializers.FloatField(allow_null=True, help_text=COVERAGE)
    sd = serializers.FloatField(allow_null=True)
    smallest_detectable = serializers.FloatField(allow_null=True)
    paired = serializers.BooleanField()
    counted = serializers.BooleanField(required=False)


class DimensionChangeShown(ChangeShown):
    propositions = serializers.DictField(child=ChangeShown())


class LostShown(serializers.Serializer[Any]):
    """A proposition of which surely less than half as much is scored as in the baseline: judgements scored, of those that could be."""

    dimension = serializers.ChoiceField(Dimension.choices)
    proposition = serializers.CharField()
    baseline_scored = serializers.IntegerField()
    baseline_of = serializers.IntegerField()
    scored = serializers.IntegerField()
    of = serializers.IntegerField()
    p = serializers.FloatField(help_text="one-sided Fisher's exact test, adjusted for all propositions of the agent")


class ComparisonShown(serializers.Serializer[Any]):
    target = serializers.CharField()
    judge = serializers.CharField()
    procedure = serializers.CharField()
    baseline = MeasurementShown()
    candidate = MeasurementShown()
    stale = serializers.BooleanField()
    persona_changes = serializers.ListField(child=serializers.CharField())
    margin = serializers.FloatField()
    dimensions = serializers.DictField(child=DimensionChangeShown())
    worse = serializers.ListField(child=serializers.CharField())
    only_baseline = serializers.ListField(child=serializers.CharField())
    only_candidate = serializers.ListField(child=serializers.CharField())
    changed = serializers.ListField(child=serializers.CharField())
    scored_in_one = serializers.ListField(child=serializers.CharField())
    over_window = serializers.ListField(child=serializers.CharField())
    not_enough_data = LostShown(many=True)
    notes = serializers.ListField(child=serializers.CharField())


class ComparisonAnswer(serializers.Serializer[Any]):
    """An evaluation compared with the baseline."""

    agent = serializers.CharField()
    run = RunRow()
    comparison = ComparisonShown()


class BaselinesAnswer(serializers.Serializer[Any]):
    """The current baselines of one agent."""

    agent = serializers.CharField()
    display_name = serializers.CharField()
    baselines = BaselineRow(many=True)


class CuesShown(serializers.Serializer[Any]):
    supports = serializers.ListField(child=serializers.CharField())
    contradicts = serializers.ListField(child=serializers.CharField())


class PropositionShown(serializers.Serializer[Any]):
    """A claim that a judge scores, as its file has it."""

    dimension = serializers.ChoiceField(Dimension.choices)
    id = serializers.CharField()
    agent = serializers.CharField(allow_null=True, help_text="null = of the defaults")
    level = serializers.ChoiceField(["evaluation", "action"])
    claim = serializers.CharField(allow_blank=True)
    weight = serializers.FloatField()
    inverted = serializers.BooleanField()
    hard = serializers.BooleanField()
    include_personas = serializers.BooleanField()
    target_type = serializers.CharField()
    first_n = serializers.IntegerField()
    last_n = serializers.IntegerField()
    recommendations_for_improvement = serializers.CharField(allow_blank=True)
    precondition = serializers.CharField(allow_null=True, help_text="what must hold for it to be asked")
    rule = serializers.JSONField(allow_null=True, help_text="checked exactly, without a judge")
    cues = CuesShown(allow_null=True)
    measure = serializers.CharField(allow_null=True, help_text="counted, without a judge")
    trait = serializers.CharField(allow_blank=True, help_text="the trait it speaks of; mostly none")
    over_window = serializers.BooleanField(help_text="judged once over the window, not message by message")
    active = serializers.BooleanField()
    rejected = serializers.BooleanField()
    retired = serializers.BooleanField()
    quote = serializers.CharField(allow_blank=True)
    source = serializers.CharField(allow_blank=True)  # type: ignore[assignment]  # a name of the answer
