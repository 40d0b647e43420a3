"""What is measured and how it is judged: the names that all tables share."""

from __future__ import annotations

from django.db import models


class Dimension(models.TextChoices):
    """The five dimensions (specification 001); the id is the same everywhere, the label is for people."""

    ADHERENCE = "adherence", "Persona adherence"
    CONSISTENCY = "consistency", "Self-consistency"
    FLUENCY = "fluency", "Fluency"
    CONVERGENCE = "convergence", "Convergence (voice divergence)"
    IDEAS_QUANTITY = "ideas_quantity", "Ideas quantity"


CHANNEL_DIMENSIONS = (Dimension.CONVERGENCE.value, Dimension.IDEAS_QUANTITY.value)  # measured of a whole channel
BY_MESSAGE = (Dimension.ADHERENCE.value, Dimension.CONSISTENCY.value)  # judged of each message (or pair of them)
COUNTED = (Dimension.IDEAS_QUANTITY.value,)  # a count, never averaged with scores of 0 to 9


class Method(models.TextChoices):
    """How the judge is asked and what its numbers mean. Scores by different methods are never compared."""

    PLUMBLINE = "plumbline", "Plumbline"
    TINYTROUPE = (
        "tinytroupe",
        "TinyTroupe (one claim per call, the judge takes penalties off itself, a trivial 9 counts)",
    )


def procedure_name(*, method: str, hard: bool, double_check: bool, simulated: bool = False) -> str:
    """A name for how something is judged, e.g. ``plumbline+hard``; speech that was simulated for it is another thing than real speech."""
    parts = {"hard": hard, "double-check": double_check, "simulated": simulated}
    return "+".join([method, *(name for name, on in parts.items() if on)])


def is_heuristic(judge: str) -> bool:
    """Whether a judge is an offline heuristic: shown as one, never averaged or compared with an LLM's scores."""
    return judge.startswith("offline:")
