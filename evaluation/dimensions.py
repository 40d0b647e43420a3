"""The dimensions that are measured: the one list. Proposition files, scorers, commands, API and the gate's feedback take them from here."""

from __future__ import annotations

from django.db import models


class Dimension(models.TextChoices):
    """The list of dimensions (specification 001); the id is the same everywhere, also as name of the scorer; the label is for people."""

    ADHERENCE = "adherence", "Persona adherence"
    CONSISTENCY = "consistency", "Self-consistency"
    FLUENCY = "fluency", "Fluency"
    CONVERGENCE = "convergence", "Convergence (voice divergence)"
    IDEAS_QUANTITY = "ideas_quantity", "Ideas quantity"


CHANNEL_DIMENSIONS = (Dimension.CONVERGENCE.value, Dimension.IDEAS_QUANTITY.value)  # measured of a whole channel
BY_MESSAGE = (Dimension.ADHERENCE.value, Dimension.CONSISTENCY.value)  # judged of each message (or pair of them)
COUNTED = (Dimension.IDEAS_QUANTITY.value,)  # a count, never averaged with scores of 0 to 9
