"""Reading proposition files: precise errors (file, line, field, allowed values), and the merge for one agent (AC-6.1.5)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import yaml
from django.conf import settings
from pydantic import ValidationError

from agents.models import Agent
from agents.seed import example_slugs
from evaluation.propositions.schema import DimensionId, Proposition, PropositionFile, resolve
from evaluation.propositions.yaml_files import (
    FileProblem,
    YamlProblems,
    dotted,
    in_words,
    line_of,
    location_of,
    read_folders,
    read_mapping,
)

DEFAULT = "_default"


class PropositionError(YamlProblems):
    """Proposition files that cannot be used."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedFile:
    """A valid file: whose it is, its resolved propositions, and apart from them those that are not active."""

    path: Path
    dimension: str
    agent_id: str
    level: str
    propositions: tuple[Proposition, ...]
    inactive: tuple[Proposition, ...] = ()


def load_file(path: Path) -> LoadedFile:
    """Read and validate one file.

    Raises:
        PropositionError: With every problem of the file.
    """
    try:
        node, data = read_mapping(path, "dimension and propositions")
    except YamlProblems as error:
        raise PropositionError(error.problems) from None
    try:
        parsed = PropositionFile.model_validate(
            {"dimension": path.parent.name, **data} if "dimension" not in data else data
        )
    except ValidationError as error:
        raise PropositionError([_problem(path, node, data, dict(item)) for item in error.errors()]) from None
    return resolved_file(path, parsed, node)


def resolved_file(path: Path, parsed: PropositionFile, node: yaml.Node | None) -> LoadedFile:
    """A valid file's propositions with what they inherit from it; `node` is the file's, for the lines."""
    agent_id = parsed.agent_id or path.stem.removesuffix(".action").removesuffix(".suggestions")
    resolved = tuple(
        resolve(spec, parsed, f"{path.name}:{line_of(node, ('propositions', i)) or 1}", for_all=agent_id == DEFAULT)
        for i, spec in enumerate(parsed.propositions)
    )
    active, inactive = (tuple(p for p in resolved if p.active is wanted) for wanted in (True, False))
    return LoadedFile(path, parsed.dimension, agent_id, parsed.level, active, inactive)


def _problem(path: Path, node: yaml.Node, data: Any, item: dict[str, Any]) -> FileProblem:
    """Return a pydantic error with its place: line, field, and the id of the proposition when it has one."""
    location = location_of(item)
    field = dotted(location)
    if len(location) > 1 and location[0] == "propositions":
        with suppress(KeyError, TypeError, IndexError):
            field += f" ({data['propositions'][location[1]]['id']})"
    schema = PropositionFile.model_json_schema()
    models = {"propositions": "PropositionSpec", "rule": "Rule", "cues": "Cues"}
    inner = [models[part] for part in location[:-1] if part in models]
    allowed = (schema["$defs"][inner[-1]] if inner else schema)["properties"]
    return FileProblem(path, line_of(node, location), field, in_words(item, list(allowed)))


def proposition_dirs() -> list[Path]:
    """The folders that are read, in order: ours, then the team's (`PROPOSITION_DIRS`), which may override ids of ours."""
    folders = [Path(settings.PROPOSITIONS_DIR), *map(Path, settings.PROPOSITION_DIRS)]
    return list({folder.resolve(): folder for folder in folders}.values())  # one that is named twice is read once


def load_all() -> list[LoadedFile]:
    """Read every proposition file of every folder; a file is read again only when it changed.

    Raises:
        PropositionError: With the problems of all files, and of folders that do not exist.
    """
    read, problems = read_folders(proposition_dirs(), "PROPOSITION_DIRS", load_file)
    files = [file for _, file in read]
    problems += shared_ids(tuple(files))
    if problems:
        raise PropositionError(problems)
    return files


@lru_cache(maxsize=4)
def shared_ids(files: tuple[LoadedFile, ...]) -> tuple[FileProblem, ...]:
    """Find ids that are in a default and in an agent's own file of one folder: one of them would silently win."""
    problems: list[FileProblem] = []
    seen: dict[tuple[Path, str, str, str], Path] = {}
    folders = proposition_dirs()[::-1]
    for file in files:
        folder = next((d for d in folders if file.path.is_relative_to(d)), file.path.parent)
        about = file.dimension + file.level
        for p in file.propositions:
            others = (seen.get((folder, about, owner, p.id)) for owner in (file.agent_id, DEFAULT))
            if other := next(filter(None, others), None):
                line = int(p.source.rpartition(":")[2])
                problems.append(FileProblem(file.path, line, "id", f"{p.id!r} stands in {other} as well"))
            seen[folder, about, file.agent_id, p.id] = file.path
    return tuple(problems)


def is_example(file: LoadedFile) -> bool:
    """Whether it holds the propositions of an example agent: a shipped file that bears its slug."""
    if file.agent_id not in example_slugs():
        return False
    in_team = any(file.path.is_relative_to(folder) for folder in settings.PROPOSITION_DIRS)
    return not in_team and file.path.is_relative_to(settings.PROPOSITIONS_DIR)


def applying(files: Sequence[LoadedFile], *, seeded: bool) -> list[LoadedFile]:
    """The files that may apply to an agent, by whether it is an example (`Agent.seeded`): other agents of the slug get no example's."""
    return [file for file in files if seeded or not is_example(file)]


def own_agents_like_examples() -> set[str]:
    """The slugs of agents that are the team's own and bear the slug of an example: its propositions do not apply to them."""
    own = Agent.objects.filter(slug__in=example_slugs()).exclude(origin=Agent.Origin.SEED)
    return set(own.values_list("slug", flat=True))


def propositions_for(
    *,
    agent_slug: str,
    dimension: str,
    level: str = "evaluation",
    files: Sequence[LoadedFile] | None = None,
    seeded: bool = False,
) -> list[Proposition]:
    """The propositions of one agent and dimension: the defaults, then its own; a team's folder overrides equal ids of ours.

    What is retired in a later folder or in the agent's own file is not asked, whatever stands before it. The propositions that are
    shipped with the examples apply to these alone.

    Args:
        agent_slug: Whose.
        dimension: Its id.
        level: ``evaluation``, or ``action`` for those about a draft.
        files: What `load_all` returned, for callers that ask several times and have no time to look at the folders again.
        seeded: Whether the agent is one of the examples (`Agent.seeded`).

    Raises:
        PropositionError: A file cannot be used.
    """
    merged: dict[str, Proposition] = {}
    chosen = [f for f in (load_all() if files is None else files) if f.dimension == dimension and f.level == level]
    chosen = applying(chosen, seeded=seeded)
    for owner in (DEFAULT, agent_slug):
        for file in chosen:
            if file.agent_id == owner:
                merged.update({p.id: p for p in file.propositions})
                for retired in (p.id for p in file.inactive if p.retired):
                    merged.pop(retired, None)
    return list(merged.values())


def default_dimensions() -> tuple[str, ...]:
    """The dimensions there are propositions for: without any there is nothing to measure.

    Raises:
        PropositionError: A file cannot be used.
    """
    measured = {file.dimension for file in load_all() if file.level == "evaluation" and file.propositions}
    return tuple(name for name in get_args(DimensionId) if name in measured)
