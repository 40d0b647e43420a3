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
from agents.personas.shape import PersonaError
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
        shown = []
        for result in results:
            agent = agents[result.agent.pk]
            shown.append((result, render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())))
        transaction.set_rollback(True)
    return shown


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
    names = [plain_name(upload.name or "") for upload in uploads]
    for name in names:
        if Path(name).suffix.lower() not in SUFFIXES:
            raise NotImported(f"{name} is no persona; allowed: {', '.join(SUFFIXES)}")
    if sum(upload.size for name, upload in zip(names, uploads, strict=True) if name.lower().endswith(YAML)) > MOST_YAML:
        raise NotImported(f"more than {MOST_YAML:,} bytes of YAML; use manage.py import_agents, or write it as JSON")
    with tempfile.TemporaryDirectory(prefix="plumbline-import-") as folder, transaction.atomic():
        paths = {}
        for number, (name, upload) in enumerate(zip(names, uploads, strict=True)):
            path = Path(folder) / f"{number:04}{Path(name).suffix.lower()}"
            with path.open("wb") as out:
                out.writelines(upload.chunks())
            paths[path] = name
        try:
            stems = {path: Path(name).stem for path, name in paths.items()}
            personas = read_personas(Path(folder), stems=stems)
        except PersonaError as error:
            text = str(error)
            for path, name in paths.items():
                text = text.replace(str(path), name)
            raise NotImported(text) from None
        results = import_read(personas=personas, reset=reset, user=user)
        needed = set()
        for persona, result in zip(personas, results, strict=True):
            acts = {Outcome.CREATED: ("add",), Outcome.UPDATED: ("add", "change", "delete")}.get(result.outcome, ())
            has_traits = persona.traits is not None and (bool(persona.traits) or result.outcome != Outcome.CREATED)
            parts = ("trait",) * has_traits + ("memoryblock",) * bool(persona.memory_blocks)
            needed |= {f"agents.{act}_{part}" for act in acts for part in parts}
        if missing := sorted(name for name in needed if not user.has_perm(name)):
            raise NotImported(f"what these files hold needs permissions that you do not have: {', '.join(missing)}")
    return results
