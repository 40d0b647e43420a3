"""Measuring files without a server: a database in this process's memory, and the team's files in it.

Nothing of it outlives the process, however that ends, and the configured database is neither read nor written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.sqlite3.base import DatabaseWrapper

from agents.kit.files.source import FileError
from agents.kit.llm.prices import forget_prices, seed_prices
from agents.models import Agent
from agents.personas.reader import import_agents
from agents.personas.shape import PersonaError
from agents.transcripts.importer import AUTO, ReadOptions, import_transcript
from agents.transcripts.records import OptionError
from evaluation.propositions.files import PropositionError, file_problems


class UnusableFiles(ValueError):
    """Personas or transcripts that cannot be measured; says which and why."""


@contextmanager
def private_database() -> Iterator[None]:
    """Inside, everything this thread stores is stored in memory, in tables made from the models (migrating would take seconds)."""
    own = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "OPTIONS": {"transaction_mode": "IMMEDIATE"}}
    private = DatabaseWrapper(connections.configure_settings({DEFAULT_DB_ALIAS: own})[DEFAULT_DB_ALIAS])
    configured = connections[DEFAULT_DB_ALIAS]  # asking for it does not connect
    connections[DEFAULT_DB_ALIAS] = private
    threads, settings.WORKER_THREADS = settings.WORKER_THREADS, 1  # another thread would open the configured one
    try:
        with private.schema_editor() as editor:
            for model in apps.get_models():
                if model._meta.managed and not model._meta.proxy:
                    editor.create_model(model)
        seed_prices(apps=apps, using=DEFAULT_DB_ALIAS)
        yield
    finally:
        connections[DEFAULT_DB_ALIAS], settings.WORKER_THREADS = configured, threads
        forget_prices()  # they were the private ones
        if private.connection is not None:
            private.connection.close()


@contextmanager
def with_propositions(folder: Path | None) -> Iterator[None]:
    """Inside, this folder is read after those of the settings.

    Raises:
        UnusableFiles: There is no such folder.
        PropositionError: A file in it cannot be used, whoever it is about: the folder was named by hand.
    """
    if folder is not None and not folder.is_dir():
        raise UnusableFiles(f"--propositions {folder}: there is no such folder")
    before = settings.PROPOSITION_DIRS
    settings.PROPOSITION_DIRS = before if folder is None else [*before, folder]
    try:
        if problems := [p for p in file_problems() if folder is not None and p.path.is_relative_to(folder)]:
            raise PropositionError(problems)
        yield
    finally:
        settings.PROPOSITION_DIRS = before


def load_files(
    *, personas: Path, transcripts: Sequence[Path], speakers: Mapping[str, str] | None = None, format: str = AUTO
) -> list[Agent]:
    """Import personas, then what they said.

    Args:
        personas: A file or a folder, as `import_agents` reads it.
        transcripts: Conversations, as `import_transcript` reads them.
        speakers: Speaker or role -> agent slug, where the names differ.

    Raises:
        UnusableFiles: A file cannot be read, or no agent says anything in the transcripts.
    """
    try:
        agents = [result.agent for result in import_agents(path=personas)]
    except (PersonaError, OSError) as error:
        raise UnusableFiles(f"--personas {personas}: {error}") from None
    heard: dict[str, str | None] = {}
    stems: set[str] = set()
    for path in transcripts:
        if path.stem in stems:
            raise UnusableFiles(f"--transcript {path}: another one is called {path.stem}, too; rename one of them")
        stems.add(path.stem)
        try:
            report = import_transcript(path, ReadOptions(format=format, speaker_map=dict(speakers or {})))
        except (FileError, OptionError, OSError) as error:
            raise UnusableFiles(f"--transcript {path}: {error}") from None
        heard |= {name: speaker.agent for name, speaker in report.speakers.items()}
    if transcripts and not any(heard.values()):
        raise UnusableFiles(
            f"none of {', '.join(agent.slug for agent in agents)} speaks in the transcript; its speakers: "
            f"{', '.join(heard) or 'none'}; --map SPEAKER=SLUG says who is who"
        )
    return agents
