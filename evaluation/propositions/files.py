"""Read proposition files: errors with file, line, field and what is allowed, and the merge of files for one agent (AC-6.1.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from django.conf import settings
from pydantic import ValidationError

from agents.models import Agent
from agents.seed import example_slugs
from evaluation.propositions.schema import DimensionId, Proposition, PropositionFile, resolve


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # both are safe; the C one is ten times faster
    """The safe loader, which refuses a key that stands twice in one mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                problem = f"{key.value}: stands twice in the same mapping"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileProblem:
    """One thing wrong with a file."""

    path: Path
    line: int | None
    field: str
    message: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else str(self.path)
        return f"{place}: {self.field}: {self.message}" if self.field else f"{place}: {self.message}"


class YamlProblems(Exception):
    """Files that cannot be used; `problems` lists every one of them."""

    def __init__(self, problems: Sequence[FileProblem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


def read_mapping(path: Path, expected: str) -> tuple[yaml.Node, dict[Any, Any]]:
    """A file with a mapping at its top, as nodes (for the lines) and as data.

    Args:
        expected: The keys to name where there is no mapping.

    Raises:
        YamlProblems: It cannot be read, is not YAML, has a key twice, or is no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise YamlProblems([FileProblem(path, None, "", f"cannot be read: {error}")]) from None
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        data = loader.construct_document(node) if node is not None else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error)
        raise YamlProblems(
            [FileProblem(path, mark.line + 1 if mark else None, "", f"not valid YAML: {reason}")]
        ) from None
    except ValueError as error:  # looks like a date or a number, and is none
        raise YamlProblems([FileProblem(path, None, "", f"not valid YAML: {error}")]) from None
    except RecursionError:
        raise YamlProblems([FileProblem(path, None, "", "nested too deeply")]) from None
    if not isinstance(data, dict):
        raise YamlProblems([FileProblem(path, 1, "", f"expected a mapping with {expected} at the top")])
    return node, data


def read_folders(
    folders: Iterable[Path], setting: str, load: Callable[[Path], T]
) -> tuple[list[tuple[Path, T]], list[FileProblem]]:
    """Read the YAML files of folders and their subfolders; a file is read again only when it changed.

    Args:
        load: Reads one file; raises `YamlProblems`.

    Returns:
        Each file with what was read of it, and the problems of the others and of folders that do not exist.
    """
    loaded: list[tuple[Path, T]] = []
    problems: list[FileProblem] = []
    for folder in folders:
        if not folder.is_dir():
            problems.append(FileProblem(folder, None, setting, "there is no such folder"))
        for path in sorted([*folder.rglob("*.yaml"), *folder.rglob("*.yml")]):
            if path.name.startswith("."):  # an editor's, not the team's
                continue
            try:
                stat = path.stat()
                read: T = _cached(load, path, stat.st_mtime_ns, stat.st_size)
                loaded.append((path, read))
            except YamlProblems as error:
                problems += error.problems
            except OSError as error:
                problems.append(FileProblem(path, None, "", f"cannot be read: {error}"))
    return loaded, problems


@lru_cache(maxsize=2048)
def _cached(load: Callable[[Path], Any], path: Path, mtime_ns: int, size: int) -> Any:
    return load(path)


def location_of(item: dict[str, Any]) -> tuple[Any, ...]:
    """Where in the data a pydantic error is, without pydantic's own steps."""
    return tuple(part for part in item["loc"] if not (isinstance(part, str) and part.startswith("function-")))


def in_words(item: dict[str, Any], allowed: Sequence[str]) -> str:
    """A pydantic error as a person says it. `allowed` are the fields allowed at its place."""
    value = item.get("input")
    match item["type"]:
        case "extra_forbidden":
            return f"unknown field; allowed: {', '.join(allowed)}"
        case "missing":
            return "is required"
        case "value_error":
            return str(item["msg"]).removeprefix("Value error, ")
        case "literal_error":
            return f"{value!r} is not allowed; allowed: {item['ctx']['expected']}"
        case _:
            shown = "" if isinstance(value, dict | list) else f" (got {value!r})"
            return f"{item['msg'][0].lower()}{item['msg'][1:]}{shown}"


def dotted(location: Sequence[Any]) -> str:
    """``propositions[2].weight``"""
    name = ""
    for part in location:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else str(part)
    return name


def line_of(node: yaml.Node | None, location: Sequence[Any]) -> int | None:
    """Return the line (from 1) of the nearest node on the way to `location`."""
    line = node.start_mark.line + 1 if node is not None else None
    for part in location:
        if isinstance(node, yaml.MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == part), None)
            if pair is None:
                return line
            node, line = pair[1], pair[0].start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            return line
    return line


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
