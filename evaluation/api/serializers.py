"""Evaluations and judgements as the API shows them. Every judge has its *heuristic*."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework.request import Request
from rest_framework.reverse import reverse
from rest_framework.serializers import (
    BooleanField,
    CharField,
    ChoiceField,
    DictField,
    FloatField,
    HyperlinkedRelatedField,
    IntegerField,
    JSONField,
    ListField,
    Serializer,
    SerializerMethodField,
    URLField,
)

from agents.kit.api.model_rows import Row
from evaluation.models import Dimension, EvaluationRun, EvaluationScore, SwapHalf, is_heuristic
from evaluation.runs.control import Progress, progress_of

COVERAGE = "share scored of the judgements this judge can make, 0 to 1; null where there are none"
_ASKED = (
    *("id", "dimension", "proposition_id", "claim", "weight", "inverted", "repeat", "message", "position"),
    *("channel", "compared_with", "context_snippet"),
)


class Heuristic(BooleanField):
    """Whether a judge is an offline one, whose scores are never compared with a model's."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(read_only=True, **kwargs)

    def to_representation(self, value: Any) -> bool:
        return is_heuristic(value)


def run_link(source: str = "evaluation_run") -> HyperlinkedRelatedField[Any]:
    """The address of the row's evaluation."""
    return HyperlinkedRelatedField(source=source, view_name="evaluationrun-detail", read_only=True)


@extend_schema_field({"type": ["array", "null"], "items": {"type": "number"}, "minItems": 2, "maxItems": 2})
class IntervalField(ListField):
    """95 % interval: low, high."""


class ProgressShown(Serializer[Any]):
    """Judgements settled, and all; those of its channels included."""

    settled = IntegerField()
    total = IntegerField()


class FigureShown(Serializer[Any]):
    """A figure of agreement, on `n` judgements."""

    value = FloatField(allow_null=True)
    interval = IntervalField(allow_null=True)
    n = IntegerField()
    reason = CharField(allow_blank=True, help_text="why there is none")


class CalibrationShown(Serializer[Any]):
    """How well a judge agrees with people in one dimension."""

    kappa = FloatField(allow_null=True, help_text="quadratic-weighted")
    interval = IntervalField(allow_null=True)
    spearman = FigureShown(allow_null=True)
    alpha = FigureShown(allow_null=True, help_text="Krippendorff's, judge and people")
    labels = IntegerField()
    items = IntegerField()
    annotators = IntegerField()
    enough = BooleanField()
    stale = BooleanField()


class SwapTestShown(Serializer[Any]):
    """How well a judge tells agents' own words from texts of others in one dimension (`manage.py check_judge`)."""

    auc = FloatField(allow_null=True, help_text="how often the own text scores higher: 0.5 is chance, 1 never wrong")
    interval = IntervalField(allow_null=True)
    reason = CharField(allow_blank=True, help_text="why there is no figure")
    high_share = FloatField(allow_null=True, help_text="share of the swapped texts scored 7 or more")
    own_scored = IntegerField()
    swapped_scored = IntegerField()
    agents = IntegerField()
    against = CharField(help_text="whose texts were swapped in: agents, foils, or agents and foils")
    checked_at = CharField()
    agent_auc = FloatField(allow_null=True, help_text="the same of this agent alone; null: not known")


class RunRow(Row):
    """An evaluation as lists show it. Needs ``progress`` in its context, by primary key."""

    dimensions = ListField(child=ChoiceField(Dimension.choices))
    where = DictField(child=CharField())
    history_where = DictField(child=CharField())
    heuristic = Heuristic(source="judge")
    procedure = CharField()
    coverage = SerializerMethodField(help_text=COVERAGE)
    progress = SerializerMethodField()
    waits_for = SerializerMethodField(help_text="the batches it waits for, and how far they are; mostly empty")

    class Meta:
        model = EvaluationRun
        fields: tuple[str, ...] = (
            *("id", "url", "agent", "channel", "status", "error", "dimensions", "is_baseline", "judge"),
            *("heuristic", "procedure", "repeats", "batch", "window", "window_start", "window_end", "where"),
            *("samples", "sample_size", "seed", "per_call", "history", "history_where", "simulated"),
            *("overall_score", "coverage", "token_usage", "progress", "waits_for", "created_at", "started_at"),
            "finished_at",
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

    position = IntegerField(source="message.position", allow_null=True, default=None)
    channel = CharField(source="message.channel.slug", allow_null=True, default=None)
    flaws = ListField(child=CharField())
    heuristic = Heuristic(source="judge")

    class Meta:
        model = EvaluationScore
        fields: tuple[str, ...] = (
            *_ASKED,
            *("status", "score", "raw_score", "first_score", "count", "flaws", "evidence", "reasoning"),
            *("justification", "confidence", "recommendations", "reason", "judge", "heuristic", "served_model"),
            *("call", "judged_at"),
        )


class BlindScoreRow(ScoreRow):
    """What was judged, without what the judge said."""

    class Meta(ScoreRow.Meta):
        fields = _ASKED


class ChannelScoreShown(Serializer[Any]):
    channel = CharField(allow_null=True)
    evaluation_run = IntegerField()
    messages = IntegerField()
    score = FloatField(required=False, allow_null=True)
    count = FloatField(required=False, allow_null=True)
    coverage = FloatField(allow_null=True, help_text=COVERAGE)


class IdeaShown(Serializer[Any]):
    idea = CharField()
    description = CharField(allow_blank=True)
    same = ListField(child=CharField())
    positions = ListField(child=IntegerField())
    by = ListField(child=CharField())


class DimensionSummaryShown(Serializer[Any]):
    """A dimension of an evaluation; one that is counted has `count` where others have `score`."""

    score = FloatField(required=False, allow_null=True, help_text="0 to 9")
    count = FloatField(required=False, allow_null=True)
    scored = IntegerField()
    trivial = IntegerField()
    unscored = IntegerField()
    coverage = FloatField(allow_null=True, help_text=COVERAGE)
    propositions = DictField(child=FloatField(allow_null=True))
    calibration = CalibrationShown(required=False, allow_null=True)
    swap_test = SwapTestShown(required=False, allow_null=True)
    noise = FloatField(required=False, help_text="spread of repeated judgements, in points")
    figures = JSONField(required=False)
    ideas = IdeaShown(many=True, required=False)
    channels = ChannelScoreShown(many=True, required=False)
    reason = CharField(required=False, help_text="why there is no score")


class SummaryShown(Serializer[Any]):
    """What an evaluation measured."""

    agent = CharField(required=False, allow_null=True)
    channel = CharField(required=False)
    evaluation_run = IntegerField()
    status = ChoiceField(EvaluationRun.Status.choices)
    error = CharField(allow_blank=True)
    procedure = CharField(required=False)
    repeats = IntegerField(required=False)
    simulated = BooleanField(required=False)
    swap_test = ChoiceField(SwapHalf.choices, required=False, help_text="made to test the judge, not the agent")
    actor_model = CharField(required=False, allow_blank=True)
    persona_digest = CharField(allow_blank=True)
    overall_score = FloatField(allow_null=True)
    coverage = FloatField(allow_null=True, help_text=COVERAGE)
    dimensions = DictField(child=DimensionSummaryShown())
    calls = IntegerField()
    tokens = IntegerField()
    cost_usd = FloatField(allow_null=True, help_text="of the priced calls; null = none has a price")
    unpriced_calls = IntegerField()
    cache_read_share = FloatField(allow_null=True)


class ChannelRunShown(Serializer[Any]):
    """An evaluation of a channel that stands behind an agent's."""

    channel = CharField(allow_null=True)
    messages = IntegerField()
    status = ChoiceField(EvaluationRun.Status.choices)
    evaluation_run = IntegerField()
    url = URLField()


class WholeRun(RunRow):
    """One evaluation with what it found."""

    scores_url = URLField()
    cancel_url = URLField()
    resume_url = URLField()
    compare_url = URLField(required=False, help_text="of an agent's evaluation")
    summary = SummaryShown()
    channels = ChannelRunShown(many=True)
    scores = ScoreRow(many=True)
    scores_complete = BooleanField()

    class Meta(RunRow.Meta):
        fields = (
            *RunRow.Meta.fields,
            *("scores_url", "cancel_url", "resume_url", "compare_url", "summary", "channels", "scores"),
            "scores_complete",
        )
        ref_name = "WholeEvaluation"


class AcceptedRun(RunRow):
    """An evaluation that a worker will make."""

    taken_up = BooleanField(required=False, help_text="the same was asked for before and has not ended")

    class Meta(RunRow.Meta):
        fields = (*RunRow.Meta.fields, "taken_up")
        ref_name = "AcceptedEvaluation"


class CuesShown(Serializer[Any]):
    supports = ListField(child=CharField())
    contradicts = ListField(child=CharField())


class PropositionShown(Serializer[Any]):
    """A claim that a judge scores, as its file has it."""

    dimension = ChoiceField(Dimension.choices)
    id = CharField()
    agent = CharField(allow_null=True, help_text="null = of the defaults")
    level = ChoiceField(["evaluation", "action"])
    claim = CharField(allow_blank=True)
    weight = FloatField()
    inverted = BooleanField()
    hard = BooleanField()
    include_personas = BooleanField()
    target_type = CharField()
    first_n = IntegerField()
    last_n = IntegerField()
    recommendations_for_improvement = CharField(allow_blank=True)
    precondition = CharField(allow_null=True, help_text="what must hold for it to be asked")
    rule = JSONField(allow_null=True, help_text="checked exactly, without a judge")
    cues = CuesShown(allow_null=True)
    measure = CharField(allow_null=True, help_text="counted, without a judge")
    trait = CharField(allow_blank=True, help_text="the trait it speaks of; mostly none")
    over_window = BooleanField(help_text="judged once over the window, not message by message")
    active = BooleanField()
    rejected = BooleanField()
    retired = BooleanField()
    quote = CharField(allow_blank=True)
    source = CharField(allow_blank=True)  # type: ignore[assignment]  # a name of the answer
