"""The dimensions that are measured: the one list, and what each of them is. Everything else takes both from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from django.db import models


class Dimension(models.TextChoices):
    """The list of dimensions (specification 001); the id is the same everywhere, also as name of the scorer; the label is for people."""

    ADHERENCE = "adherence", "Persona adherence"
    CONSISTENCY = "consistency", "Self-consistency"
    FLUENCY = "fluency", "Fluency"
    CONVERGENCE = "convergence", "Convergence (voice divergence)"
    IDEAS_QUANTITY = "ideas_quantity", "Ideas quantity"

    @property
    def kind(self) -> Kind:
        return KINDS[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The traits of a dimension.

    Attributes:
        judged_by: What one judgement is about: a message, a message and an earlier one (a pair), or everything said in the window.
        measured_of: Whether an agent is measured, or all that is said in a channel.
        counted: The result is a count, never averaged with scores of 0 to 9.
        takes_rules: Its propositions may have a rule and a precondition, which look at the text of one message.
        has_gate: The gate can judge drafts for it.
        shows_persona: The judge sees the persona, unless a proposition file says otherwise.
        hides_persona: An evaluation never shows the judge the persona, and a proposition file cannot say otherwise.
        statistic: The statistic that the offline judge measures for it (`measure` in proposition files); empty when there is none.
    """

    judged_by: Literal["message", "pair", "window"]
    measured_of: Literal["agent", "channel"] = "agent"
    counted: bool = False
    takes_rules: bool = False
    has_gate: bool = False
    shows_persona: bool = False
    hides_persona: bool = False
    statistic: str = ""


KINDS = {
    Dimension.ADHERENCE: Kind(judged_by="message", takes_rules=True, has_gate=True, shows_persona=True),
    Dimension.CONSISTENCY: Kind(judged_by="pair", has_gate=True, hides_persona=True, statistic="voice"),
    Dimension.FLUENCY: Kind(judged_by="window", has_gate=True, hides_persona=True, statistic="phrases"),
    Dimension.CONVERGENCE: Kind(judged_by="window", measured_of="channel", statistic="voices"),
    Dimension.IDEAS_QUANTITY: Kind(judged_by="window", measured_of="channel", counted=True, hides_persona=True),
}

# The ids of those that share a trait.
CHANNEL_DIMENSIONS = tuple(d.value for d in Dimension if d.kind.measured_of == "channel")
BY_MESSAGE = tuple(d.value for d in Dimension if d.kind.judged_by in ("message", "pair"))
BY_ONE_MESSAGE = tuple(d.value for d in Dimension if d.kind.judged_by == "message")
COUNTED = tuple(d.value for d in Dimension if d.kind.counted)
TAKES_RULES = tuple(d.value for d in Dimension if d.kind.takes_rules)

DEFAULT_DIMENSIONS = (Dimension.ADHERENCE.value, Dimension.FLUENCY.value)  # measured where none are named
# The one in which a persona's traits, and what is suggested for a persona, are measured.
OF_PERSONA = Dimension.ADHERENCE.value
