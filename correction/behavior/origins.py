"""Which behaviour requests made which versions of a persona: what `PERSONA_CHANGE_ORIGINS` names."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from correction.models import BehaviorRequest


def origins_of(versions: Collection[int]) -> Mapping[int, str]:
    """``behaviour request 12 by anna`` by the version's key, as long as it is known who asked; the name is read from the message."""
    made = BehaviorRequest.objects.filter(persona_version__in=versions).select_related("message__user")
    found: dict[int, str] = {}
    for request in made:
        message = request.message
        who = message.author_name if message is not None else ""
        if request.persona_version_id is not None:
            found[request.persona_version_id] = f"behaviour request {request.pk}{f' by {who}' if who else ''}"
    return found
