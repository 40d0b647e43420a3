"""The stage of interventions. Thin: what it does, and its imports, wait in the modules beside it."""

from __future__ import annotations

from agents.turn.pipeline import Turn


class Nudges:
    """Puts nudges into the prompt when the dynamics of the conversation ask for it (S-7.1)."""

    name = "interventions"

    def prepare(self, turn: Turn) -> None:
        from correction.interventions import evaluate

        evaluate.prepare(turn)
