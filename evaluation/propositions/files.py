"""Read proposition files, and say which propositions an agent has of them; `traits` adds those of its persona."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from django.conf import settings
from pydantic import BaseModel, ValidationError

from agents.models import Agent
from agents.seed import example_slugs
from evaluation.dimensions import TAKES_RULES, Dimension
from evaluation.propositions.rules import Rule
from evaluation.propositions.schema import Cues, Proposition, PropositionFile, PropositionSpec, SpecProblems, resolve


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # both are safe; the C one is ten times faster
    """The safe loader, which refuses a key that stands twice in one mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that stands twice, where YAML would silently take the last one. Keys that are no plain values are not compared."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                problem = f"{key.value}: stands twice in the same mapping"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        if len(node.value) > MOST_DIGITS:
            problem = f"a number of {len(node.value):,} digits; allowed: {MOST_DIGITS}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return self.construct_yaml_int(node)


Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_number)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileProblem:
    """One thing wrong with a file."""

    path: Path
    line: int | None
    field: str
    message: str

    def __str__(self) -> str:
        location = f"{self.path}:{self.line}" if self.line else str(self.path)
        return f"{location}: {self.field}: {self.message}" if self.field else f"{location}: {self.message}"


class YamlProblems(Exception):
    """Files that cannot be used; `problems` lists every one of them."""

    def __init__(self, problems: Sequence[FileProblem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


MOST_BYTES = 2_000_000  # of a file
MOST_DIGITS = 100  # of a number
PASTED = Path("YAML")  # what problems of a text that is no file name as its path


def path_of(source: Path | str) -> Path:
    """Return the path that problems of YAML name, which is a file or a text."""
    return source if isinstance(source, Path) else PASTED


def read_mapping(source: Path | str, expected: str) -> tuple[yaml.Node, dict[Any, Any]]:
    """Read YAML with a mapping at its top, as nodes (for the lines) and as data.

    Args:
        source: A file; or the text itself.
        expected: The keys to name where there is no mapping.

    Raises:
        YamlProblems: It cannot be read, is too large, is not YAML, has a key twice, an alias or a number of more than 100 digits, is nested
            too deeply, or is no mapping. One problem: the first that is found.
    """
    path = path_of(source)
    text = _read_text(source)
    try:
        _refuse_aliases(path, text)
        loader = Loader(text)
        node = loader.get_single_node()
        data = loader.construct_document(node) if node is not None else None
    except yaml.YAMLError as error:
        if "maximum nesting depth" in str(error):  # libyaml's limit of 1,000
            raise YamlProblems([FileProblem(path, None, "", "nested too deeply")]) from None
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error)
        line = mark.line + 1 if mark else None
        raise YamlProblems([FileProblem(path, line, "", f"not valid YAML: {reason}")]) from None
    except ValueError as error:  # looks like a date or a number, and is none
        raise YamlProblems([FileProblem(path, None, "", f"not valid YAML: {error}")]) from None
    except RecursionError:
        raise YamlProblems([FileProblem(path, None, "", "nested too deeply")]) from None
    if not isinstance(data, dict):
        raise YamlProblems([FileProblem(path, 1, "", f"expected a mapping with {expected} at the top")])
    return node, data


def _read_text(source: Path | str) -> str:
    path = path_of(source)
    try:
        size = source.stat().st_size if isinstance(source, Path) else len(source.encode())
        if size > MOST_BYTES:
            raise YamlProblems([FileProblem(path, None, "", f"has {size:,} bytes; allowed: {MOST_BYTES:,}")])
        return source.read_text(encoding="utf-8") if isinstance(source, Path) else source
    except OSError as error:
        raise YamlProblems([FileProblem(path, None, "", f"cannot be read: {error.strerror or error}")]) from None
    except UnicodeError as error:
        raise YamlProblems([FileProblem(path, None, "", f"cannot be read: {error}")]) from None


def _refuse_aliases(path: Path, text: str) -> None:
    """Refuse YAML with aliases: a few of them can stand for billions of values."""
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1 if event.start_mark else None
            raise YamlProblems([FileProblem(path, line, "", "not valid YAML: aliases are not allowed")])


# Each draft at the gate waits until the folders were looked at: a path is made of each name once.
_cached_path = lru_cache(maxsize=2048)(Path)


def refuse_repeated_ids(ids: Iterable[str], *, of: str) -> None:
    """Refuse a list whose entries do not each have an id of their own.

    Args:
        of: What has the ids, for the refusal: ``question``.

    Raises:
        ValueError: Names the first id that is there twice.
    """
    seen_ids: set[str] = set()
    for entry_id in ids:
        if entry_id in seen_ids:
            raise ValueError(f"{entry_id!r} stands twice; allowed: an id per {of}")
        seen_ids.add(entry_id)


def read_folders(
    folders: Iterable[Path], setting: str, load: Callable[[Path], T]
) -> tuple[list[tuple[Path, T]], list[FileProblem]]:
    """Read the YAML files of folders and their subfolders; a usable file is read again only when it changed.

    Args:
        setting: The name of the setting that lists the folders, for a folder that does not exist.
        load: Reads one file; raises `YamlProblems`.

    Returns:
        Each file with what was read of it, and the problems of the others and of folders that do not exist.
    """
    loaded: list[tuple[Path, T]] = []
    problems: list[FileProblem] = []
    for folder in folders:
        if not folder.is_dir():
            problems.append(FileProblem(folder, None, setting, "there is no such folder"))
        for name in _yaml_files_in(folder):
            path = _cached_path(name)
            try:
                stat = os.stat(name)
                content: T = _load_once(load, path, stat.st_mtime_ns, stat.st_size)
                loaded.append((path, content))
            except YamlProblems as error:
                problems += error.problems
            except OSError as error:
                problems.append(FileProblem(path, None, "", f"cannot be read: {error.strerror or error}"))
    return loaded, problems


def _yaml_files_in(folder: Path) -> list[str]:
    """Return the YAML files of a folder and its subfolders but hidden ones, in the order of their folders and names."""
    files = []
    for subfolder, _, names in os.walk(folder):
        for name in names:
            if name.endswith((".yaml", ".yml")) and not name.startswith("."):
                files.append(os.path.join(subfolder, name))
    return sorted(files, key=lambda file: file.split(os.sep))


@lru_cache(maxsize=2048)
def _load_once(load: Callable[[Path], Any], path: Path, mtime_ns: int, size: int) -> Any:
    """Load a file; time and size are there so that a changed one is loaded again."""
    return load(path)


def location_of(item: dict[str, Any]) -> tuple[Any, ...]:
    """Return where in the data a pydantic error is, without pydantic's own steps."""
    return tuple(part for part in item["loc"] if not (isinstance(part, str) and part.startswith("function-")))


def in_words(item: dict[str, Any], allowed: Sequence[str]) -> str:
    """Return a pydantic error as a person says it. `allowed` are the fields allowed at its place."""
    value = item.get("input")
    match item["type"]:
        case "extra_forbidden":
            return f"unknown field; allowed: {', '.join(allowed)}"
        case "missing":
            return "is required"
        case "value_error":
            return str(item["msg"]).removeprefix("Value error, ")
        case "literal_error":
            return f"{value!r:.80} is not allowed; allowed: {item['ctx']['expected']}"
        case _:
            received = "" if isinstance(value, dict | list) else f" (got {value!r:.80})"
            return f"{item['msg'][0].lower()}{item['msg'][1:]}{received}"


def dotted(location: Sequence[Any]) -> str:
    """Return a location as text, such as ``propositions[2].weight``."""
    text = ""
    for step in location:
        if isinstance(step, int):
            text += f"[{step}]"
        elif text:
            text += f".{step}"
        else:
            text = str(step)
    return text


def line_of(node: yaml.Node | None, location: Sequence[Any]) -> int | None:
    """Return the line (from 1) of what is at `location` in a file, or of the last step on the way there that exists.

    Of a value in a mapping it is the line of its key. None for a file without nodes.
    """
    line = node.start_mark.line + 1 if node is not None else None
    for part in location:
        if isinstance(node, yaml.MappingNode):
            pairs = [(key, value) for key, value in node.value if key.value == part]
            if not pairs:
                return line
            key, node = pairs[0]
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            return line
    return line


FileModel = TypeVar("FileModel", bound=BaseModel)


def read_entries(source: Path | str, file_model: type[FileModel], entry_model: type[BaseModel]) -> FileModel:
    """Read and validate a file, or a text, that has one field: a list of entries.

    Raises:
        YamlProblems: With every problem: file, line, field and what is allowed.
    """
    [name] = file_model.model_fields
    node, data = read_mapping(source, name)
    try:
        return file_model.model_validate(data)
    except ValidationError as error:
        problems = []
        for item in map(dict, error.errors()):
            location = location_of(item)
            model = entry_model if len(location) > 1 else file_model
            message = in_words(item, list(model.model_fields))
            problems.append(FileProblem(path_of(source), line_of(node, location), dotted(location), message))
        raise YamlProblems(problems) from None


DEFAULT = "_default"


class PropositionError(YamlProblems):
    """Proposition files that cannot be used."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedFile:
    """A file: whose it is, its resolved propositions, and apart from them those that are not active.

    Attributes:
        dimension, level: Empty where a file that cannot be used does not say.
        problems: Why it cannot be used; it has no propositions then, and what needs it raises `PropositionError`.
    """

    path: Path
    dimension: str
    agent_id: str
    level: str
    propositions: tuple[Proposition, ...] = ()
    inactive: tuple[Proposition, ...] = ()
    problems: tuple[FileProblem, ...] = ()


def load_file(path: Path) -> LoadedFile:
    """Read and validate one file. It is about the dimension of its folder's name where it does not say.

    Raises:
        PropositionError: With every problem of the file.
    """
    try:
        node, data = read_mapping(path, "dimension and propositions")
    except YamlProblems as error:
        raise PropositionError(error.problems) from None
    try:
        parsed = PropositionFile.model_validate({"dimension": path.parent.name, **data})
    except ValidationError as error:
        problems: list[FileProblem] = []
        for item in error.errors():
            problems += _problems(path, node, data, dict(item))
        raise PropositionError(problems) from None
    return resolved_file(path, parsed, node)


def resolved_file(path: Path, parsed: PropositionFile, node: yaml.Node | None) -> LoadedFile:
    """Return a valid file's propositions with what they inherit from it, those that are not active apart.

    It is about the agent of its name (``jim.yaml``, ``jim.action.yaml``) where it does not say. `node` is the file's, for the lines;
    without it all are of line 1.
    """
    agent_id = parsed.agent_id or _owner_by_name(path)
    active: list[Proposition] = []
    inactive: list[Proposition] = []
    for number, spec in enumerate(parsed.propositions):
        line = line_of(node, ("propositions", number)) or 1
        proposition = resolve(spec, parsed, f"{path.name}:{line}", for_all=agent_id == DEFAULT)
        if proposition.active:
            active.append(proposition)
        else:
            inactive.append(proposition)
    return LoadedFile(
        path=path,
        dimension=parsed.dimension,
        agent_id=agent_id,
        level=parsed.level,
        propositions=tuple(active),
        inactive=tuple(inactive),
    )


def _owner_by_name(path: Path) -> str:
    return path.stem.removesuffix(".action").removesuffix(".suggestions")


_LINES_OF_A_HEAD = re.compile(r"^(agent_id|dimension|level)[ \t]*:[ \t]*[\"']?([\w.-]+)", re.MULTILINE)


def _broken_file(path: Path, problems: Iterable[FileProblem]) -> LoadedFile:
    """Return a file that cannot be used, with whose it is as far as its lines or its name say.

    The lines are searched as text, because the file may be no YAML. Dimension and level are empty where what they say is none.
    """
    head = {}
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        head = dict(_LINES_OF_A_HEAD.findall(file.read(MOST_BYTES)))
    dimension = head.get("dimension", path.parent.name)
    level = head.get("level", "action" if path.stem.endswith(".action") else "evaluation")
    return LoadedFile(
        path,
        dimension if dimension in Dimension.values else "",
        head.get("agent_id") or _owner_by_name(path),
        level if level in ("evaluation", "action") else "",
        problems=tuple(problems),
    )


def _problems(path: Path, node: yaml.Node, data: Any, item: dict[str, Any]) -> list[FileProblem]:
    """Return a pydantic error as problems of the file: one, or where propositions do not fit the file one for each of them."""
    error = item.get("ctx", {}).get("error")
    if not isinstance(error, SpecProblems):
        return [_problem(path, node, data, item)]
    problems = []
    for spec_problem in error.problems:
        about_spec = {"loc": ("propositions", spec_problem.number), "msg": spec_problem.why}
        problems.append(_problem(path, node, data, item | about_spec))
    return problems


_MODELS_BY_FIELD: Mapping[str, type[BaseModel]] = {"propositions": PropositionSpec, "rule": Rule, "cues": Cues}


def _problem(path: Path, node: yaml.Node, data: Any, item: dict[str, Any]) -> FileProblem:
    """Return a pydantic error with its place: line, field, and the id of the proposition when it has one."""
    location = location_of(item)
    field = dotted(location)
    if len(location) > 1 and location[0] == "propositions":
        with suppress(KeyError, TypeError, IndexError):  # what is broken may have no id, or be no mapping
            field += f" ({data['propositions'][location[1]]['id']})"
    # The model at the place of the error: its fields are named where one is unknown.
    model: type[BaseModel] = PropositionFile
    for step in location[:-1]:
        model = _MODELS_BY_FIELD.get(step, model)
    return FileProblem(path, line_of(node, location), field, in_words(item, list(model.model_fields)))


def proposition_dirs() -> list[Path]:
    """Return the folders that are read, in order: ours, then the team's (`PROPOSITION_DIRS`), which may override ids of ours."""
    folders = [Path(settings.PROPOSITIONS_DIR), *map(Path, settings.PROPOSITION_DIRS)]
    by_real_path = {folder.resolve(): folder for folder in folders}  # one that is named twice is read once
    return list(by_real_path.values())


def load_all() -> list[LoadedFile]:
    """Read every proposition file of every folder; a file is read again only when it changed.

    Files that cannot be used come last, without propositions and with their `problems`: only what needs them fails. Those that share
    an id with an earlier file (`shared_ids`) are among them.

    Raises:
        PropositionError: A folder does not exist.
    """
    folders = proposition_dirs()
    read, problems = read_folders(folders, "PROPOSITION_DIRS", load_file)
    files = [file for _, file in read]
    problems += shared_ids(tuple(files))
    if not problems:
        return files
    missing_folders = [problem for problem in problems if problem.path in folders]
    if missing_folders:
        raise PropositionError(missing_folders)
    problems_by_path: dict[Path, list[FileProblem]] = {}
    for problem in problems:
        problems_by_path.setdefault(problem.path, []).append(problem)
    usable = [file for file in files if file.path not in problems_by_path]
    broken = [_broken_file(path, of_file) for path, of_file in problems_by_path.items()]
    return usable + broken


def file_problems() -> list[FileProblem]:
    """Return all that is wrong with proposition files and their folders."""
    try:
        return [problem for file in load_all() for problem in file.problems]
    except PropositionError as error:
        return error.problems


@lru_cache(maxsize=4)
def shared_ids(files: tuple[LoadedFile, ...]) -> tuple[FileProblem, ...]:
    """Find ids that stand in two files of one folder which an agent gets both: defaults and its own, or two of the same owner.

    One of them would silently win. The problem is of the later file. What is not active counts in neither.
    """
    problems: list[FileProblem] = []
    seen: dict[tuple[Path, str, str, str, str], Path] = {}
    for file in files:
        folder = folder_of(file.path)
        for proposition in file.propositions:
            own_key = (folder, file.dimension, file.level, file.agent_id, proposition.id)
            default_key = (folder, file.dimension, file.level, DEFAULT, proposition.id)
            other = seen.get(own_key) or seen.get(default_key)
            if other is not None:
                line = int(proposition.source.rpartition(":")[2])
                problems.append(FileProblem(file.path, line, "id", f"{proposition.id!r} stands in {other} as well"))
            seen[own_key] = file.path
    return tuple(problems)


def folder_of(path: Path) -> Path:
    """Return the folder of propositions a file is in."""
    for folder in reversed(proposition_dirs()):
        if path.is_relative_to(folder):
            return folder
    return path.parent


def is_example(file: LoadedFile) -> bool:
    """Return whether a file holds the propositions of an example agent: a shipped file that bears its slug."""
    if file.agent_id not in example_slugs():
        return False
    in_team = any(_lies_in(file.path, folder) for folder in settings.PROPOSITION_DIRS)
    return not in_team and _lies_in(file.path, settings.PROPOSITIONS_DIR)


@lru_cache(maxsize=2048)  # asked of every file for every draft
def _lies_in(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder)


def applying(files: Sequence[LoadedFile], *, seeded: bool) -> list[LoadedFile]:
    """Return the files that may apply to an agent, by whether it is an example (`Agent.seeded`).

    An agent of the team's own that has the slug of an example gets none of the example's.
    """
    return [file for file in files if seeded or not is_example(file)]


def own_agents_like_examples() -> set[str]:
    """Return the slugs of agents that are the team's own and bear the slug of an example: its propositions do not apply to them."""
    own = Agent.objects.filter(slug__in=example_slugs()).exclude(origin=Agent.Origin.SEED)
    return set(own.values_list("slug", flat=True))


def problems_at_gate(files: Sequence[LoadedFile], *, agent_slug: str, dimensions: Iterable[str]) -> list[FileProblem]:
    """Return what is wrong with the files that a gate on these dimensions needs for an agent.

    Files of dimensions that take rules are always needed: rules are checked at every gate.
    """
    needed = (*TAKES_RULES, *dimensions, "")  # "" is a file that does not say its dimension
    problems: list[FileProblem] = []
    for file in files:
        if file.agent_id in (DEFAULT, agent_slug) and file.dimension in needed:
            problems += file.problems
    return problems


def propositions_for(
    *,
    agent_slug: str,
    dimension: str,
    level: str = "evaluation",
    files: Sequence[LoadedFile] | None = None,
    seeded: bool = False,
) -> list[Proposition]:
    """Return the propositions of one agent and dimension: the defaults, then its own; a team's folder overrides equal ids of ours.

    What is retired in a later folder or in the agent's own file is not asked, whatever stands before it. Suggestions and rejected ones
    are not asked either, and override nothing. The propositions that are shipped with the examples apply to these alone.

    Args:
        dimension: Its id.
        level: ``evaluation``, or ``action`` for those about a draft.
        files: What `load_all` returned, for callers that ask several times and have no time to look at the folders again.
        seeded: Whether the agent is one of the examples (`Agent.seeded`).

    Raises:
        PropositionError: One of these files cannot be used.
    """
    all_files = load_all() if files is None else files
    defaults: list[LoadedFile] = []
    own: list[LoadedFile] = []
    problems: list[FileProblem] = []
    for file in applying(all_files, seeded=seeded):
        # A broken file may not say its dimension and level.
        is_asked_for = file.dimension in (dimension, "") and file.level in (level, "")
        if not is_asked_for or file.agent_id not in (DEFAULT, agent_slug):
            continue
        problems += file.problems
        if file.agent_id == DEFAULT:
            defaults.append(file)
        if file.agent_id == agent_slug:
            own.append(file)
    if problems:
        raise PropositionError(problems)
    merged: dict[str, Proposition] = {}
    for file in (*defaults, *own):
        for proposition in file.propositions:
            merged[proposition.id] = proposition
        for proposition in file.inactive:
            if proposition.retired:
                merged.pop(proposition.id, None)
    return list(merged.values())


def default_dimensions() -> tuple[str, ...]:
    """Return the dimensions there are propositions for: without any there is nothing to measure.

    Raises:
        PropositionError: A folder does not exist.
    """
    files = [file for file in load_all() if file.level == "evaluation"]
    measured = {file.dimension for file in files if file.propositions or file.problems}
    return tuple(name for name in Dimension.values if name in measured)
