"""A mode of one's own: one class, registered once. In a project it stands in an app, which imports it in `AppConfig.ready`."""

from __future__ import annotations

from typing import Any

from agents.debates.models import DebateSeat
from agents.debates.modes import Context, Fields, Mode, confidence_range, register, required_fields


def short(fields: Fields, seat: DebateSeat, context: Context) -> tuple[Fields, str]:
    """A jury's verdict is one sentence."""
    words = len(str(fields["position"]).split())
    return fields, f"a verdict has at most 12 words, and this one has {words}" if words > 12 else ""


@register
class Jury(Mode):
    name = "jury"
    title = "Jury"
    about = "The foreman speaks first, then the others side by side."
    stances = True
    order = "teams"
    roles = ("foreman", "juror")
    validators = (required_fields, confidence_range, short)

    def get_agent_role(self, number: int, seats: int) -> str:
        return "foreman" if number == 1 else "juror"

    def prompt(self, layer: str, **values: Any) -> str:
        return {
            "role": f"You are the {values['role']} of a jury.",
            "contract": "- Presume innocence.",
            "structure": "`position` is your verdict, in at most 12 words.",
            "verification": "- Is there a reasonable doubt?",
        }[layer]
