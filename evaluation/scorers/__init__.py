"""One scorer per dimension: which judgements it needs, and what the judge is shown for each. Runs do the rest.

A scorer is a module with the functions of `Scorer`, registered below; `Dimension` is the list of dimensions. It works on a subject of
`subjects`: its messages are chosen by `selection`, windows around them are read by `reading`, and `context` is what the judge is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from agents.models import Message
from evaluation.dimensions import Dimension
from evaluation.scorers import adherence, consistency, convergence, fluency, ideas_quantity
from evaluation.scorers.context import Context
from evaluation.scorers.subjects import ChannelSubject, Item, Subject

if TYPE_CHECKING:
    from evaluation.propositions.schema import Proposition

S = TypeVar("S", contravariant=True)


class Scorer(Protocol[S]):
    """The functions of every scorer, for an agent (`Subject`) or a channel (`ChannelSubject`)."""

    def plan(self, subject: S, propositions: Sequence[Proposition]) -> list[Item]:
        """Return what is to be judged: each proposition on a message, on a pair of messages, or on the full window."""

    def context(
        self, subject: S, proposition: Proposition, message: Message | None, earlier: Message | None = None
    ) -> Context:
        """Return what the judge is shown; `earlier` is the first message of a pair.

        Raises:
            ValueError: A message that the judgement is about is missing.
        """

    def not_evaluable(self, subject: S) -> str:
        """Return why nothing can be judged; empty when it can."""


@runtime_checkable
class HasFigures(Protocol[S]):
    """A scorer that also stores figures with the run, beside the judgements."""

    def figures(self, subject: S, propositions: Sequence[Proposition]) -> dict[str, Any]: ...


@runtime_checkable
class ReadsAhead(Protocol[S]):
    """A scorer that reads what it needs of many messages in one query, before `context` is asked about each."""

    def read_ahead(self, subject: S, messages: Iterable[Message]) -> None: ...


OF_AGENTS: dict[str, Scorer[Subject]] = {
    Dimension.ADHERENCE: adherence,
    Dimension.CONSISTENCY: consistency,
    Dimension.FLUENCY: fluency,
}
OF_CHANNELS: dict[str, Scorer[ChannelSubject]] = {
    Dimension.CONVERGENCE: convergence,
    Dimension.IDEAS_QUANTITY: ideas_quantity,
}
_ALL: dict[str, Scorer[Any]] = {**OF_AGENTS, **OF_CHANNELS}
SCORERS: dict[str, Scorer[Any]] = {name: _ALL[name] for name in Dimension.values}
