"""What a play is: who was played through which situations by which model, and what of it came off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agents.models import Agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One situation, played once.

    Attributes:
        situation: Its id. `repeat`: which of the repeats, from 1.
        channel: Slug of its channel.
        lines: How many lines it has. `played`: how many of them the agent answered, or chose to pass over in silence.
        silent: How many of these it passed over. `silence`: why, the first time, in the agent's own words.
        reason: Why the other lines were not played; empty when all were.
        tried: False when it was left out because others before it had failed.
    """

    situation: str
    repeat: int
    channel: str
    lines: int
    played: int
    silent: int = 0
    silence: str = ""
    reason: str = ""
    tried: bool = True

    @property
    def complete(self) -> bool:
        return self.played == self.lines

    @property
    def name(self) -> str:
        return self.situation if self.repeat == 1 else f"{self.situation} ({self.repeat})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """An agent played through situations, each in a channel of its own that is marked synthetic.

    Every message carries the tags ``play`` (the id), ``situation``, ``repeat`` and ``turn`` (which of the situation's lines, from 1).

    Attributes:
        id: The value of the tag ``play``; the part before the last ``-`` is equal for plays of the same agent, persona, situations,
            model and repeats.
        agent: Who was played.
        actor_model: By which model.
        persona_digest: Under which persona.
        conversations: Every situation and repeat, in the order of playing.
        messages: How many messages of the agent there are to measure.
        taken_up: Whether it goes on with what an earlier process left.
    """

    id: str
    agent: Agent
    actor_model: str
    persona_digest: str
    conversations: tuple[Conversation, ...]
    messages: int
    taken_up: bool = False

    @property
    def complete(self) -> bool:
        return all(conversation.complete for conversation in self.conversations)

    @property
    def not_played(self) -> tuple[Conversation, ...]:
        """Situations of which a line is missing, each with its reason."""
        return tuple(conversation for conversation in self.conversations if not conversation.complete)

    @property
    def usable(self) -> bool:
        """Whether it can be measured: the agent said something, and its model did not fail for good on the way."""
        return self.messages > 0 and all(conversation.tried for conversation in self.conversations)

    @property
    def failed(self) -> bool:
        """Whether there is nothing to measure because the actor failed: playing again may help."""
        return not self.complete and not self.usable

    @property
    def problem(self) -> str:
        """Why there is less to measure than there should be, in a sentence; empty when everything was played."""
        missing = self.not_played
        if missing:
            reasons = "; ".join(dict.fromkeys(conversation.reason for conversation in missing))
            names = ", ".join(conversation.name for conversation in missing[:5])
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            return f"{len(missing)} of {len(self.conversations)} conversations not played ({names}{more}): {reasons}"
        if not self.messages:
            reasons = "; ".join(dict.fromkeys(c.silence for c in self.conversations if c.silence))
            return f"the agent said nothing in any of {len(self.conversations)} conversations: {reasons}"
        return ""

    def as_json(self) -> dict[str, Any]:
        """What was played, and what was not and why."""
        return {
            "agent": self.agent.slug,
            "play": self.id,
            "actor_model": self.actor_model,
            "messages": self.messages,
            "problem": self.problem,
            "complete": self.complete,
            "conversations": [
                {
                    "situation": c.situation,
                    "repeat": c.repeat,
                    "channel": c.channel,
                    "lines": c.lines,
                    "played": c.played,
                    "silent": c.silent,
                    **({"reason": c.reason} if c.reason else {}),
                }
                for c in self.conversations
            ],
        }


def plays_json(plays: Sequence[Play]) -> dict[str, Any]:
    """The entry ``plays`` of a command's object; nothing where nobody was played."""
    return {"plays": [play.as_json() for play in plays]} if plays else {}
