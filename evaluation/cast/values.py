"""What the cast page knows of an agent: two measurements, what moved between them, and two messages that show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from agents.models import Agent, Message
from evaluation.comparison.values import Lost
from evaluation.models import EvaluationRun
from evaluation.runs.coverage import NOTHING, Share

State = Literal[
    "fell",
    "not enough data",
    "maybe",
    "held",
    "rose",
    "nothing in common",
    "not measured since",
    "no baseline",
    "never measured",
]
# Those who lost most first, then those of whom something is known, then those who were not measured.
ORDER: tuple[State, ...] = (
    *("fell", "not enough data", "maybe", "held", "rose"),
    *("nothing in common", "not measured since", "no baseline", "never measured"),
)
Tag = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How both sides were judged, for scores by different judges or procedures never stand side by side."""

    judge: str
    procedure: str

    def __str__(self) -> str:
        return f"{self.judge} {self.procedure}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The two measurements of one agent.

    Attributes:
        then: Evaluations by dimension: those of the current baselines, or one of the messages of a tag.
        then_newest: When the newest message of the first side was said.
        now: The newest evidence since, by dimension: mostly one evaluation for all of them.
        then_name, now_name: As people call them, e.g. ``the baseline of 3 Nov 2026``, ``build 41``.
        then_personas: Digests of the personas that the first side was measured under.
    """

    then: Mapping[str, int] = field(default_factory=dict)
    then_newest: datetime | None = None
    then_name: str = ""
    then_personas: frozenset[str] = frozenset()
    now: Mapping[str, EvaluationRun] = field(default_factory=dict)
    now_name: str = ""

    @property
    def persona_edited(self) -> bool:
        """Whether the persona was another one then: a difference is then not drift alone."""
        digests = {run.persona_digest for run in self.now.values()} - {""}
        return any(then and then != digest for digest in digests for then in self.then_personas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One proposition's scores on one side: mean of 0 to 9 over `scored` judgements; `unscored` could not be judged.

    `n`, `total` and `squares` are of the first judgement of each message alone: what a test of the means rests on. `share` is how much was
    scored of what the judge can score; `by_message` whether it is judged message by message.
    """

    mean: float | None
    scored: int
    unscored: int
    weight: float
    inverted: bool
    n: int
    total: float
    squares: float
    share: Share = NOTHING
    by_message: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One proposition, then and now.

    Attributes:
        then_run, now_run: The evaluations the means are of.
        p: Chance of a difference this large where there is none, corrected for all that is looked at; None where nothing tells (judged
            over a whole window, or of one message).
        since: The tag that all messages carry now and none did then, e.g. ``("build", "41")``.
    """

    dimension: str
    proposition: str
    then: Part
    now: Part
    then_run: int
    now_run: int
    p: float | None = None
    since: Tag | None = None

    @property
    def delta(self) -> float:
        """Now minus then, in points; only moves with both means are made."""
        return (self.now.mean or 0.0) - (self.then.mean or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionMove:
    """A dimension over the propositions that were asked on both sides and are still the same.

    Attributes:
        then, now: 0 to 9; None where too little was scored, and then `reason` says how little.
        then_share, now_share: How much was scored, over all its propositions.
    """

    dimension: str
    then: float | None
    now: float | None
    then_share: Share = NOTHING
    now_share: Share = NOTHING
    reason: str = ""

    @property
    def delta(self) -> float | None:
        return None if self.then is None or self.now is None else self.now - self.then


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A message, and what it scored on the proposition of the sentence."""

    message: Message
    score: int
    claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One agent.

    Attributes:
        moves: Every proposition that was scored on both sides, the largest fall first.
        told: The one the sentence is about; None where it is about none. `claim` is its claim, as it was last asked.
        lost: Propositions of which surely less than half as much is scored as then.
        changed: Propositions that are another one now (reworded, or their trait changed), so not compared.
        then_quote, now_quote: Messages that scored highest then and lowest now on what the sentence is about (where it rose: the reverse).
        course: Overall scores of the newest evaluations, the oldest first.
    """

    agent: Agent
    judged: Judged | None
    state: State
    sides: Sides
    dimensions: Sequence[DimensionMove] = ()
    moves: Sequence[Move] = ()
    told: Move | None = None
    claim: str = ""
    lost: Sequence[Lost] = ()
    changed: Sequence[str] = ()
    then_quote: Quote | None = None
    now_quote: Quote | None = None
    course: Sequence[float | None] = ()

    @property
    def delta(self) -> float | None:
        """The mean change of the dimensions, in points; None where nothing is compared."""
        deltas = [d.delta for d in self.dimensions if d.delta is not None]
        return sum(deltas) / len(deltas) if deltas else None

    @property
    def place(self) -> tuple[int, float, str]:
        """What cards are sorted by: the flattest first."""
        return (ORDER.index(self.state), self.delta or 0.0, self.agent.slug)
