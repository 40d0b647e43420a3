"""Reading proposition files: precise errors (file, line, field, allowed values), and the merge for one agent (AC-6.1.5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import yaml
from django.conf import settings
from pydantic import ValidationError

from evaluation.propositions import DimensionId, Proposition, PropositionFile, resolve

DEFAULT = "_default"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # both are safe; the C one is ten times faster


@dataclass(frozen=True, slots=True)
class FileProblem:
    """One thing wrong with a proposition file."""

    path: Path
    line: int | None
    field: str
    message: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else str(self.path)
        return f"{place}: {self.field}: {self.message}" if self.field else f"{place}: {self.message}"


class PropositionError(Exception):
    """Proposition files that cannot be used; `problems` lists every one found."""

    def __init__(self, problems: Sequence[FileProblem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True, eq=False)
class LoadedFile:
    """A valid file: whose it is and its resolved propositions."""

    path: Path
    dimension: str
    agent_id: str
    level: str
    propositions: tuple[Proposition, ...]


def load_file(path: Path) -> LoadedFile:
    """Read and validate one file.

    Raises:
        PropositionError: With every problem of the file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PropositionError([FileProblem(path, None, "", f"cannot be read: {error}")]) from None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        duplicates = list(_duplicate_keys(node, set()))
        data = loader.construct_document(node) if node is not None and not duplicates else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error)
        raise PropositionError(
            [FileProblem(path, mark.line + 1 if mark else None, "", f"not valid YAML: {reason}")]
        ) from None
    except ValueError as error:  # looks like a date or a number, and is none
        raise PropositionError([FileProblem(path, None, "", f"not valid YAML: {error}")]) from None
    except RecursionError:
        raise PropositionError([FileProblem(path, None, "", "nested too deeply")]) from None
    if duplicates:
        raise PropositionError(
            [FileProblem(path, line, key, "stands twice in the same mapping") for key, line in duplicates]
        )
    if not isinstance(data, dict):
        raise PropositionError(
            [FileProblem(path, 1, "", "expected a mapping with dimension and propositions at the top")]
        )
    try:
        parsed = PropositionFile.model_validate(
            {"dimension": path.parent.name, **data} if "dimension" not in data else data
        )
    except ValidationError as error:
        raise PropositionError([_problem(path, node, data, dict(item)) for item in error.errors()]) from None
    agent_id = parsed.agent_id or path.stem
    resolved = tuple(
        resolve(spec, parsed, f"{path.name}:{_line(node, ('propositions', i)) or 1}")
        for i, spec in enumerate(parsed.propositions)
    )
    return LoadedFile(path, parsed.dimension, agent_id, parsed.level, resolved)


def _problem(path: Path, node: yaml.Node | None, data: Any, item: dict[str, Any]) -> FileProblem:
    """A pydantic error with its place in the file, in words."""
    location = tuple(part for part in item["loc"] if not (isinstance(part, str) and part.startswith("function-")))
    name, value = _field_name(location, data), item.get("input")
    match item["type"]:
        case "extra_forbidden":
            message = f"unknown field; allowed: {', '.join(_allowed(location))}"
        case "missing":
            message = "is required"
        case "value_error":
            message = item["msg"].removeprefix("Value error, ")
        case "literal_error":
            message = f"{value!r} is not allowed; allowed: {item['ctx']['expected']}"
        case _:
            shown = "" if isinstance(value, dict | list) else f" (got {value!r})"
            message = f"{item['msg'][0].lower()}{item['msg'][1:]}{shown}"
    return FileProblem(path, _line(node, location), name, message)


def _field_name(location: tuple[Any, ...], data: Any) -> str:
    """``propositions[2].weight (michael-dry)``: the field, with the id of the proposition when it has one."""
    name, proposition_id = "", ""
    for part in location:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else str(part)
    if len(location) > 1 and location[0] == "propositions" and isinstance(location[1], int):
        try:
            proposition_id = str(data["propositions"][location[1]]["id"])
        except (KeyError, TypeError, IndexError):
            return name
    return f"{name} ({proposition_id})" if proposition_id else name


def _allowed(location: tuple[Any, ...]) -> list[str]:
    """The fields allowed where an unknown one was found."""
    schema = PropositionFile.model_json_schema()
    place = {"propositions": "PropositionSpec", "rule": "Rule", "cues": "Cues"}
    names = [place[part] for part in location[:-1] if part in place]
    return list(schema["$defs"][names[-1]]["properties"] if names else schema["properties"])


def _line(node: yaml.Node | None, location: Sequence[Any]) -> int | None:
    """The line (from 1) of the nearest node on the way to `location`."""
    line = node.start_mark.line + 1 if node is not None else None
    for part in location:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == part), None)
            if found is None:
                return line
            node, line = found[1], found[0].start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            return line
    return line


def _duplicate_keys(node: yaml.Node | None, visited: set[int]) -> Iterator[tuple[str, int]]:
    """Keys that stand twice in one mapping, with their lines. Each node is looked at once, however often aliases repeat it."""
    if node is None or id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    yield key.value, key.start_mark.line + 1
                seen.add(key.value)
            yield from _duplicate_keys(value, visited)
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            yield from _duplicate_keys(child, visited)


def proposition_dirs() -> list[Path]:
    """The folders that are read, in order: ours, then the team's (`PROPOSITION_DIRS`), which may override ids of ours."""
    return [Path(settings.PROPOSITIONS_DIR), *map(Path, settings.PROPOSITION_DIRS)]


def load_all() -> list[LoadedFile]:
    """Every proposition file of every folder.

    Files are read again only when they changed.

    Raises:
        PropositionError: With the problems of all files, and of folders that do not exist.
    """
    loaded: list[LoadedFile] = []
    problems: list[FileProblem] = []
    for folder in proposition_dirs():
        if not folder.is_dir():
            problems.append(FileProblem(folder, None, "PROPOSITION_DIRS", "there is no such folder"))
            continue
        for path in sorted([*folder.rglob("*.yaml"), *folder.rglob("*.yml")]):
            if path.name.startswith("."):  # an editor's, not the team's
                continue
            try:
                stat = path.stat()
                loaded.append(_cached(path, stat.st_mtime_ns, stat.st_size))
            except PropositionError as error:
                problems += error.problems
            except OSError as error:
                problems.append(FileProblem(path, None, "", f"cannot be read: {error}"))
    problems += _shared_ids_of(tuple(loaded), tuple(proposition_dirs()))
    if problems:
        raise PropositionError(problems)
    return loaded


@lru_cache(maxsize=1024)
def _cached(path: Path, mtime_ns: int, size: int) -> LoadedFile:
    return load_file(path)


@lru_cache(maxsize=4)
def _shared_ids_of(files: tuple[LoadedFile, ...], folders: tuple[Path, ...]) -> tuple[FileProblem, ...]:
    """Looked for again only when a file changed: one that did not is the very same object."""
    return tuple(_shared_ids(files))


def _shared_ids(files: Sequence[LoadedFile]) -> Iterator[FileProblem]:
    """The same id in a default and in an agent's own file of one folder: one of them would silently win."""
    seen: dict[tuple[Path, str, str, str], LoadedFile] = {}
    for file in files:
        for proposition in file.propositions:
            folder = next((d for d in reversed(proposition_dirs()) if file.path.is_relative_to(d)), file.path.parent)
            for owner in {file.agent_id, DEFAULT}:
                other = seen.get((folder, file.dimension + file.level, owner, proposition.id))
                if other is not None:
                    line = int(proposition.source.rpartition(":")[2])
                    yield FileProblem(file.path, line, "id", f"{proposition.id!r} stands in {other.path} as well")
                    break
            seen[folder, file.dimension + file.level, file.agent_id, proposition.id] = file


def propositions_for(*, agent_slug: str, dimension: str, level: str = "evaluation") -> list[Proposition]:
    """The propositions of one agent and dimension: the defaults, then its own; a team's folder overrides equal ids of ours.

    Raises:
        PropositionError: A file cannot be used.
    """
    merged: dict[str, Proposition] = {}
    files = [f for f in load_all() if f.dimension == dimension and f.level == level]
    for owner in (DEFAULT, agent_slug):
        for file in files:
            if file.agent_id == owner:
                merged.update({p.id: p for p in file.propositions})
    return list(merged.values())


def default_dimensions() -> tuple[str, ...]:
    """The dimensions there are propositions for: without any there is nothing to measure.

    Raises:
        PropositionError: A file cannot be used.
    """
    found = {file.dimension for file in load_all() if file.level == "evaluation"}
    return tuple(name for name in get_args(DimensionId) if name in found)
