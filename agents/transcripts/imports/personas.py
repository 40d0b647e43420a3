"""Persona files that a person uploads: imported at once with their permissions, all or none."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from django.contrib.auth.models import AnonymousUser, User
from django.core.files import File
from django.db import transaction

from agents.models import Agent
from agents.personas.persona import Outcome, UpsertResult, render_persona
from agents.personas.reader import SUFFIXES, YAML, import_read, read_personas
from agents.personas.shape import PersonaError, PersonaSpec
from agents.transcripts.imports.uploads import plain_name

MOST_YAML = 64 * 1024
"""Bytes of YAML in one upload: larger files take seconds, in which the server would answer nobody else."""


class NotImported(Exception):
    """Nothing was changed. Says why."""


def may_import(user: User | AnonymousUser) -> bool:
    """Return whether they may upload personas, which make agents and change them."""
    return user.has_perm("agents.add_agent") and user.has_perm("agents.change_agent")


def preview_uploaded(uploads: Sequence[File[bytes]], *, user: User, reset: bool) -> list[tuple[UpsertResult, str]]:
    """Report what `import_uploaded` would do, with what each model would then read as its persona; nothing is changed.

    Raises:
        NotImported: A file is no persona, too large, or goes beyond the user's permissions.
    """
    with transaction.atomic():
        results = import_uploaded(uploads, user=user, reset=reset)
        agents = Agent.objects.prefetch_related("traits").in_bulk([result.agent.pk for result in results])
        previews: list[tuple[UpsertResult, str]] = []
        for result in results:
            agent = agents[result.agent.pk]
            persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())
            previews.append((result, persona))
        transaction.set_rollback(True)
    return previews


def import_uploaded(uploads: Sequence[File[bytes]], *, user: User, reset: bool) -> list[UpsertResult]:
    """Import the personas in some files.

    Args:
        uploads: At least one.
        user: Needs what an agent's page asks for the parts of a persona; recorded with the versions.
        reset: Overwrite personas that were edited here since their last import.

    Raises:
        NotImported: A file is no persona, too large, or goes beyond the user's permissions.
    """
    if not may_import(user):
        raise NotImported("personas make agents and change them: that needs agents.add_agent and agents.change_agent")
    _check_files(uploads)
    with tempfile.TemporaryDirectory(prefix="plumbline-import-") as folder, transaction.atomic():
        personas = _read_uploaded(uploads, Path(folder))
        results = import_read(personas=personas, reset=reset, user=user)
        needed: set[str] = set()
        for persona, result in zip(personas, results, strict=True):
            needed |= _needed_permissions(persona, result)
        missing = sorted(name for name in needed if not user.has_perm(name))
        if missing:
            raise NotImported(f"what these files hold needs permissions that you do not have: {', '.join(missing)}")
    return results


def _check_files(uploads: Sequence[File[bytes]]) -> None:
    """Raise `NotImported` for a file whose ending is no persona's, or for too much YAML in all files together."""
    yaml_bytes = 0
    for upload in uploads:
        name = plain_name(upload.name or "")
        if Path(name).suffix.lower() not in SUFFIXES:
            raise NotImported(f"{name} is no persona; allowed: {', '.join(SUFFIXES)}")
        if name.lower().endswith(YAML):
            yaml_bytes += upload.size
    if yaml_bytes > MOST_YAML:
        raise NotImported(f"more than {MOST_YAML:,} bytes of YAML; use manage.py import_agents, or write it as JSON")


def _read_uploaded(uploads: Sequence[File[bytes]], folder: Path) -> list[PersonaSpec]:
    """Write the files into a folder and read the personas in them.

    Raises:
        NotImported: One cannot be read; names the file as it was uploaded.
    """
    names: dict[Path, str] = {}
    for number, upload in enumerate(uploads):
        name = plain_name(upload.name or "")
        path = folder / f"{number:04}{Path(name).suffix.lower()}"
        with path.open("wb") as out:
            out.writelines(upload.chunks())
        names[path] = name
    stems = {path: Path(name).stem for path, name in names.items()}
    try:
        return read_personas(folder, stems=stems)
    except PersonaError as error:
        text = str(error)
        for path, name in names.items():
            text = text.replace(str(path), name)
        raise NotImported(text) from None


def _needed_permissions(persona: PersonaSpec, result: UpsertResult) -> set[str]:
    """Return the permissions that an agent's page asks for the parts of a persona: its traits and memory blocks.

    None where the import changed nothing, or kept what a person had edited.
    """
    if result.outcome == Outcome.CREATED:
        actions = ["add"]
        has_traits = bool(persona.traits)
    elif result.outcome == Outcome.UPDATED:
        actions = ["add", "change", "delete"]
        has_traits = persona.traits is not None  # none at all are a deletion
    else:
        return set()
    needed: set[str] = set()
    for action in actions:
        if has_traits:
            needed.add(f"agents.{action}_trait")
        if persona.memory_blocks:
            needed.add(f"agents.{action}_memoryblock")
    return needed
