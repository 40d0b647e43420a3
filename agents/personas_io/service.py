"""Import personas as agents: all of them or none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from agents.persona import AgentValues, UpsertResult, upsert_agent
from agents.personas_io.reader import read_personas

NOTE = "import"


def import_agents(*, path: Path, reset: bool = False, dry_run: bool = False) -> list[UpsertResult]:
    """Create or update an agent per persona in `path`. Running it again changes nothing.

    Args:
        path: A file or a folder.
        reset: Overwrite personas that a person edited since their last import; otherwise those are kept.
        dry_run: Say what would happen, change nothing.

    Raises:
        PersonaError: A persona cannot be read; nothing was changed.
    """
    return import_read(personas=read_personas(path), reset=reset, dry_run=dry_run)


def import_read(
    *,
    personas: Sequence[AgentValues],
    reset: bool = False,
    dry_run: bool = False,
    user: AbstractBaseUser | None = None,
) -> list[UpsertResult]:
    """The same for personas that are read already; `user` is recorded with the versions this makes."""
    with transaction.atomic():
        results = [upsert_agent(values=values, note=NOTE, reset=reset, source=NOTE, user=user) for values in personas]
        transaction.set_rollback(dry_run)
    return results
