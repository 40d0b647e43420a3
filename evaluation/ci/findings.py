"""What a verdict rests on, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from evaluation.change.comparison import Change
from evaluation.coverage import Share
from evaluation.models import COUNTED, EvaluationScore
from evaluation.summary import worst_judgement
from evaluation.summary_values import RunSummary

EXCERPT = 240
LARGE_FALL = 1.0  # points of 0 to 9

Verdict = Literal[
    "pass", "regression", "below threshold", "could not judge enough", "not enough data", "cannot tell yet"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstMessage:
    """The judgement that scored lowest, with where its message stands.

    Attributes:
        text: The start of what was judged, on one line.
        score: 0 to 9.
        external_id, position, channel, sent_at: Of the message; empty where a whole window was judged.
        reasoning: The judge's.
    """

    text: str
    score: int | None
    reasoning: str
    external_id: str = ""
    position: int | None = None
    channel: str = ""
    sent_at: str = ""

    @property
    def place(self) -> str:
        """For people, e.g. ``#general 41``; empty for a whole window."""
        return f"#{self.channel} {self.position}" if self.position is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A fall that is sure and large enough to matter: of a whole dimension, or of one proposition in it.

    Attributes:
        scope: ``dimension``: the dimension as a whole fell; ``proposition``: only this one.
        change: What surely fell: a proposition; where of none of them that is sure, the dimension.
        whole: Of the dimension as a whole.
        worst: The lowest judgement of the proposition now (of the one that fell most).
        fell_most: Where no proposition surely fell, those that fell most: nothing is claimed of one of them alone.
    """

    agent: str
    scope: Literal["dimension", "proposition"]
    change: Change
    whole: Change
    worst: WorstMessage | None
    fell_most: tuple[Change, ...] = ()

    @property
    def size(self) -> float:
        return (self.whole if self.scope == "dimension" else self.change).delta or 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BelowThreshold:
    """A score below what was asked for, with the proposition that is lowest and the share of judgements scored."""

    agent: str
    dimension: str
    score: float
    threshold: float
    proposition: str
    worst: WorstMessage | None
    share: Share | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unjudged:
    """What could not be judged enough. `dimension` is empty for the agent (or build) as a whole."""

    agent: str
    dimension: str
    why: str
    share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A comparison that does not decide.

    Attributes:
        suspected: It fell enough and alone would be sure, but not among so many.
        hint: What would fail a build, where a fall has no interval; empty otherwise.
    """

    agent: str
    change: Change
    suspected: bool = False
    hint: str = ""

    @property
    def why(self) -> str:
        """The reason, and what to do about it."""
        return "; ".join(filter(None, (self.change.reason, self.hint)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Where too little was scored to say anything: a dimension without a score, or a proposition that is scored much less than before.

    Attributes:
        proposition: Empty for the dimension.
        before, now: Judgements scored, of those the judge could have scored; `before` is None where it does not matter.
    """

    agent: str
    dimension: str
    proposition: str
    why: str
    now: Share
    before: Share | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fading:
    """A fall within long conversations that is sure (drift by position)."""

    agent: str
    dimension: str
    first: str
    last: str
    delta: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The verdict and everything it rests on."""

    verdict: Verdict
    exit_code: int
    regressions: tuple[Regression, ...] = ()
    below: tuple[BelowThreshold, ...] = ()
    fading: tuple[Fading, ...] = ()
    unjudged: tuple[Unjudged, ...] = ()
    undecided: tuple[Open, ...] = ()
    without_baseline: tuple[tuple[str, str], ...] = ()  # agent, why
    lacking: tuple[Lack, ...] = ()

    @property
    def fell_unsure(self) -> tuple[Open, ...]:
        """Falls of `LARGE_FALL` or more of which no interval says how sure they are: they fail nothing by themselves."""
        return tuple(
            found
            for found in self.undecided
            if found.change.interval is None and found.change.delta is not None and found.change.delta <= -LARGE_FALL
        )


def worst_of(summary: RunSummary, dimension: str, proposition: str) -> WorstMessage | None:
    """The lowest judgement of a proposition; for a channel's dimension the lowest of the agent's channels."""
    if dimension in COUNTED:
        return None
    run = summary.run
    channels = summary.dimensions[dimension].channels if dimension in summary.dimensions else ()
    found = [worst_judgement(part, dimension, proposition) for part in ([c.run for c in channels] or [run])]
    rows = [row for row in found if row is not None]
    return _worst(min(rows, key=lambda row: (row.score or 0, row.pk))) if rows else None


def _worst(row: EvaluationScore) -> WorstMessage:
    message = row.message
    place: dict[str, Any] = {}
    if message is not None:
        place = {
            "external_id": message.external_id,
            "position": message.position,
            "channel": message.channel.slug,
            "sent_at": message.sent_at.isoformat() if message.sent_at else "",
        }
    elif row.evaluation_run.channel is not None:
        place = {"channel": row.evaluation_run.channel.slug}
    text = " ".join((row.context_snippet or (message.text if message else "")).split())
    return WorstMessage(
        text=text if len(text) <= EXCERPT else text[: EXCERPT - 1] + "…",
        score=row.score,
        reasoning=row.reasoning or row.justification,
        **place,
    )
