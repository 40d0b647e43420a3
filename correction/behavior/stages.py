"""The stage of requests to behave differently. Thin: what it does, and its imports, wait in the modules beside it."""

from __future__ import annotations

from collections.abc import Sequence

from agents.models import Agent, Message
from agents.turn.pipeline import Turn


class Requests:
    """Has what a person says looked at for a request to behave differently, later and by a worker (specification 002).

    Shows the agent what was applied for a channel or a person alone.
    """

    name = "behavior"

    def received(self, message: Message, agent: Agent) -> str:
        from correction.behavior import work

        return work.hear(message=message, agent=agent)

    def ingested(self, messages: Sequence[Message]) -> str:
        from correction.behavior import work

        return work.note_on(messages)

    def prepare(self, turn: Turn) -> None:
        from correction.behavior import scope

        scope.prepare(turn)
