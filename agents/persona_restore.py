"""The way back to an earlier version of a persona."""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from agents.models import Agent, PersonaVersion
from agents.persona import TraitValue, current_digest, save_persona


class PersonaMovedOn(ValueError):
    """The persona is another one than the person who decided had before them."""


def values_of(version: PersonaVersion) -> list[TraitValue]:
    """The traits of a version."""
    names = ("name", "description", "sentiment", "strength")
    return [TraitValue(**{name: trait[name] for name in names}) for trait in version.traits]


def restore_version(
    *, version: PersonaVersion, seen: str, user: AbstractBaseUser | None = None
) -> PersonaVersion | None:
    """Make the persona what it was in `version`, as a new version: nothing of the history is lost.

    Args:
        version: To go back to.
        seen: Digest of the persona that was shown when it was decided.
        user: Who decided.

    Returns:
        The new version; None when the persona is as in `version` already.

    Raises:
        PersonaMovedOn: The persona was changed since; nothing is done.
    """
    with transaction.atomic():
        agent = Agent.objects.select_for_update(no_key=True).get(pk=version.agent_id)
        if current_digest(agent) != seen:
            raise PersonaMovedOn(f"the persona of {agent.slug} was changed since it was shown; look at it again")
        agent.system_prompt = version.system_prompt
        note = f"restored version {version.number}"
        return save_persona(agent=agent, traits=values_of(version), note=note, user=user)
