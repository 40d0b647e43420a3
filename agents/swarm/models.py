"""Personality swarms: their phases, what an agent keeps of a conversation, preferences of people, and what a swarm did in a turn."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Case, Exists, F, OuterRef, Q, When
from simple_history.models import HistoricalRecords

from agents.kit.models.lease import Leasable
from agents.models.conversations import Agent, Channel, Message
from agents.models.runs import Run


class Swarm(models.Model):
    """Phases that calibrate an agent's reply before it is written and polish it afterwards, for some intents of people's messages."""

    class Executor(models.TextChoices):
        COMBINED = "combined", "one call for all polishers"
        SEQUENTIAL = "sequential", "one call for each"
        OFF = "off", "no polishing"

    only_named_agents: ClassVar = True  # without agents it has none; elsewhere that means every agent

    name = models.SlugField(max_length=64, unique=True, help_text="letters, digits, _ and -")
    intents = models.JSONField(default=list, help_text="of messages that it answers, e.g. general")
    tools = models.JSONField(
        default=list, blank=True, help_text="names of the tools that it offers besides the usual ones"
    )
    enabled = models.BooleanField(default=True, help_text="off: its agents answer as if they did not have it")
    post_executor = models.CharField(
        max_length=12, choices=Executor.choices, default=Executor.COMBINED, help_text="how its post phases are asked"
    )
    agents = models.ManyToManyField(
        Agent, blank=True, related_name="swarms", help_text="whose messages pass through it"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "swarms"
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name


def has_swarm() -> Exists:
    """Return whether an agent has an enabled swarm, as a column of a query that reads the agent anyway."""
    return Exists(Swarm.agents.through.objects.filter(agent=OuterRef("pk"), swarm__enabled=True))


class SwarmPhase(models.Model):
    """One member of a swarm: a prompt that calibrates, writes or polishes. A change makes a new version."""

    class Phase(models.TextChoices):
        PRE = "pre", "before the answer"
        MAIN = "main", "the answer"
        POST = "post", "after the answer"

    swarm = models.ForeignKey(Swarm, on_delete=models.CASCADE, related_name="phases", db_index=False)
    phase = models.CharField(max_length=4, choices=Phase.choices, help_text="when it is asked")
    name = models.SlugField(max_length=64, help_text="e.g. voice-calibrator")
    order = models.PositiveSmallIntegerField(help_text="within its phase, from 1")
    prompt = models.TextField(help_text="what it is asked to do")
    enabled = models.BooleanField(default=True, help_text="off: it is not asked")
    temperature = models.FloatField(
        default=0.55,
        validators=[MinValueValidator(0.0), MaxValueValidator(2.0)],
        help_text="0 to 2; sent only to servers known to take it",
    )
    version = models.PositiveIntegerField(default=1, help_text="goes up when prompt or temperature change")
    updated_at = models.DateTimeField(auto_now=True)

    history = HistoricalRecords(table_name="swarm_phases_history")

    class Meta:
        db_table = "swarm_phases"
        ordering: ClassVar = [
            "swarm_id",
            Case(When(phase="pre", then=0), When(phase="main", then=1), default=2),
            "order",
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["swarm", "name"], name="swarm_phase_name_unique"),
            models.CheckConstraint(condition=Q(phase__in=["pre", "main", "post"]), name="swarm_phase_known"),
            models.CheckConstraint(condition=Q(temperature__gte=0, temperature__lte=2), name="swarm_phase_temperature"),
            models.CheckConstraint(
                condition=~Q(prompt=""),
                name="swarm_phase_prompt_given",
                violation_error_message="prompt: it is empty; allowed: what the phase is asked to do",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.swarm}"


class DialogState(models.Model):
    """What an agent keeps of a conversation; its entries name the message and the words they rest on."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="dialog_states", db_index=False)
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="dialog_states")
    pending = models.JSONField(
        default=dict, blank=True, help_text="the question that was asked and waits for its answer"
    )
    asked = models.JSONField(
        default=list, blank=True, help_text="questions asked before, with what they asked for; none is asked twice"
    )
    preferences = models.JSONField(
        default=dict, blank=True, help_text="seen in this conversation: tone, units, length, style"
    )
    last_tool = models.JSONField(
        default=dict, blank=True, help_text="the last tool's name, outcome and what it looked up"
    )
    position = models.PositiveBigIntegerField(default=0, help_text="of the last message that it takes into account")
    turn = models.PositiveIntegerField(default=0, help_text="turns of the agent in this conversation")
    dropped = models.PositiveIntegerField(default=0, help_text="entries that were not found in the message they named")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "dialog_states"
        ordering: ClassVar = ["agent", "channel"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["agent", "channel"], name="dialog_state_unique")]

    def __str__(self) -> str:
        return f"{self.agent} in {self.channel}"


class DialogEntry(models.Model):
    """One thing that was said in a conversation, with the words it rests on. Pinned entries stay in every prompt."""

    class Kind(models.TextChoices):
        ANCHOR = "anchor", "what the conversation is about"
        GOAL = "goal", "what the person wants now"
        FACTS = "facts", "a fact"
        ASSUMPTIONS = "assumptions", "an assumption, made where no question was asked"
        DECISIONS = "decisions", "a decision"

    class By(models.TextChoices):
        MODEL = "model", "a model"
        RULE = "rule", "a rule"
        PERSON = "person", "a person"

    state = models.ForeignKey(DialogState, on_delete=models.CASCADE, related_name="entries")
    kind = models.CharField(max_length=11, choices=Kind.choices)
    text = models.TextField(help_text="it in short")
    quote = models.TextField(help_text="the words of the message, on one line")
    message = models.ForeignKey(Message, null=True, on_delete=models.CASCADE, related_name="+")
    position = models.PositiveBigIntegerField(help_text="of the message in its conversation")
    author = models.CharField(max_length=301, blank=True, default="", help_text="of the message")
    pinned = models.BooleanField(default=False, help_text="it stays in every prompt")
    leaving = models.BooleanField(
        default=False, help_text="it was pinned and makes room for others; it stays until a summary holds it"
    )
    by = models.CharField(
        max_length=6, choices=By.choices, default=By.MODEL, help_text="who entered it, wrote its text or pinned it"
    )
    removed = models.BooleanField(
        default=False, help_text="it is shown no more, and no rule or model enters its quote again"
    )

    class Meta:
        db_table = "dialog_entries"
        verbose_name_plural = "dialog entries"
        ordering: ClassVar = ["pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["state", "kind"],
                condition=Q(kind__in=["anchor", "goal"], removed=False),
                name="dialog_entry_one_anchor_and_goal",
            ),
            models.UniqueConstraint(
                fields=["state", "kind", "position", "quote"],
                condition=Q(by__in=["model", "rule"], removed=False),
                name="dialog_entry_quote_once",  # people may put one sentence into two entries
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["anchor", "goal", "facts", "assumptions", "decisions"]),
                name="dialog_entry_kind_known",
            ),
            models.CheckConstraint(condition=~Q(pinned=True, leaving=True), name="dialog_entry_pinned_or_leaving"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk} of {self.state_id}"


class DialogSummary(Leasable):
    """Older messages of a conversation in a few sentences; the newest completed one is shown. Made by a worker or written by a person."""

    WHOSE: ClassVar = F("agent_id")

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+", db_index=False)
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="dialog_summaries")
    from_position = models.PositiveBigIntegerField(help_text="of the first message it covers")
    to_position = models.PositiveBigIntegerField(help_text="of the last message it covers")
    text = models.TextField(blank=True, default="")
    quotes = models.JSONField(
        default=list,
        blank=True,
        help_text="what the text is made of: part, position, who, quote; one note where a person wrote it",
    )
    origin = models.CharField(max_length=8, choices=[("worker", "worker"), ("person", "person")], default="worker")
    heuristic = models.BooleanField(default=False, help_text="made by rules, without a model")

    class Meta:
        db_table = "dialog_summaries"
        verbose_name_plural = "dialog summaries"
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [
            models.Index(
                fields=["agent", "created_at", "id"],
                condition=Q(status__in=["pending", "running"]),
                name="summary_open_of_agent",
            ),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["agent", "channel", "to_position", "origin"], name="dialog_summary_once_per_position"
            )
        ]

    def __str__(self) -> str:
        return f"summary {self.pk} of {self.channel_id}"


class UserPreferences(models.Model):
    """How a user likes to be answered in every conversation; applied without saying so. Others have those of the dialog state."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    tone = models.CharField(max_length=16, blank=True, default="")
    units = models.CharField(max_length=16, blank=True, default="")
    length = models.CharField(max_length=16, blank=True, default="")
    learning_style = models.CharField(max_length=16, blank=True, default="")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "user_preferences"
        verbose_name_plural = "user preferences"
        ordering: ClassVar = ["pk"]

    def __str__(self) -> str:
        return f"preferences of {self.user}"


class SwarmTurn(models.Model):
    """What a swarm did in one turn, or with one message sent outside of a turn."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+")
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="+")
    swarm = models.ForeignKey(Swarm, null=True, blank=True, on_delete=models.SET_NULL, related_name="turns")
    run = models.ForeignKey(Run, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    message = models.ForeignKey(Message, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    intent = models.CharField(max_length=64, blank=True, default="")
    calibration = models.JSONField(default=dict, blank=True, help_text="what the phases before the answer said")
    steps = models.JSONField(
        default=list,
        blank=True,
        help_text="the calls of its phases, in order: which were asked, what came of it, the text and why; of drafts, the last one's",
    )
    draft = models.TextField(blank=True, default="", help_text="as the agent wrote it")
    polished = models.TextField(blank=True, default="", help_text="as it was polished; empty = as it was written")
    rejected = models.JSONField(
        default=list, blank=True, help_text="polished texts that were refused: phase, text, why"
    )
    replaced = models.TextField(
        blank=True, default="", help_text="why safety or error recovery said something else; empty = they did not"
    )
    milliseconds = models.JSONField(default=dict, blank=True, help_text="by phase")
    heuristic = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "swarm_turns"
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [models.Index(fields=["agent", "-created_at"], name="swarm_turn_agent_created")]

    def __str__(self) -> str:
        return f"swarm turn {self.pk}"
