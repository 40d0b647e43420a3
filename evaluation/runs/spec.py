"""What an evaluation is asked to be, and those of the channels that stand for an agent in channel dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db.models import Count

from agents.models import Agent, Channel
from evaluation.models import CHANNEL_DIMENSIONS, Dimension, EvaluationSchedule, Method, procedure_name
from evaluation.scorers.positions import check_bins
from evaluation.scorers.windows import BEFORE, MessageWindow, spoken_by

MOST_SAMPLES = 100_000
MOST_REPEATS = 20
SIMULATION = "simulation"  # the tag of what was said in a simulation; its value is the simulation's id


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What an evaluation of one agent, or of one channel, is asked to be.

    Attributes:
        agent: Who is measured; its channel dimensions are measured in its channels, by runs of their own.
        channel: What is measured instead: convergence, ideas quantity, or both.
        dimensions: Ids, each with a scorer.
        window: As `parse_window` reads it.
        where: Tags a message must have.
        samples: Most messages sampled for message-by-message dimensions, at least 1.
        seed: Seed of the sampling.
        per_call: Most propositions in one call, 1 to 10.
        judge: Model; default the configured one.
        is_baseline: Whether the run becomes the agent's baseline when it succeeds.
        history: What self-consistency compares the window with, as `parse_history` reads it.
        history_where: Tags the messages of the history must have.
        repeats: Judgements per item, 1 to 20; rules are exact and judged once.
        hard: Judge every claim that is no anti-pattern in hard mode (AC-6.0.16, AC-6.1.7).
        double_check: Ask the judge whether it is sure (AC-6.0.11).
        method: ``plumbline``, or ``tinytroupe`` for comparison with its paper; that one asks one claim per call.
        additional_context: Given to preconditions and shown to the judge as data.
        simulated: Measure speech that was simulated for it (synthetic messages, chosen by `where`) instead of real speech.
        actor_model: The model that spoke, where speech was simulated; for the record.
        position_bins: Sample evenly from these stretches of a conversation, in turns of the agent from 1: ``((1, 5), (6, None))``.
        schedule: The schedule that asked for it.
        batch: Ask the judge in batches, at half the price and within a day. The same question otherwise.
    """

    agent: Agent | None = None
    channel: Channel | None = None
    dimensions: tuple[str, ...] = ("adherence", "fluency")
    window: MessageWindow = field(default_factory=MessageWindow)
    where: dict[str, str] = field(default_factory=dict)
    samples: int = 20
    seed: int = 0
    per_call: int = 10
    judge: str = ""
    is_baseline: bool = False
    history: MessageWindow = field(default_factory=lambda: MessageWindow(BEFORE))
    history_where: dict[str, str] = field(default_factory=dict)
    repeats: int = 1
    hard: bool = False
    double_check: bool = False
    method: str = Method.PLUMBLINE.value
    additional_context: Mapping[str, Any] = field(default_factory=dict)
    simulated: bool = False
    actor_model: str = ""
    position_bins: tuple[tuple[int, int | None], ...] = ()
    schedule: EvaluationSchedule | None = None
    batch: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimensions", tuple(dict.fromkeys(self.dimensions)))  # named twice is meant once
        unknown = [name for name in self.dimensions if name not in Dimension.values]
        if unknown or not self.dimensions:
            raise ValueError(f"dimensions {', '.join(unknown) or 'none'}: allowed: {', '.join(Dimension.values)}")
        if self.samples < 1:
            raise ValueError(f"samples {self.samples}: at least 1")
        if self.samples > MOST_SAMPLES:
            raise ValueError(f"samples {self.samples}: at most {MOST_SAMPLES}")
        if not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"seed {self.seed}: a whole number of at most 63 bits")
        if not 1 <= self.per_call <= 10:
            raise ValueError(f"per_call {self.per_call}: 1 to 10")
        self._check_target()
        if self.position_bins:
            check_bins(self.position_bins)
        if self.samples < len(self.position_bins):
            raise ValueError(f"samples {self.samples}: at least one for each of the {len(self.position_bins)} bins")
        if not 1 <= self.repeats <= MOST_REPEATS:
            raise ValueError(f"repeats {self.repeats}: 1 to {MOST_REPEATS}")
        if self.method not in Method.values:
            raise ValueError(f"method {self.method!r}: allowed: {', '.join(Method.values)}")
        if self.method == Method.TINYTROUPE:
            object.__setattr__(self, "per_call", 1)

    def _check_target(self) -> None:
        if (self.agent is None) == (self.channel is None):
            raise ValueError("an evaluation targets an agent or a channel, exactly one of them")
        if self.channel is not None and (wrong := [d for d in self.dimensions if d not in CHANNEL_DIMENSIONS]):
            raise ValueError(
                f"dimensions {', '.join(wrong)}: measured of an agent; allowed for a channel: {', '.join(CHANNEL_DIMENSIONS)}"
            )

    @property
    def target(self) -> Agent | Channel:
        found = self.agent or self.channel
        assert found is not None  # noqa: S101 (checked when it was made)
        return found

    @property
    def own_dimensions(self) -> tuple[str, ...]:
        """The dimensions judged of the target itself: those of channels are judged in runs of the agent's channels."""
        return tuple(d for d in self.dimensions if self.agent is None or d not in CHANNEL_DIMENSIONS)

    @property
    def procedure(self) -> str:
        """How it is judged, as `EvaluationRun.procedure` says it."""
        return procedure_name(
            method=self.method, hard=self.hard, double_check=self.double_check, simulated=self.simulated
        )

    @property
    def awaits_simulation(self) -> bool:
        """Whether it asks for simulated speech that is still to be simulated: nothing can be planned before."""
        return self.simulated and SIMULATION not in self.where

    @property
    def judge_model(self) -> str:
        return self.judge or str(settings.JUDGE_MODEL)


MOST_CHANNELS = 20  # per agent: those in which it said most


def channel_specs(spec: RunSpec) -> list[tuple[RunSpec, int]]:
    """For an agent's evaluation: those of its channels, with the number of its messages there, most first.

    The same window, tags and procedure; ``last:N`` are then the channel's last N messages. Empty when no channel dimension is asked
    for, when the target is a channel itself, or when speech was simulated, which an agent does alone.
    """
    dimensions = tuple(d for d in spec.dimensions if d in CHANNEL_DIMENSIONS)
    if spec.agent is None or not dimensions or spec.simulated:
        return []
    spoken = spoken_by(agent=spec.agent, window=spec.window, where=spec.where)
    counted = spoken.order_by().values_list("channel").annotate(n=Count("pk")).order_by("-n", "channel")
    shares = dict(counted[:MOST_CHANNELS])
    channels = Channel.objects.in_bulk(list(shares))
    return [(_of(spec, channels[pk], dimensions), n) for pk, n in shares.items()]


def _of(spec: RunSpec, channel: Channel, dimensions: tuple[str, ...]) -> RunSpec:
    return RunSpec(
        channel=channel,
        dimensions=dimensions,
        window=spec.window,
        where=spec.where,
        seed=spec.seed,
        per_call=spec.per_call,
        judge=spec.judge,
        is_baseline=spec.is_baseline,
        repeats=spec.repeats,
        hard=spec.hard,
        double_check=spec.double_check,
        method=spec.method,
        additional_context=spec.additional_context,
        schedule=spec.schedule,
        batch=spec.batch,
    )
