"""What is asked for: an evaluation of one agent or channel, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from agents.models import Agent, Channel
from evaluation.dimensions import DEFAULT_DIMENSIONS
from evaluation.models import (
    BY_MESSAGE,
    CHANNEL_DIMENSIONS,
    SIMULATION,
    Dimension,
    EvaluationSchedule,
    Method,
    procedure_name,
)
from evaluation.models.evaluations import PROCEDURE
from evaluation.scorers.selection import check_bins
from evaluation.windows import BEFORE, MessageWindow

MOST_SAMPLES = 100_000
MOST_REPEATS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """A request to evaluate one agent, or one channel.

    Attributes:
        agent: Who is measured; its channel dimensions are measured in its channels, by runs of their own.
        channel: What is measured instead: convergence, ideas quantity, or both.
        window, history: As `parse_window` and `parse_history` read them; self-consistency compares the window with the history.
        where, history_where: Tags a message there must have.
        samples: Most messages sampled for message-by-message dimensions, at least 1.
        per_call: Most propositions in one call, 1 to 10.
        judge: Model; default the configured one.
        is_baseline: Whether the run becomes the agent's baseline when it succeeds.
        repeats: Judgements per item, 1 to 20; rules are exact and judged once.
        hard: Judge every proposition that is no anti-pattern in hard mode (AC-6.0.16, AC-6.1.7).
        double_check: Ask the judge whether it is sure (AC-6.0.11).
        method: ``plumbline``, or ``tinytroupe`` for comparison with its paper; that one asks one proposition per call.
        few_shot: Digest of the labelled examples that the judge is shown (`FewShotExamples`); empty for none.
        additional_context: Given to preconditions and shown to the judge as data.
        simulated: Measure speech that was simulated for it (synthetic messages, chosen by `where`) instead of real speech.
        situations: What is simulated, each as `Situation` dumps it, `repeats` times; empty = what comes with Plumbline, once.
        position_bins: Sample evenly from these stretches of a conversation, in turns of the agent from 1: ``((1, 5), (6, None))``.
        schedule: What asked for it, where a schedule did.
        scope: Only an unfinished evaluation of the same scope is resumed; empty but where the same may be asked for several purposes.
        swap_test: Which half of a test of the judge it is, where it is one and no measurement of the agent: see `SwapHalf`.
        batch: Ask the judge in batches, at half the price and within a day. The same question otherwise.
    """

    agent: Agent | None = None
    channel: Channel | None = None
    dimensions: tuple[str, ...] = DEFAULT_DIMENSIONS
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
    few_shot: str = ""
    additional_context: Mapping[str, Any] = field(default_factory=dict)
    simulated: bool = False
    actor_model: str = ""
    situations: tuple[Mapping[str, Any], ...] = ()
    position_bins: tuple[tuple[int, int | None], ...] = ()
    schedule: EvaluationSchedule | None = None
    scope: str = ""
    swap_test: str = ""
    batch: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be planned with a `ValueError` that names the value and what is allowed.

        Dimensions named twice become one; by TinyTroupe's method each call asks one proposition, whatever `per_call` says.
        """
        object.__setattr__(self, "dimensions", tuple(dict.fromkeys(self.dimensions)))
        self._check_dimensions()
        self._check_range("samples", 1, MOST_SAMPLES)
        self._check_range("seed", -(2**63), 2**63 - 1)
        self._check_range("per_call", 1, 10)
        self._check_range("repeats", 1, MOST_REPEATS)
        self._check_target()
        if self.position_bins:
            check_bins(self.position_bins)
        if self.samples < len(self.position_bins):
            raise ValueError(f"samples {self.samples}: at least one for each of the {len(self.position_bins)} bins")
        if self.method not in Method.values:
            raise ValueError(f"method {self.method!r}: allowed: {', '.join(Method.values)}")
        if self.method == Method.TINYTROUPE:
            object.__setattr__(self, "per_call", 1)

    def _check_dimensions(self) -> None:
        """Refuse unknown dimensions, and none."""
        allowed = ", ".join(Dimension.values)
        if not self.dimensions:
            raise ValueError(f"dimensions none: allowed: {allowed}")
        unknown = [name for name in self.dimensions if name not in Dimension.values]
        if unknown:
            raise ValueError(f"dimensions {', '.join(unknown)}: allowed: {allowed}")

    def _check_range(self, name: str, least: int, most: int) -> None:
        value = getattr(self, name)
        if not least <= value <= most:
            raise ValueError(f"{name} {value}: {least} to {most}")

    def _check_target(self) -> None:
        """Refuse a target that the dimensions, or a swap test, cannot measure, with a `ValueError`."""
        if (self.agent is None) == (self.channel is None):
            raise ValueError("an evaluation targets an agent or a channel, exactly one of them")
        of_agents = [name for name in self.dimensions if name not in CHANNEL_DIMENSIONS]
        if self.channel is not None and of_agents:
            allowed = ", ".join(CHANNEL_DIMENSIONS)
            raise ValueError(
                f"dimensions {', '.join(of_agents)}: measured of an agent; allowed for a channel: {allowed}"
            )
        not_by_message = [name for name in self.dimensions if name not in BY_MESSAGE]
        if self.swap_test and not_by_message:
            raise ValueError(
                f"dimensions {', '.join(not_by_message)}: not judged message by message, so that no text can be swapped; allowed: "
                f"{', '.join(BY_MESSAGE)}"
            )
        if self.swap_test and (self.simulated or self.is_baseline):
            raise ValueError("a swap test measures the judge, not the agent: it is neither simulated nor a baseline")

    @property
    def target(self) -> Agent | Channel:
        target = self.agent or self.channel
        assert target is not None  # noqa: S101 (checked when it was made)
        return target

    @property
    def own_dimensions(self) -> tuple[str, ...]:
        """Return the dimensions judged of the target itself: an agent's channel dimensions are judged in runs of its channels."""
        if self.channel is not None:
            return self.dimensions
        return tuple(name for name in self.dimensions if name not in CHANNEL_DIMENSIONS)

    @property
    def procedure(self) -> str:
        """Name how it is judged, as `EvaluationRun.procedure` does."""
        return procedure_name(**{name: getattr(self, name) for name in PROCEDURE})

    @property
    def awaits_simulation(self) -> bool:
        """Return whether it asks for speech that is still to be simulated: nothing can be planned before."""
        return self.simulated and SIMULATION not in self.where

    @property
    def judge_model(self) -> str:
        return self.judge or str(settings.JUDGE_MODEL)
