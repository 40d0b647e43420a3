"""Baselines, which evaluations are newest, what changed between the two, and alerts of drift."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, get_args

from django.conf import settings
from django.db import models
from django.db.models import Q

from agents.kit.models import Leasable
from agents.models import Agent, Message
from evaluation.models import Dimension, EvaluationRun, EvaluationSchedule, Method
from evaluation.statistics.difference import Verdict

if TYPE_CHECKING:
    from evaluation.change.change import ChangeResult
    from evaluation.change.lost import Lost
    from evaluation.runs.shares import Share


class Baseline(models.Model):
    """The current baseline of an agent for one judge, procedure and dimension; replaced only by a capture that succeeded."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="baselines")
    judge = models.CharField(max_length=200)
    procedure = models.CharField(
        max_length=64, default=Method.PLUMBLINE.value, help_text="how it was judged, e.g. plumbline+hard"
    )
    dimension = models.CharField(max_length=32, choices=Dimension.choices)
    evaluation_run = models.ForeignKey(EvaluationRun, on_delete=models.CASCADE, related_name="baselines")
    score = models.FloatField(
        null=True, blank=True, help_text="0 to 9; empty for a count, and where only a statistic compares"
    )
    count = models.PositiveIntegerField(null=True, blank=True, help_text="distinct ideas, for ideas quantity")
    persona_digest = models.CharField(max_length=64, blank=True, default="", help_text="persona it was captured under")
    captured_at = models.DateTimeField()

    class Meta:
        db_table = "baselines"
        ordering: ClassVar = ["agent", "judge", "dimension"]
        indexes: ClassVar = [
            # `judged_ways` reads nothing else.
            models.Index(fields=["judge", "procedure", "agent", "captured_at"], name="baseline_way"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["agent", "judge", "procedure", "dimension"], name="baseline_one_current"),
            models.CheckConstraint(
                condition=Q(score__gte=0, score__lte=9, count__isnull=True) | Q(score__isnull=True),
                name="baseline_score_range",
            ),
        ]

    def __str__(self) -> str:
        number = self.count if self.score is None else round(self.score, 1)
        return f"{self.agent} {self.dimension}: {'no score' if number is None else number}"


class Evidence(models.Model):
    """That a completed evaluation of an agent scored something in a dimension, and how new the messages were.

    Agent, judge and procedure are those of the evaluation, repeated here for the index.
    """

    evaluation_run = models.ForeignKey(EvaluationRun, on_delete=models.CASCADE, related_name="evidence")
    dimension = models.CharField(max_length=32, choices=Dimension.choices)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+")
    judge = models.CharField(max_length=200)
    procedure = models.CharField(max_length=64)
    newest_message_at = models.DateTimeField(
        help_text="when the newest message that was judged was said (stored, where it has no time)"
    )

    class Meta:
        db_table = "evaluation_evidence"
        ordering: ClassVar = ["-newest_message_at", "-evaluation_run_id"]
        indexes: ClassVar = [
            models.Index(
                fields=["agent", "judge", "procedure", "dimension", "-newest_message_at", "-evaluation_run"],
                name="evidence_newest",
            )
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["evaluation_run", "dimension"], name="evidence_once_per_dimension")
        ]

    def __str__(self) -> str:
        return f"{self.dimension} in evaluation {self.evaluation_run_id}"


class Change(models.Model):
    """How one number of an agent changed from its baseline to a later evaluation: of a dimension, or of one proposition in it.

    Computed when an evaluation ends and read by every page (see `evaluation.change.stored`); never edited. Agent, judge and procedure
    are those of the evaluation, repeated here for the index.
    """

    evaluation_run = models.ForeignKey(EvaluationRun, on_delete=models.CASCADE, related_name="changes")
    baseline_run = models.ForeignKey(EvaluationRun, on_delete=models.CASCADE, related_name="+")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="changes")
    judge = models.CharField(max_length=200)
    procedure = models.CharField(max_length=64)
    dimension = models.CharField(max_length=32, choices=Dimension.choices)
    proposition = models.CharField(max_length=120, blank=True, default="", help_text="empty = the dimension as a whole")
    current = models.BooleanField(
        default=True, help_text="of the newest evaluation since the baseline: how the agent is now"
    )
    measured_at = models.DateTimeField(help_text="when the newest message that was judged was said")
    computed_at = models.DateTimeField(auto_now=True)

    verdict = models.CharField(max_length=20, choices=[(name, name) for name in get_args(Verdict)])
    baseline = models.FloatField(null=True, blank=True, help_text="score 0 to 9, or a count of ideas")
    candidate = models.FloatField(null=True, blank=True, help_text="the same in the evaluation")
    points = models.FloatField(null=True, blank=True, help_text="the change; empty = nothing to compare")
    low = models.FloatField(null=True, blank=True, help_text="lower end of its 95 % interval")
    high = models.FloatField(null=True, blank=True, help_text="upper end of its 95 % interval")
    p = models.FloatField(
        null=True, blank=True, help_text="chance of such a difference where there is none (Holm); empty = not tested"
    )
    p_alone = models.FloatField(
        null=True, blank=True, help_text="the same of this number alone, without Holm's correction"
    )
    n = models.PositiveIntegerField(default=0, help_text="messages it rests on in the evaluation")
    baseline_n = models.PositiveIntegerField(default=0, help_text="messages it rests on in the baseline")
    n_more = models.PositiveIntegerField(null=True, blank=True, help_text="more messages that would decide")
    scored = models.PositiveIntegerField(default=0, help_text="judgements scored in the evaluation")
    baseline_scored = models.PositiveIntegerField(default=0, help_text="judgements scored in the baseline")
    unscored = models.PositiveIntegerField(default=0, help_text="judgements that could not be scored in the evaluation")
    deleted = models.PositiveIntegerField(default=0, help_text="judgements, of both, whose message was deleted")
    inverted = models.BooleanField(default=False, help_text="an anti-pattern: 9 means not at all")
    value = models.JSONField(default=dict, help_text="the whole result, as the comparison gave it")
    proposition_digest = models.TextField(blank=True, default="", help_text="of what was asked")
    agreement = models.FloatField(
        null=True, blank=True, help_text="the judge's agreement with people (kappa), as it was known then"
    )
    labels = models.PositiveIntegerField(default=0, help_text="human labels that this agreement rests on")

    baseline_quote = models.ForeignKey(
        Message, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", help_text="shows how it was"
    )
    baseline_quote_score = models.PositiveSmallIntegerField(null=True, blank=True)
    quote = models.ForeignKey(
        Message, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", help_text="shows how it is"
    )
    quote_score = models.PositiveSmallIntegerField(null=True, blank=True)
    since_tag = models.CharField(
        max_length=32,
        blank=True,
        default="",
        help_text="the tag that all judged messages carry, and none before: build",
    )
    since_value = models.TextField(blank=True, default="", help_text="its value")
    since_at = models.DateTimeField(null=True, blank=True, help_text="when the agent first said something with it")
    baseline_course = models.JSONField(
        default=list, blank=True, help_text="its scores in the baseline, oldest first: means of neighbouring messages"
    )
    course = models.JSONField(default=list, blank=True, help_text="the same in the evaluation")

    class Meta:
        db_table = "changes"
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [
            models.Index(fields=["agent", "judge", "procedure"], condition=Q(current=True), name="change_current"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["evaluation_run", "dimension", "proposition"], name="change_once")
        ]

    def __str__(self) -> str:
        name = f"{self.dimension}/{self.proposition}" if self.proposition else self.dimension
        return f"{name} in evaluation {self.evaluation_run_id}: {self.verdict}"

    @cached_property
    def result(self) -> ChangeResult:
        """Return the value as `compare` gives it for this agent; the overview replaces it by one that is corrected for all agents."""
        from evaluation.change.change import ChangeResult  # what it needs takes 0.15 s to import, in every process

        return ChangeResult.model_validate(self.value["result"])

    @property
    def lost(self) -> Lost | None:
        """Return that significantly less than half as much is scored as in the baseline; None where it is not so."""
        from evaluation.change.lost import Lost

        lost = self.value.get("lost")
        return Lost.model_validate(lost) if lost else None

    @property
    def halved(self) -> tuple[Share, Share] | None:
        """Return the shares scored before and now, of a dimension of which less than half as much is scored, be it by chance."""
        from evaluation.runs.shares import Share

        halved = self.value.get("halved")
        if not halved:
            return None
        before, now = halved
        return Share(**before), Share(**now)

    @property
    def reworded(self) -> list[str]:
        """Return the propositions of a dimension that are not the same any more, so not compared."""
        return list(self.value.get("reworded", ()))

    @property
    def since(self) -> tuple[str, str] | None:
        """Return the tag since which it changed, e.g. ``("build", "41")``; None where there is none."""
        return (self.since_tag, self.since_value) if self.since_tag else None


class DriftAlert(models.Model):
    """A lasting fall in a series of scores, reported once. Series of other judges or procedures are other series."""

    schedule = models.ForeignKey(
        EvaluationSchedule, null=True, blank=True, on_delete=models.SET_NULL, related_name="alerts"
    )
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="drift_alerts")
    dimension = models.CharField(max_length=32)
    judge = models.CharField(max_length=200)
    procedure = models.CharField(max_length=64)
    evaluation_run = models.ForeignKey(
        "evaluation.EvaluationRun", on_delete=models.CASCADE, related_name="alerts", help_text="where it was noticed"
    )
    since = models.DateTimeField(help_text="when the fall began, as estimated by the test")
    before = models.FloatField(help_text="mean score before, 0 to 9")
    after = models.FloatField(help_text="mean score since, 0 to 9")
    created_at = models.DateTimeField(auto_now_add=True)
    alert_id = models.PositiveBigIntegerField(
        null=True, blank=True, db_index=True, help_text="of the alert that people were sent; empty = none was raised"
    )
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    note = models.CharField(max_length=500, blank=True, default="", help_text="of who acknowledged it")

    class Meta:
        db_table = "drift_alerts"
        ordering: ClassVar = ["-created_at", "-pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["evaluation_run", "agent", "dimension"], name="drift_alert_once_per_run")
        ]

    def __str__(self) -> str:
        return f"{self.agent} {self.dimension}: {self.before:.1f} → {self.after:.1f}"


class JudgeSentinel(models.Model):
    """Frozen judgements of a judge and procedure, which are asked again with each scheduled evaluation: has the judge changed?

    See `evaluation.change.sentinel`.
    """

    judge = models.CharField(max_length=200)
    procedure = models.CharField(max_length=64, default=Method.PLUMBLINE.value)
    seed = models.BigIntegerField(help_text="of the draw")
    items = models.JSONField(
        default=list, blank=True, help_text="the frozen judgements: what is asked, and the score of the reference"
    )
    identity = models.JSONField(default=dict, blank=True, help_text="who gave the reference: server, model, prompts")
    reference_at = models.DateTimeField(
        null=True, blank=True, help_text="when the reference was taken; empty = not yet"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = "sentinel"
        db_table = "judge_sentinels"
        ordering: ClassVar = ["judge", "procedure"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["judge", "procedure"], name="judge_sentinel_once"),
        ]

    def __str__(self) -> str:
        return f"{self.judge} ({self.procedure})"


class SentinelCheck(Leasable):
    """One look at a sentinel: its frozen judgements are asked again, and compared with the reference."""

    sentinel = models.ForeignKey(JudgeSentinel, on_delete=models.CASCADE, related_name="checks")
    every_minutes = models.PositiveIntegerField(help_text="minutes between two looks, as scheduled")
    fired_at = models.DateTimeField(help_text="when the schedule asked for it, and for the evaluations beside it")
    answers = models.JSONField(default=dict, blank=True, help_text="scores by frozen judgement; null = unscored")
    identity = models.JSONField(default=dict, blank=True, help_text="who answered: server, model, prompts")
    change = models.JSONField(null=True, blank=True, help_text="from the reference to these answers; empty = none yet")
    changed = models.BooleanField(
        default=False, help_text="whether the judge changed significantly, for the first time"
    )
    pairs = models.PositiveIntegerField(default=0, help_text="frozen judgements that were compared")
    ended_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="when the change was over: accepted, or the judge went back; empty = it is open",
    )
    went_back = models.BooleanField(
        default=False, help_text="whether the change was over because the judge answered as before"
    )
    accepted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        verbose_name = "check of a sentinel"
        verbose_name_plural = "checks of sentinels"
        db_table = "judge_sentinel_checks"
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [
            models.Index(
                fields=["created_at", "id"], condition=Q(status__in=["pending", "running"]), name="sentinel_check_open"
            ),
            models.Index(fields=["sentinel"], condition=Q(changed=True), name="sentinel_check_changed"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["sentinel"], condition=Q(status__in=["pending", "running"]), name="sentinel_check_one_open"
            ),
        ]

    def __str__(self) -> str:
        return f"check {self.pk} of {self.sentinel}"

    @property
    def work_id(self) -> str:
        """Return the ledger's name for this check: every call it made carries it."""
        return f"sentinel_check:{self.pk}"

    @cached_property
    def result(self) -> ChangeResult | None:
        """Return the change from the reference; None where nothing was compared."""
        from evaluation.change.change import ChangeResult

        return ChangeResult.model_validate(self.change) if self.change else None
