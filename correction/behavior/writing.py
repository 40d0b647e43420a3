"""Changing one trait of a persona while others change others: nobody's change is lost, and each is a version of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from agents.models import Agent, PersonaVersion, Trait
from agents.persona import TraitValue, current_digest, record_version

TRIES = 5
logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class Overtaken(Exception):
    """Somebody else changed the same row between the look and the change."""


class StillOvertaken(Exception):
    """It happened again and again."""


def in_one_go(work: Callable[[], Result]) -> Result:
    """Do it in a transaction; from the start again when somebody else came in between.

    Raises:
        StillOvertaken: Each of five tries met another writer, or a rule of the database speaks against it.
    """
    for number in range(TRIES):
        try:
            with transaction.atomic():
                return work()
        except (IntegrityError, Overtaken) as error:
            logger.info("try %d of %d at a trait: %s", number + 1, TRIES, type(error).__name__)  # its text quotes names
    raise StillOvertaken


def locked_agent(pk: int | None) -> Agent | None:
    """The agent, so that changes of its persona wait for each other; on SQLite transactions do so anyway."""
    return Agent.objects.select_for_update(no_key=True).order_by().filter(pk=pk).first() if pk is not None else None


def version_before(agent: Agent, note: str) -> PersonaVersion | None:
    """The version the persona is at; one is made when nobody kept what it is now."""
    latest = PersonaVersion.objects.filter(agent=agent).order_by("-number").first()
    if latest is not None and latest.digest == current_digest(agent):
        return latest
    return record_version(agent=agent, note=note) or latest


def write_trait(agent: Agent, row: Trait | None, after: TraitValue, source: str) -> Trait:
    """Make the trait, or change it if it still is what `row` says; the others stay as they are.

    Raises:
        Overtaken: It is not.
        IntegrityError: Another trait of the agent has that name to the database.
    """
    values = {
        "name": after.name,
        "description": after.description,
        "sentiment": after.sentiment,
        "strength": after.strength,
    }
    if row is None:
        return Trait.objects.create(agent=agent, source=source[:64], **values)
    if not _as_seen(row).update(**values, updated_at=timezone.now()):
        raise Overtaken(f"trait {row.pk} was changed")
    row.refresh_from_db()
    return row


def delete_trait(row: Trait) -> None:
    """Delete the trait if it still is what `row` says.

    Raises:
        Overtaken: It is not.
    """
    if not _as_seen(row).delete()[0]:
        raise Overtaken(f"trait {row.pk} was changed")


def _as_seen(row: Trait) -> QuerySet[Trait]:
    return Trait.objects.filter(
        pk=row.pk, name=row.name, description=row.description, sentiment=row.sentiment, strength=row.strength
    )
