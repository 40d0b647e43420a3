"""Importing what was checked, with the permissions of whoever handed it in and the services of the commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from agents.imports.checking import MOST_CHANNELS, MOST_PERSONAS, arguments, counted, personas_at, shortened
from agents.imports.choices import (
    Choices,
    NewAgent,
    may_import_personas,
    may_import_transcripts,
    may_make_speakers,
    missing_for_personas,
)
from agents.imports.problems import NotPossible, not_possible
from agents.imports.uploads import stems_of
from agents.models import Agent, Message
from agents.persona import save_persona
from agents.personas_io.reader import read_personas
from agents.personas_io.service import import_read
from agents.personas_io.shape import PersonaError
from agents.transcripts.importer import Progress, import_transcript
from agents.transcripts.records import OptionError, TranscriptError
from agents.transcripts.store import NotEntitled, rights_of

SOURCE = "import"


def import_conversation(
    *,
    paths: Mapping[Path, str],
    choices: Choices,
    user: User,
    note: str,
    progress: Progress,
    on_new: Callable[[Sequence[Message]], None],
) -> dict[str, Any]:
    """Import a transcript; the agents that are to be made for its speakers first.

    Args:
        paths: The file, with the name it was given.
        choices: As they were checked.
        user: With whose permissions.
        note: Of the first persona version of agents that are made; the same when it is done again.
        progress: Told how far it is.
        on_new: Told of what is stored, inside the transaction that stores it.

    Returns:
        What came of it.

    Raises:
        NotPossible: Nothing was stored, and no agent made.
    """
    if not may_import_transcripts(user) or (choices.made and not may_make_speakers(user)):
        raise NotPossible(f"{user} may not import this any more: a permission was taken away.")
    path, given = next(iter(paths.items()))
    told = {**arguments(choices), "stem": Path(given).stem}
    made: list[Agent] = []
    try:
        if choices.made:  # checked once more before anything is made
            import_transcript(path=path, dry_run=True, rights=rights_of(user), progress=progress, **told)
        made = make_agents(choices.made, user=user, note=note)
        speakers = {**choices.agents, **{name: agent.slug for name, agent in choices.made.items()}}
        report = import_transcript(
            path=path,
            rights=rights_of(user),
            progress=progress,
            on_new=on_new,
            **{**told, "speaker_map": speakers},
        )
    except (TranscriptError, OptionError, NotEntitled) as error:
        Agent.objects.filter(pk__in=[agent.pk for agent in made], messages=None).delete()
        raise NotPossible(str(error)) if isinstance(error, NotEntitled) else not_possible(error, path.parent) from None
    return {
        **shortened(report.as_json()),
        "channels": report.channels[:MOST_CHANNELS],
        "agents": [agent.slug for agent in choices.made.values()],
        "spoke": sorted({slug for slug, _ in report.speakers.values() if slug})[:MOST_PERSONAS],
    }


def make_agents(wanted: Mapping[str, NewAgent], *, user: User, note: str) -> list[Agent]:
    """Make the agents for speakers that are not made yet; returns those that were made now.

    Raises:
        NotPossible: There is another agent of that name by now.
    """
    made = []
    with transaction.atomic():
        for new in {agent.slug: agent for agent in wanted.values()}.values():
            there = Agent.objects.filter(slug=new.slug).first()
            if there is None:
                agent = Agent(slug=new.slug, display_name=new.display_name, system_prompt=new.system_prompt)
                save_persona(agent=agent, traits=(), note=note, source=SOURCE, user=user)
                made.append(agent)
            elif not there.persona_versions.filter(number=1, note=note).exists():
                raise NotPossible(
                    f"There is an agent {new.slug!r} by now, made by somebody else: choose it for the speaker, or another id "
                    "for the new one."
                )
    return made


def import_personas(*, paths: Mapping[Path, str], reset: bool, user: User) -> dict[str, Any]:
    """Import personas, all or none.

    Raises:
        NotPossible: Nothing was changed.
    """
    if not may_import_personas(user):
        raise NotPossible(f"{user} may not import personas any more: a permission was taken away.")
    try:
        values = read_personas(personas_at(paths), stems=stems_of(paths))
    except PersonaError as error:
        raise not_possible(error, next(iter(paths)).parent) from None
    with transaction.atomic():
        results = import_read(personas=values, reset=reset, user=user)
        if missing := missing_for_personas(user, values, results):
            raise NotPossible(f"{user} may not import these personas: missing {', '.join(missing)}.")
    return {
        "personas": [
            {"slug": r.agent.slug, "name": r.agent.display_name, "outcome": r.outcome, "changed": list(r.changed)}
            for r in results[:MOST_PERSONAS]
        ],
        **counted(results),
    }
