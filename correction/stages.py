"""The stages that `TURN_PIPELINE` names. Thin: what they do, and its imports, wait in the modules of each mechanism."""

from __future__ import annotations

from agents.models import Message
from agents.turn.pipeline import Accept, Draft, Revise, Turn


class RepetitionSuppression:
    """Shows an agent that repeats itself its own phrases to avoid (S-7.2)."""

    name = "repetition"

    def prepare(self, turn: Turn) -> None:
        from correction import repetition

        repetition.prepare(turn)


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
