"""Import personas as agents: all of them or none."""

from __future__ import annotations

from pathlib import Path

from django.db import transaction

from agents.persona import UpsertResult, upsert_agent
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
    personas = read_personas(path)
    with transaction.atomic():
        results = [upsert_agent(values=values, note=NOTE, reset=reset, source=NOTE) for values in personas]
        transaction.set_rollback(dry_run)
    return results
