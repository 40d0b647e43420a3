"""Reading YAML files that people write: every problem with its file and line, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # both are safe; the C one is ten times faster

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
        path: The file.
        expected: The keys to name where there is no mapping.

    Raises:
        YamlProblems: It cannot be read, is not YAML, has a key twice, or is no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise YamlProblems([FileProblem(path, None, "", f"cannot be read: {error}")]) from None
    try:
        loader = LOADER(text)
        node = loader.get_single_node()
        duplicates = list(_duplicate_keys(node, set()))
        data = loader.construct_document(node) if node is not None and not duplicates else None
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
    if duplicates:
        raise YamlProblems(
            [FileProblem(path, line, key, "stands twice in the same mapping") for key, line in duplicates]
        )
    if not isinstance(data, dict):
        raise YamlProblems([FileProblem(path, 1, "", f"expected a mapping with {expected} at the top")])
    return node, data


def read_folders(
    folders: Iterable[Path], setting: str, load: Callable[[Path], T]
) -> tuple[list[tuple[Path, T]], list[FileProblem]]:
    """Read the YAML files of folders and their subfolders; a file is read again only when it changed.

    Args:
        folders: Where they are.
        setting: Names the folders in a problem.
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
