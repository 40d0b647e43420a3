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
from agents.transcripts.importer import AUTO, ImportReport, ReadOptions, import_transcript
from agents.transcripts.records import OptionError
from evaluation.propositions.files import PropositionError, file_problems


class UnusableFiles(ValueError):
    """Personas or transcripts that cannot be measured; says which and why."""


@contextmanager
def private_database() -> Iterator[None]:
    """Have everything that this thread stores inside stored in memory, in tables made from the models (migrating would take seconds).

    The prices of models are filled in, nothing else. Afterwards, also after an error, the configured database is back.
    """
    private = _memory_database()
    configured = connections[DEFAULT_DB_ALIAS]  # asking for it does not connect
    threads = settings.WORKER_THREADS
    connections[DEFAULT_DB_ALIAS] = private
    settings.WORKER_THREADS = 1  # another thread would open the configured database
    try:
        with private.schema_editor() as editor:
            for model in apps.get_models():
                if model._meta.managed and not model._meta.proxy:
                    editor.create_model(model)
        seed_prices(apps=apps, using=DEFAULT_DB_ALIAS)
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = configured
        settings.WORKER_THREADS = threads
        forget_prices()  # they were the private ones
        if private.connection is not None:
            private.connection.close()


def _memory_database() -> DatabaseWrapper:
    """Return a SQLite database in memory, not yet opened."""
    database = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": ":memory:",
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
    with_defaults = connections.configure_settings({DEFAULT_DB_ALIAS: database})
    return DatabaseWrapper(with_defaults[DEFAULT_DB_ALIAS])


@contextmanager
def with_propositions(folder: Path | None) -> Iterator[None]:
    """Have the proposition files of this folder read inside, after those of the settings; None changes nothing.

    Raises:
        UnusableFiles: There is no such folder.
        PropositionError: A file in it cannot be used, no matter which agent it is about: the folder was named by hand.
    """
    if folder is None:
        yield
        return
    if not folder.is_dir():
        raise UnusableFiles(f"--propositions {folder}: there is no such folder")
    configured = settings.PROPOSITION_DIRS
    settings.PROPOSITION_DIRS = [*configured, folder]
    try:
        problems = [problem for problem in file_problems() if problem.path.is_relative_to(folder)]
        if problems:
            raise PropositionError(problems)
        yield
    finally:
        settings.PROPOSITION_DIRS = configured


def load_files(
    *,
    personas: Path,
    transcripts: Sequence[Path],
    speakers: Mapping[str, str] | None = None,
    format: str = AUTO,
    columns: Mapping[str, str] | None = None,
    dates: str = "",
) -> list[str]:
    """Import personas, then what they said, and return what had to be assumed about the transcripts, each with its file.

    Args:
        personas: A file or a folder, as `import_agents` reads it.
        transcripts: Conversations, as `import_transcript` reads them; none where speech is simulated.
        speakers: Speaker or role -> agent slug, where the names differ.
        columns: Our field to the column of a CSV file or the key of JSON Lines.
        dates: How chat logs write dates, see `ReadOptions`.

    Raises:
        UnusableFiles: A file cannot be read, or no agent says anything in the transcripts.
    """
    agents = _import_personas(personas)
    options = ReadOptions(format=format, speaker_map=dict(speakers or {}), columns=dict(columns or {}), dates=dates)
    warnings: list[str] = []
    agent_of_speaker: dict[str, str | None] = {}  # None: the speaker is none of the agents
    stems: set[str] = set()
    for path in transcripts:
        if path.stem in stems:  # a channel is called as its file
            raise UnusableFiles(f"--transcript {path}: another one is called {path.stem}, too; rename one of them")
        stems.add(path.stem)
        report = _import(path, options)
        warnings += [f"{path}: {warning}" for warning in report.warnings]
        for name, speaker in report.speakers.items():
            agent_of_speaker[name] = speaker.agent
    if transcripts and not any(agent_of_speaker.values()):
        slugs = ", ".join(agent.slug for agent in agents)
        names = ", ".join(agent_of_speaker) or "none"
        raise UnusableFiles(
            f"none of {slugs} speaks in the transcript; its speakers: {names}; --map SPEAKER=SLUG says who is who"
        )
    return warnings


def _import_personas(path: Path) -> list[Agent]:
    try:
        return [result.agent for result in import_agents(path=path)]
    except PersonaError as error:
        raise UnusableFiles(f"--personas {error}") from None
    except OSError as error:
        raise UnusableFiles(f"--personas {path}: {error.strerror}") from None


def _import(transcript: Path, options: ReadOptions) -> ImportReport:
    try:
        return import_transcript(transcript, options)
    except FileError as error:
        raise UnusableFiles(f"--transcript {error}") from None
    except (OptionError, OSError) as error:
        raise UnusableFiles(f"--transcript {transcript}: {error}") from None
