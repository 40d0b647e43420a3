"""The stages that `TURN_PIPELINE` names. Thin: what they do, and its imports, wait in the modules of each mechanism."""

from __future__ import annotations

from collections.abc import Sequence

from agents.models import Agent, Message
from agents.turn.pipeline import Accept, Draft, Revise, Turn


class BehaviorRequests:
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


class RepetitionSuppression:
    """Shows an agent that repeats itself its own phrases to avoid (S-7.2)."""

    name = "repetition"

    def prepare(self, turn: Turn) -> None:
        from correction import repetition

        repetition.prepare(turn)


class Interventions:
    """Puts nudges into the prompt when the dynamics of the conversation ask for it (S-7.1)."""

    name = "interventions"

    def prepare(self, turn: Turn) -> None:
        from correction.interventions import evaluate

        evaluate.prepare(turn)


class ActionGate:
    """Judges a draft before it is said, sends it back with feedback, and in the end commits the best attempt (S-7.0)."""

    name = "gate"

    def review(self, turn: Turn, draft: Draft) -> Accept | Revise:
        from correction.gate import stage

        return stage.review(turn, draft)

    def committed(self, turn: Turn, message: Message) -> None:
        from correction.gate import stage

        stage.committed(turn, message)

    def finish(self, turn: Turn) -> None:
        from correction.gate import stage

        stage.finish(turn)
