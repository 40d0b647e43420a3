"""An intervention: dormant until all its preconditions hold, then it changes the agent's prompt for one turn (S-7.1).

`correction.models.Intervention` is the row in which an operator writes one down; `rows.py` makes these of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

from agents.models import Agent
from correction.interventions.context import LONGEST_WINDOW, InterventionContext
from correction.interventions.preconditions import (
    FunctionalPrecondition,
    PropositionalPrecondition,
    TextualPrecondition,
)

HEADING = "Conversation Guidance"  # AC-7.1.9
DEFAULT_WINDOW, DEFAULT_COOLDOWN = 10, 5

AnyPrecondition = FunctionalPrecondition | TextualPrecondition | PropositionalPrecondition


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptModification:
    """What an effect adds to the agent's prompt, for this turn only: text under a heading. `nudge_type` names its kind in the log."""

    guidance: str
    nudge_type: str = ""
    heading: str = HEADING


Effect = Callable[[InterventionContext], PromptModification]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """Preconditions and an effect. Immutable, so that nothing can leak from one agent, channel or batch into another.

    Attributes:
        name: In logs and costs: anti_convergence, variety, an operator's slug.
        preconditions: All must hold (AC-7.1.2); at least one.
        effect: What is added to the prompt when they do.
        window: Last messages of the channel that are looked at, 1 to 100.
        cooldown_messages: Messages in the channel after it fired before it may fire again; 0 = none.
        ask_every: Messages in the channel after a judge was asked, in any agent's turn, before it is asked again; 0 = ask every time.
        dm_allowed: Also in direct messages.
        agent_id: The agent it is for; None = any.
        row_id: The operator's row it was made of.

    Raises:
        ValueError: It has no precondition, or a number is out of range.
    """

    name: str
    preconditions: tuple[AnyPrecondition, ...]
    effect: Effect
    window: int = DEFAULT_WINDOW
    cooldown_messages: int = DEFAULT_COOLDOWN
    ask_every: int = 0
    dm_allowed: bool = False
    agent_id: int | None = None
    row_id: int | None = None

    def __post_init__(self) -> None:
        if not self.preconditions:
            raise ValueError(f"intervention {self.name!r} has no precondition; it needs at least one")
        if not 1 <= self.window <= LONGEST_WINDOW:
            raise ValueError(f"intervention {self.name!r}: window is {self.window}; allowed: 1 to {LONGEST_WINDOW}")
        if self.cooldown_messages < 0:
            raise ValueError(
                f"intervention {self.name!r}: cooldown_messages is {self.cooldown_messages}; allowed: 0 or more"
            )

    @property
    def functional(self) -> tuple[FunctionalPrecondition, ...]:
        """The preconditions that cost nothing."""
        return tuple(p for p in self.preconditions if isinstance(p, FunctionalPrecondition))

    @property
    def judged(self) -> tuple[TextualPrecondition | PropositionalPrecondition, ...]:
        """The preconditions that ask a judge."""
        return tuple(p for p in self.preconditions if not isinstance(p, FunctionalPrecondition))


@dataclass(frozen=True, slots=True)
class InterventionBatch:
    """The same intervention for several agents. Batches share no state: each agent's intervention is a value of its own."""

    interventions: tuple[Intervention, ...] = ()

    @classmethod
    def create_for_each(
        cls,
        agents: Iterable[Agent],
        *,
        name: str,
        preconditions: Iterable[AnyPrecondition],
        effect: Effect,
        window: int = DEFAULT_WINDOW,
        cooldown_messages: int = DEFAULT_COOLDOWN,
        dm_allowed: bool = False,
    ) -> Self:
        """One intervention per agent, with the same preconditions and effect (AC-7.1.4).

        Raises:
            ValueError: See `Intervention`.
        """
        shared = Intervention(
            name=name,
            preconditions=tuple(preconditions),
            effect=effect,
            window=window,
            cooldown_messages=cooldown_messages,
            dm_allowed=dm_allowed,
        )
        return cls(tuple(replace(shared, agent_id=agent.pk) for agent in agents))

    def for_agent(self, agent: Agent) -> tuple[Intervention, ...]:
        """Those that are for this agent."""
        return tuple(one for one in self.interventions if one.agent_id == agent.pk)

    def __iter__(self) -> Iterator[Intervention]:
        return iter(self.interventions)

    def __len__(self) -> int:
        return len(self.interventions)
