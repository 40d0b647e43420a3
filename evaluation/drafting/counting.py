"""Count in how many of an agent's last messages a rule holds. Nothing is stored, and no judge is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agents.kit.text.patterns import Undecided, one_message
from agents.models import Agent, Message
from evaluation.drafting.trying import messages_said
from evaluation.propositions.rules import Rule, check_rule
from evaluation.windows import parse_window

MOST_COUNTED = 50
MOST_QUOTED = 3
LAST = parse_window(f"last:{MOST_COUNTED}")


@dataclass(frozen=True, slots=True)
class Broken:
    """A message that breaks a rule, and what of it."""

    message: Message
    why: str


@dataclass(slots=True)
class RuleCount:
    """In how many messages a rule holds.

    Attributes:
        of_ten: In how many of ten it should hold; None: in every one.
        undecided: Messages for which a pattern took too long.
        broken: The newest that break it, up to three.
    """

    of_ten: int | None
    messages: int
    holds: int = 0
    undecided: int = 0
    broken: list[Broken] = field(default_factory=list)

    @property
    def decided(self) -> int:
        return self.messages - self.undecided

    @property
    def in_ten(self) -> float | None:
        """Return in how many of ten messages it holds; None where no message could be decided."""
        return 10 * self.holds / self.decided if self.decided else None

    @property
    def is_kept(self) -> bool:
        """Return whether it holds often enough."""
        return 10 * self.holds >= (self.of_ten or 10) * self.decided


def last_messages(agent: Agent) -> list[Message]:
    """Return the last 50 messages that the agent said, the newest first."""
    return messages_said(agent, n=MOST_COUNTED, window=LAST)[::-1]


def count_rule(*, messages: Sequence[Message], rule: Rule, of_ten: int | None = None) -> RuleCount:
    """Count in how many of these messages (the newest first) a rule holds. The patterns of all together take about two seconds at most."""
    count = RuleCount(of_ten, len(messages))
    with one_message():  # one limit of time for all of them
        for message in messages:
            try:
                problems = check_rule(rule, message.text)
            except Undecided:
                count.undecided += 1
                continue
            if not problems:
                count.holds += 1
            elif len(count.broken) < MOST_QUOTED:
                count.broken.append(Broken(message, "; ".join(problems)))
    return count
