"""Evaluations and what they store: judgements, channels and ideas; schedules; and the names all tables share."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, ClassVar

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models, transaction
from django.db.models import Exists, F, OuterRef, Q, Value
from django.db.models.functions import Cast, Coalesce, Concat
from django.utils import timezone

from agents.kit.alerting import AlertKind, raise_alert
from agents.kit.llm import providers
from agents.kit.models import Leasable, LLMBatch, LLMCall
from agents.kit.running import retry_on_outage
from agents.kit.text.patterns import TIMED_OUT
from agents.models import Agent, Channel, Message
from agents.models.conversations import validate_tags
from evaluation.dimensions import CHANNEL_DIMENSIONS, Dimension
from evaluation.windows import parse_window

RULE_JUDGE = "rule"  # the judge of what an exact rule scored
STATISTIC = "statistic"  # the served model of what an offline judge computed from the text instead of reading it
OUT_OF_REACH = "out_of_reach"  # the cause of a judgement for which an offline judge has no means
SIMULATION = "simulation"  # the tag of what was said in a simulation; its value is the simulation's id


class Method(models.TextChoices):
    """How the judge is asked and what its numbers mean. Scores by different methods are never compared."""

    PLUMBLINE = "plumbline", "Plumbline"
    TINYTROUPE = (
        "tinytroupe",
        "TinyTroupe (one claim per call, the judge takes penalties off itself, a trivial 9 counts)",
    )


PROCEDURE = ("method", "hard", "double_check", "few_shot", "simulated", "swap_test")  # columns that name it
FEW_SHOT_MARK = "few-shot-"  # in the name of a procedure, before the digest of the examples


def procedure_name(
    *,
    method: str,
    hard: bool,
    double_check: bool,
    few_shot: str = "",
    simulated: bool = False,
    swap_test: str = "",
) -> str:
    """Name how something is judged, e.g. ``plumbline+hard+simulated``; what was simulated, or tests the judge, is another procedure.

    Args:
        few_shot: Digest of the labelled examples that the judge is shown (`FewShotExamples`); empty for none.
        swap_test: Which half of a test of the judge it is (a value of `SwapHalf`); empty for none.
    """
    parts = [method]
    if hard:
        parts.append("hard")
    if double_check:
        parts.append("double-check")
    if few_shot:
        parts.append(f"{FEW_SHOT_MARK}{few_shot}")
    if simulated:
        parts.append("simulated")
    if swap_test:
        parts.append(swap_test)
    return "+".join(parts)


def procedure_fields(procedure: str) -> dict[str, Any]:
    """Return the fields of a run that was judged by `procedure`, e.g. ``plumbline+hard``; the opposite of `procedure_name`.

    Raises:
        ValueError: It is not written as `procedure_name` writes it, or is that of a swap test; names what is allowed.
    """
    method, *marks = procedure.split("+")
    few_shot = [mark.removeprefix(FEW_SHOT_MARK) for mark in marks if mark.startswith(FEW_SHOT_MARK)]
    fields: dict[str, Any] = {
        "method": method,
        "hard": "hard" in marks,
        "double_check": "double-check" in marks,
        "few_shot": few_shot[0] if few_shot else "",
        "simulated": "simulated" in marks,
    }
    if method not in Method.values or procedure_name(**fields) != procedure:
        allowed = f"{' or '.join(Method.values)}, then [+hard][+double-check][+{FEW_SHOT_MARK}DIGEST][+simulated]"
        raise ValueError(f"procedure {procedure!r}: allowed: {allowed}")
    return fields


def is_heuristic(judge: str) -> bool:
    """Return whether a judge is an offline heuristic: shown as one, never averaged or compared with an LLM's scores."""
    return providers.is_heuristic(judge)


class SwapHalf(models.TextChoices):
    """The parts of tests of a judge (`manage.py check_judge`). None is a score of the agent, and in no figure of it.

    The swap test has own words and swapped texts, the order test own words, shuffled and alone.
    """

    OWN = "own-words", "what the agent said"
    SWAPPED = "swapped-texts", "texts of others in place of what the agent said"
    SHUFFLED = "shuffled", "what the agent said, the propositions of each message in another order"
    ALONE = "alone", "what the agent said, each proposition in a call of its own"


class EvaluationRun(Leasable):
    """One evaluation of exactly one target: an agent, or a channel. Its items are `EvaluationScore` rows."""

    WHOSE: ClassVar = Coalesce(F("agent_id"), F("channel_id") * -1)

    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="evaluation_runs")
    channel = models.ForeignKey(
        Channel, null=True, blank=True, on_delete=models.CASCADE, related_name="evaluation_runs"
    )
    dimensions = models.JSONField(help_text="ids of the dimensions measured")
    is_baseline = models.BooleanField(default=False)
    judge = models.CharField(max_length=200, help_text="model that judged; offline judges are heuristic")
    judge_endpoint = models.CharField(
        max_length=300, blank=True, default="", help_text="server that was asked; empty = answered in this process"
    )
    prompt_digest = models.CharField(
        max_length=64, blank=True, default="", help_text="of the judge's prompts; an offline judge's: of its rules"
    )
    served_models = models.JSONField(
        default=list, blank=True, help_text="models that answered, as the server names them; noted when it ended"
    )
    window = models.CharField(max_length=32, default="all", help_text="all, last:N, or a duration such as 7d or 24h")
    window_start = models.DateTimeField(
        null=True, blank=True, help_text="earliest time in the window; empty = no limit"
    )
    window_end = models.DateTimeField(null=True, blank=True, help_text="latest time in the window; empty = no limit")
    where = models.JSONField(default=dict, blank=True, help_text="tags a message must have to be measured")
    samples = models.PositiveIntegerField(default=20, help_text="most messages sampled for adherence")
    sample_size = models.PositiveIntegerField(
        default=0, help_text="messages sampled; where none are, those judged at once"
    )
    seed = models.BigIntegerField(default=0, help_text="seed of the sampling")
    per_call = models.PositiveSmallIntegerField(default=10, help_text="most propositions asked in one call, 1 to 10")
    history = models.CharField(
        max_length=32, default="before", help_text="what self-consistency compares with: before the window, or a window"
    )
    history_start = models.DateTimeField(null=True, blank=True, help_text="earliest time in the history")
    history_end = models.DateTimeField(null=True, blank=True, help_text="latest time in the history")
    history_where = models.JSONField(default=dict, blank=True, help_text="tags a message of the history must have")
    repeats = models.PositiveSmallIntegerField(default=1, help_text="judgements per item, 1 to 20; their mean counts")
    hard = models.BooleanField(default=False, help_text="every claim that is no anti-pattern is judged in hard mode")
    double_check = models.BooleanField(default=False, help_text="the judge is asked a second time whether it is sure")
    method = models.CharField(max_length=16, choices=Method.choices, default=Method.PLUMBLINE)
    few_shot = models.CharField(
        max_length=8,
        blank=True,
        default="",
        help_text="digest of the labelled examples that the judge is shown; empty = it is shown none",
    )
    additional_context = models.JSONField(
        default=dict, blank=True, help_text="what preconditions and the judge are given beside the messages, as data"
    )
    simulated = models.BooleanField(
        default=False, help_text="what was judged was said in simulated conversations, marked synthetic"
    )
    actor_model = models.CharField(max_length=200, blank=True, default="", help_text="model that acted in a simulation")
    situations = models.JSONField(
        default=list, blank=True, editable=False, help_text="that are simulated for it; empty = those of Plumbline"
    )
    swap_test = models.CharField(
        max_length=16,
        choices=SwapHalf.choices,
        blank=True,
        default="",
        help_text="made to test the judge, not the agent",
    )
    swaps = models.JSONField(
        default=dict,
        blank=True,
        editable=False,
        help_text="by message what stands in for its text: another agent's message, or a foil",
    )
    position_bins = models.JSONField(
        default=list,
        blank=True,
        help_text="sampled evenly by position: [first, last] each, last empty = no end; empty = sampled over all",
    )
    batch = models.BooleanField(
        default=False, help_text="the judge is asked in batches: half the price, an answer within a day"
    )
    schedule = models.ForeignKey(
        "evaluation.EvaluationSchedule", null=True, blank=True, on_delete=models.SET_NULL, related_name="runs"
    )
    series_points = models.JSONField(
        null=True,
        blank=True,
        editable=False,
        help_text="score and standard error per dimension, stored when a scheduled run was looked at for drift; empty = not yet",
    )
    figures = models.JSONField(
        default=dict, blank=True, help_text="what was measured beside the judgements, by dimension"
    )
    channel_runs = models.ManyToManyField(
        "self",
        symmetrical=False,
        blank=True,
        through="ChannelShare",
        through_fields=("agent_run", "channel_run"),
        related_name="agent_runs",
        help_text="evaluations of the channels the agent spoke in, for convergence and ideas",
    )
    overall_score = models.FloatField(
        null=True, blank=True, help_text="mean of the dimensions' scores, 0 to 9; empty = nothing scored"
    )
    token_usage = models.PositiveBigIntegerField(
        default=0, help_text="tokens of all kinds, summed over the ledger when it ended"
    )
    persona_digest = models.CharField(max_length=64, blank=True, default="")
    proposition_digest = models.CharField(max_length=64, blank=True, default="")
    proposition_digests = models.JSONField(
        default=dict, blank=True, help_text="of each proposition, by dimension and id: tells which changed since"
    )
    spec_digest = models.CharField(
        max_length=64, blank=True, default="", db_index=True, help_text="what was asked for; finds the run to resume"
    )

    class Meta:
        verbose_name = "evaluation"
        db_table = "evaluation_runs"
        ordering: ClassVar = ["-created_at", "-pk"]
        indexes: ClassVar = [
            models.Index(fields=["status", "created_at"], name="evaluation_run_status_created"),
            models.Index(fields=["agent", "-created_at"], name="evaluation_run_agent_created"),
            models.Index(fields=["agent", "judge", "-created_at"], name="evaluation_run_agent_judge"),
            models.Index(
                Coalesce(F("agent_id"), F("channel_id") * -1),
                F("created_at"),
                F("id"),
                condition=Q(status__in=["pending", "running"]),
                name="evaluation_run_open_of_whom",
            ),
            models.Index(
                fields=["status"],
                condition=Q(agent__isnull=False, schedule__isnull=False, series_points__isnull=True),
                name="evaluation_run_not_looked_at",
            ),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(agent__isnull=False, channel__isnull=True) | Q(agent__isnull=True, channel__isnull=False),
                name="evaluation_run_one_target",
                violation_error_message="An evaluation targets an agent or a channel, exactly one of them.",
            ),
            models.CheckConstraint(
                condition=Q(overall_score__isnull=True) | Q(overall_score__gte=0, overall_score__lte=9),
                name="evaluation_run_overall_range",
            ),
            models.CheckConstraint(
                condition=Q(per_call__gte=1, per_call__lte=10), name="evaluation_run_per_call_range"
            ),
            models.CheckConstraint(condition=Q(repeats__gte=1, repeats__lte=20), name="evaluation_run_repeats_range"),
        ]

    def __str__(self) -> str:
        return f"evaluation {self.pk} of {self.agent or self.channel}"

    @classmethod
    def leasable(cls) -> Q:
        """Return the filter of runs that may be leased, except those waiting for a batch."""
        work_id = Concat(Value("evaluation_run:"), Cast(OuterRef("pk"), models.CharField()))
        waits = Exists(LLMBatch.objects.filter(work_id=work_id, status__in=LLMBatch.OPEN))
        return super().leasable() & (Q(batch=False) | ~Q(waits))

    def finish(self, *, owner: str, status: str, error: str = "", **fields: Any) -> bool:
        """End it, with an alert in the same transaction where it failed."""
        if status not in (self.Status.FAILED, self.Status.ERRORED):
            return super().finish(owner=owner, status=status, error=error, **fields)
        return retry_on_outage(lambda: self._fail(owner=owner, status=status, error=error, **fields))

    @transaction.atomic
    def _fail(self, **ended: Any) -> bool:
        finished = super().finish(**ended)
        if finished:
            self.given_up(self.error)
        return finished

    def given_up(self, why: str) -> None:
        """Raise the alert that it failed; those of one agent, or of one channel, have the same `about`."""
        whose = self.agent.display_name if self.agent is not None else f"channel {self.channel}"
        raise_alert(
            kind=AlertKind.EVALUATION_FAILED,
            about=f"{self.agent_id or ''}/{self.channel_id or ''}",
            title=f"Evaluation {self.pk} of {whose} failed",
            agent=self.agent,
            page=self,
        )

    @property
    def work_id(self) -> str:
        """Return the ledger's name for this run: every call it made carries it."""
        return f"evaluation_run:{self.pk}"

    @property
    def is_heuristic(self) -> bool:
        return is_heuristic(self.judge)

    @property
    def procedure(self) -> str:
        """Name how it was judged, e.g. ``plumbline+hard``: scores compare only with scores of the same procedure."""
        return procedure_name(**{name: getattr(self, name) for name in PROCEDURE})

    @property
    def awaits_simulation(self) -> bool:
        """Return whether the simulation that it measures is still to be made."""
        return self.simulated and self.agent_id is not None and SIMULATION not in self.where

    @property
    def own_dimensions(self) -> list[str]:
        """Return the dimensions judged in this run itself; an agent's channel dimensions are judged in the runs it links to."""
        if self.agent_id is None:
            return list(self.dimensions)
        return [name for name in self.dimensions if name not in CHANNEL_DIMENSIONS]


class EvaluationScore(models.Model):
    """One judgement: a proposition on a message (or on the whole window). Made `pending`, judged once."""

    class Status(models.TextChoices):
        PENDING = "pending", "pending"
        SCORED = "scored", "scored"
        TRIVIAL = "trivial", "trivial"
        UNSCORED = "unscored", "unscored"

    evaluation_run = models.ForeignKey(EvaluationRun, on_delete=models.CASCADE, related_name="scores")
    dimension = models.CharField(max_length=32, choices=Dimension.choices)
    proposition_id = models.CharField(max_length=120)
    message = models.ForeignKey(
        Message,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="evaluation_scores",
        help_text="empty = the whole window",
    )
    compared_with = models.ForeignKey(
        Message,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="compared_evaluation_scores",
        help_text="the earlier message of the pair (self-consistency)",
    )
    over_window = models.BooleanField(
        default=False, help_text="adherence of a whole window: it never was about one message, and none was deleted"
    )
    repeat = models.PositiveSmallIntegerField(default=1, help_text="which of the run's repeated judgements, from 1")
    claim = models.TextField(help_text="the claim as the judge read it")
    weight = models.FloatField(default=1.0)
    inclusion_weight = models.FloatField(
        default=1.0,
        db_default=1.0,
        help_text="for how many messages this one stands in means: 1 ÷ the chance with which its conversation was kept",
    )
    inverted = models.BooleanField(default=False)
    of_ten = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="in how many of 10 messages its rule should hold; empty = in every one"
    )
    status = models.CharField(
        max_length=10,
        choices=Status.choices,
        default=Status.PENDING,
        help_text="trivial = could not be false here (stored as 9, not averaged); unscored = could not be judged, see reason",
    )
    score = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(9)],
        help_text="0 to 9, higher is better (inverted claims flipped, penalties applied)",
    )
    raw_score = models.PositiveSmallIntegerField(null=True, blank=True, help_text="0 to 9 as the judge gave it")
    first_score = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="the score before the judge was asked whether it is sure (double check)"
    )
    count = models.PositiveIntegerField(
        null=True, blank=True, help_text="how many distinct ideas; has no upper end and is in no mean"
    )
    flaws = models.JSONField(default=list, blank=True, help_text="flaws the judge listed (hard mode)")
    evidence = models.CharField(max_length=16, blank=True, default="", help_text="present or absent")
    reasoning = models.TextField(blank=True, default="")
    justification = models.TextField(blank=True, default="")
    confidence = models.FloatField(null=True, blank=True, help_text="0 to 1, the judge's own")
    recommendations = models.TextField(blank=True, default="")
    reason = models.CharField(max_length=300, blank=True, default="", help_text="why it is unscored or trivial")
    cause = models.CharField(
        max_length=16,
        blank=True,
        default="",
        help_text="why it is unscored: status of a failed call, malformed, or out_of_reach (of this judge)",
    )
    context_snippet = models.TextField(blank=True, default="", help_text="the start of what was judged")
    judge = models.CharField(max_length=200, blank=True, default="", help_text="rule, or the model that judged")
    served_model = models.CharField(max_length=200, blank=True, default="")
    call = models.ForeignKey(
        LLMCall, null=True, blank=True, on_delete=models.SET_NULL, related_name="evaluation_scores"
    )
    judged_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "score"
        db_table = "evaluation_scores"
        ordering: ClassVar = ["evaluation_run", "dimension", "proposition_id", "pk"]
        indexes: ClassVar = [models.Index(fields=["evaluation_run", "status"], name="score_run_status")]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["evaluation_run", "dimension", "proposition_id", "message", "repeat"],
                condition=Q(message__isnull=False),
                name="score_once_per_message",
            ),
            models.CheckConstraint(condition=Q(score__isnull=True) | Q(score__gte=0, score__lte=9), name="score_range"),
            models.CheckConstraint(
                condition=Q(raw_score__isnull=True) | Q(raw_score__gte=0, raw_score__lte=9), name="raw_score_range"
            ),
            models.CheckConstraint(
                condition=(
                    Q(status__in=["pending", "unscored"], score__isnull=True, count__isnull=True)
                    | Q(status="scored", score__isnull=False, count__isnull=True)
                    | Q(status="scored", score__isnull=True, count__isnull=False)
                    | Q(status="trivial", score=9, count__isnull=True)
                ),
                name="score_matches_status",
            ),
        ]

    def __str__(self) -> str:
        number = self.score if self.count is None else self.count
        return f"{self.proposition_id}: {self.status if number is None else number}"

    def blank_quotes(self) -> None:
        """Blank what quotes the message, to show the row to a user who may not read messages; it must not be saved afterwards."""
        self.reasoning = self.justification = self.recommendations = self.reason = self.context_snippet = ""
        self.flaws = []


class ChannelShare(models.Model):
    """A channel's evaluation as part of an agent's, with how much of the conversation is the agent's."""

    agent_run = models.ForeignKey("evaluation.EvaluationRun", on_delete=models.CASCADE, related_name="channel_shares")
    channel_run = models.ForeignKey("evaluation.EvaluationRun", on_delete=models.CASCADE, related_name="agent_shares")
    messages = models.PositiveIntegerField(help_text="the agent's messages there: its weight in the agent's mean")

    class Meta:
        db_table = "evaluation_channel_shares"
        ordering: ClassVar = ["agent_run", "-messages", "pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["agent_run", "channel_run"], name="channel_share_once")
        ]

    def __str__(self) -> str:
        return f"{self.channel_run.channel} in evaluation {self.agent_run_id}"

    @property
    def weight(self) -> float:
        """Return its weight in the agent's mean: the agent's messages, of a channel that was kept by chance as many as it stands for."""
        channel = self.channel_run.channel
        return self.messages * (1.0 if channel is None else channel.inclusion_weight)


class IdeaPart(models.Model):
    """A stretch of a conversation whose ideas were listed; what is stored here is not asked again."""

    evaluation_score = models.ForeignKey(
        "evaluation.EvaluationScore", on_delete=models.CASCADE, related_name="idea_parts"
    )
    number = models.PositiveIntegerField(help_text="from 1, in order of the conversation")
    first_position = models.PositiveBigIntegerField()
    last_position = models.PositiveBigIntegerField()
    listed = models.BooleanField(default=False, help_text="whether the judge listed its ideas")

    class Meta:
        db_table = "evaluation_idea_parts"
        ordering: ClassVar = ["evaluation_score", "number"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["evaluation_score", "number"], name="idea_part_once")]

    def __str__(self) -> str:
        return f"part {self.number} of judgement {self.evaluation_score_id}"


class Idea(models.Model):
    """One idea the judge listed. One that says the same as another points to it and is not counted."""

    part = models.ForeignKey(IdeaPart, on_delete=models.CASCADE, related_name="ideas")
    number = models.PositiveIntegerField(help_text="from 1, in order within the part")
    idea = models.TextField()
    description = models.TextField(blank=True, default="")
    positions = models.JSONField(default=list, blank=True, help_text="where in the channel it was said")
    same_as = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.CASCADE, related_name="variants", help_text="empty = counted"
    )

    class Meta:
        db_table = "evaluation_ideas"
        ordering: ClassVar = ["part", "number"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["part", "number"], name="idea_once")]

    def __str__(self) -> str:
        return self.idea[:80]


class _NoRows(models.Manager["Proposition"]):
    def get_queryset(self) -> models.QuerySet[Proposition]:
        return super().get_queryset().none()  # so that nothing that goes through all models asks for the table


class Proposition(models.Model):
    """Permissions and log entries of the propositions, which are in YAML files: there is no table.

    Everything else works with `evaluation.propositions.schema.Proposition`.
    """

    objects: ClassVar[_NoRows] = _NoRows()

    class Meta:
        managed = False
        default_permissions = ("view", "change")

    def __str__(self) -> str:
        return "proposition"


class PatternTimeout(models.Model):
    """How often a pattern of a proposition took too long. Nothing is switched off for it: a sender could disable a rule that way."""

    dimension = models.CharField(max_length=32, choices=Dimension.choices)
    proposition_id = models.CharField(max_length=120)
    pattern = models.CharField(max_length=200, help_text="as the reason names it: a long one is cut")
    times = models.PositiveIntegerField(default=0)
    last_at = models.DateTimeField()

    class Meta:
        db_table = "evaluation_pattern_timeouts"
        ordering: ClassVar = ["dimension", "proposition_id", "pattern"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["dimension", "proposition_id", "pattern"], name="pattern_timeout_once")
        ]

    def __str__(self) -> str:
        return f"{self.proposition_id}: {self.times} × {self.pattern}"

    @classmethod
    def count(cls, unscored: Iterable[tuple[str, str, str]]) -> None:
        """Add the time-outs among these (dimension, proposition id, reason); no statement where there are none.

        Args:
            unscored: Of any verdicts; a reason that begins otherwise than with `TIMED_OUT` is none. What follows is the pattern.
        """
        timeouts: Counter[tuple[str, str, str]] = Counter()
        for dimension, proposition_id, reason in unscored:
            if reason.startswith(TIMED_OUT):
                timeouts[dimension, proposition_id, reason.removeprefix(TIMED_OUT)[:200]] += 1
        now = timezone.now()
        for (dimension, proposition_id, pattern), times in sorted(timeouts.items()):  # in one order, against deadlocks
            key = {"dimension": dimension, "proposition_id": proposition_id, "pattern": pattern}
            cls.objects.get_or_create(**key, defaults={"last_at": now})
            cls.objects.filter(**key).update(times=F("times") + times, last_at=now)

    @classmethod
    def of(cls, proposition_ids: Iterable[str]) -> dict[tuple[str, str], list[PatternTimeout]]:
        """Return the counted time-outs by dimension and proposition, in one statement."""
        timeouts: dict[tuple[str, str], list[PatternTimeout]] = defaultdict(list)
        for row in cls.objects.filter(proposition_id__in=set(proposition_ids)):
            timeouts[row.dimension, row.proposition_id].append(row)
        return timeouts


class EvaluationSchedule(models.Model):
    """A measurement that is made again and again: of which agents, what, over which window, how often. The worker fires it when due."""

    name = models.CharField(
        max_length=100,
        unique=True,
        error_messages={"unique": "There is a schedule of this name; choose another, or change that one."},
    )
    agents = models.ManyToManyField(Agent, blank=True, related_name="schedules", help_text="empty = every active agent")
    dimensions = models.JSONField(default=list, blank=True, help_text="empty = every dimension with propositions")
    window = models.CharField(
        max_length=32,
        default="24h",
        help_text="a duration such as 24h or 7d, best no longer than the time between two measurements; all and last:N are "
        "measured, too, but not tested for drift",
    )
    where = models.JSONField(
        default=dict, blank=True, validators=[validate_tags], help_text="tags a message must have to be measured"
    )
    samples = models.PositiveIntegerField(
        default=20, validators=[MinValueValidator(1)], help_text="most messages sampled per agent, at least 1"
    )
    judge = models.CharField(max_length=200, blank=True, default="", help_text="empty = the configured judge")
    additional_context = models.JSONField(
        default=dict,
        db_default=models.Value({}, models.JSONField()),
        blank=True,
        verbose_name="background for the judge",
        help_text="names and what they stand for, such as season: winter, as YAML or JSON; shown to the judge as data, and given to "
        "preconditions",
    )
    every_minutes = models.PositiveIntegerField(
        default=24 * 60, validators=[MinValueValidator(5)], help_text="minutes between two measurements, at least 5"
    )
    drift_limit = models.FloatField(
        default=0.8,
        validators=[MinValueValidator(0.1), MaxValueValidator(9)],
        help_text="alert when a score has fallen by at least this many points, 0.1 to 9",
    )
    batch = models.BooleanField(
        default=False, help_text="ask the judge in batches: half the price, an answer within a day"
    )
    is_active = models.BooleanField(default=True)
    next_at = models.DateTimeField(db_index=True, help_text="when it is due; moved on in the statement that fires it")
    last_fired_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_outcome = models.TextField(
        blank=True, default="", editable=False, help_text="what came of it when it was last due"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = "schedule"
        db_table = "evaluation_schedules"
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(every_minutes__gte=5), name="schedule_every_at_least_five_minutes"),
            models.CheckConstraint(condition=Q(drift_limit__gt=0, drift_limit__lte=9), name="schedule_limit_range"),
            models.CheckConstraint(condition=Q(samples__gte=1), name="schedule_samples_range"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def every(self) -> timedelta:
        return timedelta(minutes=self.every_minutes)

    def clean(self) -> None:
        """Refuse what the worker could not measure: a window, dimensions, batches of a judge that takes none. Names field and value.

        Raises:
            ValidationError: For the first that is wrong.
        """
        try:
            parse_window(self.window)
        except ValueError as error:
            raise ValidationError({"window": str(error)}) from None
        unknown = [self.dimensions]  # what is no list is wrong as a whole
        if isinstance(self.dimensions, list):
            unknown = [name for name in self.dimensions if name not in Dimension.values]
        if unknown:
            message = f"dimensions {', '.join(map(str, unknown))}: allowed: {', '.join(Dimension.values)}"
            raise ValidationError({"dimensions": message})
        if self.batch and self.batch_problem:
            raise ValidationError({"batch": f"batch: the judge {self.batch_problem}"})

    @property
    def batch_problem(self) -> str:
        """Return why its judge, or the one that is configured, cannot be asked in batches; empty when it can."""
        return providers.batch_problem(self.judge or str(settings.JUDGE_MODEL))
