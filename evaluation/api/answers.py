"""The shapes of what evaluation answers with, for the schema: the services build the objects themselves."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from agents.api.parameters import paged
from evaluation.api.serializers import COVERAGE, BaselineRow, CalibrationShown, IntervalField, RunRow, ScoreRow
from evaluation.models import Dimension, EvaluationRun


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


PropositionPage = paged(PropositionShown)
