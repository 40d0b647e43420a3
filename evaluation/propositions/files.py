"""Read proposition files, and say which propositions an agent has: of its files and, one for each trait, of its persona (AC-6.1.5).

A trait that always or (nearly) never shows can be seen in a single message: at a strength of at most 0.1 or at least 0.7 it is judged
message by message, in between once over the window, since one message says nothing about "sometimes". At strength 0 the claim is that
the agent does it, inverted. A proposition in a file that names the trait replaces it. The id speaks of the trait's name alone; what the
trait is now (description, band) is in the digest: after a change no comparison takes the proposition for the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from django.conf import settings
from pydantic import ValidationError

from agents.kit.text.fences import neutral
from agents.models import Agent
from agents.personas.persona import BANDS, ROUNDING, TraitLike, strength_band
from agents.seed import example_slugs
from evaluation.dimensions import OF_PERSONA, TAKES_RULES, Dimension
from evaluation.propositions.schema import AGENT_NAME, Proposition, PropositionFile, SpecProblems, resolve


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
        place = f"{self.path}:{self.line}" if self.line else str(self.path)
        return f"{place}: {self.field}: {self.message}" if self.field else f"{place}: {self.message}"


class YamlProblems(Exception):
    """Files that cannot be used; `problems` lists every one of them."""

    def __init__(self, problems: Sequence[FileProblem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


MOST_BYTES, MOST_DIGITS = 2_000_000, 100  # of a file, of a number


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
        YamlProblems: It cannot be read, is too large, is not YAML, has a key twice or an alias, or is no mapping.
    """
    path = path_of(source)
    try:
        size = source.stat().st_size if isinstance(source, Path) else len(source.encode())
        if size > MOST_BYTES:
            raise YamlProblems([FileProblem(path, None, "", f"has {size:,} bytes; allowed: {MOST_BYTES:,}")])
        text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
    except (OSError, UnicodeError) as error:
        raise YamlProblems([FileProblem(path, None, "", f"cannot be read: {error}")]) from None
    try:
        for event in yaml.parse(text, Loader=Loader):
            if isinstance(event, yaml.AliasEvent):  # a few of them can stand for billions of values
                line = event.start_mark.line + 1 if event.start_mark else None
                raise YamlProblems([FileProblem(path, line, "", "not valid YAML: aliases are not allowed")])
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


_path = lru_cache(maxsize=2048)(Path)


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
        # Each draft at the gate waits for this: a path is made of each name once.
        entries = ((place, name) for place, _, names in os.walk(folder) for name in names if not name.startswith("."))
        names = [os.path.join(place, name) for place, name in entries if name.endswith((".yaml", ".yml"))]
        for name in sorted(names, key=lambda name: name.split(os.sep)):
            path = _path(name)
            try:
                stat = os.stat(name)
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
            return f"{value!r:.80} is not allowed; allowed: {item['ctx']['expected']}"
        case _:
            shown = "" if isinstance(value, dict | list) else f" (got {value!r:.80})"
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
        problems = [problem for item in error.errors() for problem in _problems(path, node, data, dict(item))]
        raise PropositionError(problems) from None
    return resolved_file(path, parsed, node)


def resolved_file(path: Path, parsed: PropositionFile, node: yaml.Node | None) -> LoadedFile:
    """A valid file's propositions with what they inherit from it; `node` is the file's, for the lines."""
    agent_id = parsed.agent_id or _owner_by_name(path)
    resolved = tuple(
        resolve(spec, parsed, f"{path.name}:{line_of(node, ('propositions', i)) or 1}", for_all=agent_id == DEFAULT)
        for i, spec in enumerate(parsed.propositions)
    )
    active, inactive = (tuple(p for p in resolved if p.active is wanted) for wanted in (True, False))
    return LoadedFile(path, parsed.dimension, agent_id, parsed.level, active, inactive)


def _owner_by_name(path: Path) -> str:
    return path.stem.removesuffix(".action").removesuffix(".suggestions")


_HEAD = re.compile(r"^(agent_id|dimension|level)[ \t]*:[ \t]*[\"']?([\w.-]+)", re.MULTILINE)


def _broken_file(path: Path, problems: Iterable[FileProblem]) -> LoadedFile:
    """Return a file that cannot be used, with whose it is as far as its lines or its name say."""
    head = {}
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        head = dict(_HEAD.findall(file.read(MOST_BYTES)))
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
    """Return a pydantic error of the file, or one for each proposition that it is about."""
    error = item.get("ctx", {}).get("error")
    if not isinstance(error, SpecProblems):
        return [_problem(path, node, data, item)]
    items = (item | {"loc": ("propositions", place), "msg": why} for place, _, why in error.problems)
    return [_problem(path, node, data, one) for one in items]


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

    Files that cannot be used are among them, with their `problems`: only what needs them fails.

    Raises:
        PropositionError: A folder does not exist.
    """
    folders = proposition_dirs()
    read, problems = read_folders(folders, "PROPOSITION_DIRS", load_file)
    files = [file for _, file in read]
    problems += shared_ids(tuple(files))
    if not problems:
        return files
    if missing := [problem for problem in problems if problem.path in folders]:
        raise PropositionError(missing)
    by_path: dict[Path, list[FileProblem]] = {}
    for problem in problems:
        by_path.setdefault(problem.path, []).append(problem)
    broken = [_broken_file(path, of_file) for path, of_file in by_path.items()]
    return [*(file for file in files if file.path not in by_path), *broken]


def file_problems() -> list[FileProblem]:
    """Return all that is wrong with proposition files and their folders."""
    try:
        return [problem for file in load_all() for problem in file.problems]
    except PropositionError as error:
        return error.problems


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
    in_team = any(_lies_in(file.path, folder) for folder in settings.PROPOSITION_DIRS)
    return not in_team and _lies_in(file.path, settings.PROPOSITIONS_DIR)


@lru_cache(maxsize=2048)  # asked of every file for every draft
def _lies_in(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder)


def applying(files: Sequence[LoadedFile], *, seeded: bool) -> list[LoadedFile]:
    """The files that may apply to an agent, by whether it is an example (`Agent.seeded`): other agents of the slug get no example's."""
    return [file for file in files if seeded or not is_example(file)]


def own_agents_like_examples() -> set[str]:
    """The slugs of agents that are the team's own and bear the slug of an example: its propositions do not apply to them."""
    own = Agent.objects.filter(slug__in=example_slugs()).exclude(origin=Agent.Origin.SEED)
    return set(own.values_list("slug", flat=True))


def problems_at_gate(files: Sequence[LoadedFile], *, agent_slug: str, dimensions: Iterable[str]) -> list[FileProblem]:
    """Return what is wrong with the files that a gate on these dimensions needs for an agent; its rules are always needed."""
    needed = (*TAKES_RULES, *dimensions, "")  # "" is a file that does not say its dimension
    return [
        problem
        for file in files
        if file.agent_id in (DEFAULT, agent_slug) and file.dimension in needed
        for problem in file.problems
    ]


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
        PropositionError: One of these files cannot be used.
    """
    merged: dict[str, Proposition] = {}
    chosen = applying(load_all() if files is None else files, seeded=seeded)
    chosen = [f for f in chosen if f.dimension in (dimension, "") and f.level in (level, "")]
    if problems := [p for f in chosen if f.agent_id in (DEFAULT, agent_slug) for p in f.problems]:
        raise PropositionError(problems)
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
        PropositionError: A folder does not exist.
    """
    files = [file for file in load_all() if file.level == "evaluation"]
    measured = {file.dimension for file in files if file.propositions or file.problems}
    return tuple(name for name in Dimension.values if name in measured)


OF_A_MESSAGE_UP_TO, OF_A_MESSAGE_FROM = 0.1, 0.7  # strengths that show in a single message
COVERED_ABOVE = BANDS[1][0]  # a claim in a file says that the trait shows: not when it is to show rarely or never
FROM_A_TRAIT = "trait"
LONGEST_TRAIT_ID, LONGEST_DESCRIPTION = 80, 600
_BRACES = re.compile(r"(?<=\{)(?=\{)|(?<=\})(?=\})")  # between two: no variable is left

_STOPPED = "{{agent_name}} does in this message what the persona has ruled out under “Never”: %s"
_RARE = "{{agent_name}} leaves out of this message, or hardly hints at, what the persona does rarely: %s"
_STRONG = "{{agent_name}} shows in this message what the persona %s does: %s"
_NOW_AND_THEN = "{{agent_name}} does this %s, as the persona says, over all these messages together: %s"
_ADVICE = {
    BANDS[0][1]: "Leave this out altogether: %s.",
    BANDS[1][1]: "Let this show rarely: %s.",
    BANDS[2][1]: "Let this show sometimes, not always: %s.",
    BANDS[3][1]: "Let this show in most of what you write: %s.",
    BANDS[4][1]: "Let this show whenever you write: %s.",
}


def with_traits(
    propositions: Sequence[Proposition], traits: Iterable[TraitLike], *, automatic: bool = True
) -> list[Proposition]:
    """An agent's propositions of adherence from files, joined with those of its traits.

    A claim that names a trait is asked as long as the trait shows (above 0.25; with `trait_stopped` at 0), and is then the only one about
    it; otherwise the automatic one is. One whose trait the agent has not is asked all the same, unless its file is for all agents.
    Without `automatic` there are those of files alone.
    """
    ordered = sorted(traits, key=lambda trait: (trait.name.casefold(), trait.name))
    by_name = {trait.name.casefold(): trait for trait in ordered}
    asked, covered = [], set()
    for proposition in propositions:
        if not proposition.trait:
            asked.append(proposition)
            continue
        name = proposition.trait.casefold()
        trait = by_name.get(name)
        if trait is None:
            asked += [] if proposition.for_all else [proposition]
        elif covers(proposition, trait):
            covered.add(name)
            asked.append(replace(proposition, trait_now=_state(trait)))
    if not automatic:
        return asked
    ids = {p.id for p in propositions}
    return asked + [_automatic(trait, ids) for trait in ordered if trait.name.casefold() not in covered]


def covers(proposition: Proposition, trait: TraitLike) -> bool:
    """Whether a claim that names this trait speaks of it as strong as it is now."""
    if proposition.trait_stopped or trait.strength == 0:
        return proposition.trait_stopped and trait.strength == 0
    return trait.strength > COVERED_ABOVE + ROUNDING


def of_a_message(strength: float) -> bool:
    """Whether a trait of this strength (0 to 1) is judged message by message."""
    return strength <= OF_A_MESSAGE_UP_TO + ROUNDING or strength >= OF_A_MESSAGE_FROM - ROUNDING


def trait_id(name: str, in_use: Iterable[str] = ()) -> str:
    """``trait-concise-replies`` for *Concise replies*, whatever its case. A name that loses something on the way, or whose id is
    `in_use`, gets a few hex digits of the name, so that the id depends on no other trait."""
    plain = unicodedata.normalize("NFKC", name.casefold()).casefold()
    ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    slug = "-".join(re.findall(r"[a-z0-9]+", ascii_only))[:LONGEST_TRAIT_ID].strip("-")
    is_whole = bool(slug) and slug == "-".join(re.split(r"[\s_-]+", plain.strip()))
    short = f"trait-{slug}"
    if is_whole and short not in in_use:
        return short
    return "-".join(filter(None, ("trait", slug, hashlib.sha256(name.casefold().encode()).hexdigest()[:6])))


def presence(trait: TraitLike) -> Proposition:
    """The claim that a message shows the trait, whatever its strength, without the persona: tells before from after."""
    claim = "{{agent_name}} does this in the message: %s" % _named(trait)  # noqa: UP031 (braces stand for variables)
    return Proposition(
        dimension=OF_PERSONA,
        id=trait_id(trait.name),
        claim=claim,
        include_personas=False,
        source=FROM_A_TRAIT,
        trait=trait.name,
        trait_now=_state(trait),
        recommendations="–",  # none is asked for
    )


def _automatic(trait: TraitLike, in_use: set[str]) -> Proposition:
    band, stopped = strength_band(trait.strength), trait.strength == 0
    identifier = trait_id(trait.name, in_use)
    in_use.add(identifier)
    return Proposition(
        dimension=OF_PERSONA,
        id=identifier,
        claim=_claim(trait, band.lower()),
        inverted=stopped,
        recommendations=_ADVICE[band] % _in_quotes(trait.name),
        source=FROM_A_TRAIT,
        trait=trait.name,
        trait_stopped=stopped,
        trait_now=_state(trait),
        over_window=not of_a_message(trait.strength),
    )


def _claim(trait: TraitLike, band: str) -> str:
    if trait.strength == 0:  # its description may say what to do instead: the name says what is stopped
        return _STOPPED % _in_quotes(trait.name)
    if not of_a_message(trait.strength):
        return _NOW_AND_THEN % (band, _named(trait))
    return _RARE % _named(trait) if trait.strength < 0.5 else _STRONG % (band, _named(trait))


def _state(trait: TraitLike) -> str:
    return f"{strength_band(trait.strength)}: {trait.name.casefold()}: {' '.join(trait.description.split())}"


def _named(trait: TraitLike) -> str:
    description = " ".join(trait.description.split())
    if len(description) > LONGEST_DESCRIPTION:
        description = f"{description[:LONGEST_DESCRIPTION]}…"
    return _in_quotes(f"{trait.name}: {description}" if description else trait.name)


def _in_quotes(text: str) -> str:
    """A trait's words in a claim are data: on one line, in quotation marks, with nothing that ends these or looks like a variable."""
    text = neutral(" ".join(text.split()), 2 * LONGEST_DESCRIPTION)[0]
    marks = dict.fromkeys(map(ord, '"“”„'), "'")
    return f"“{_BRACES.sub(' ', text.translate(marks))}”"


LONGEST_NAME = 60  # characters behind the agent's slug


@dataclass(frozen=True, slots=True)
class Entry:
    """A proposition with its place.

    Attributes:
        owner: The agent's slug, or ``_default``.
        mark: Digest of all that a person sees of it; a different one means that it was changed.
        replaces: The proposition of ours with the same id, for one that `listed` returns; None for most.
    """

    path: Path
    owner: str
    dimension: str
    level: str
    proposition: Proposition
    mark: str
    replaces: Entry | None = None

    @property
    def state(self) -> str:
        return self.proposition.state

    @property
    def is_shipped(self) -> bool:
        return folder_of(self.path) == Path(settings.PROPOSITIONS_DIR)

    @property
    def key(self) -> str:
        """Its name in an address: the number of its folder, its file there and its id."""
        folder = folder_of(self.path)
        number = next((n for n, known in enumerate(proposition_dirs()) if known == folder), 0)
        inside = self.path.relative_to(folder) if self.path.is_relative_to(folder) else Path(self.path.name)
        return f"{number}/{inside.as_posix()}:{self.proposition.id}"


def all_entries(files: Sequence[LoadedFile] | None = None) -> list[Entry]:
    """Return every proposition of every file (default: of `load_all`), in their order.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    return [
        Entry(file.path, file.agent_id, file.dimension, file.level, p, mark_of(file.path, p))
        for file in (load_all() if files is None else files)
        for p in (*file.propositions, *file.inactive)
    ]


def listed(owner: str, *, files: Sequence[LoadedFile]) -> list[Entry]:
    """Return the propositions about one agent (or ``_default``); one of ours that a team's replaces is inside its replacement."""
    merged: dict[object, Entry] = {}
    for entry in all_entries(files):
        if entry.owner == owner:
            is_used = entry.state in ("accepted", "retired")
            place = (entry.dimension, entry.level, entry.proposition.id) if is_used else entry.key
            merged[place] = replace(entry, replaces=merged.pop(place, None))
    return list(merged.values())


def entry_at(key: str, owner: str, *, files: Sequence[LoadedFile]) -> Entry | None:
    """Return the proposition of that key; never one of a file that is not among those that are read."""
    return next((e for e in all_entries(files) if e.owner == owner and e.key == key), None)


def entry_marked(mark: str, owner: str, *, files: Sequence[LoadedFile] | None = None) -> Entry | None:
    """Return the proposition as a person saw it; None where none looks like that any more."""
    return next((e for e in all_entries(files) if e.mark == mark and e.owner == owner), None)


def folder_of(path: Path) -> Path:
    """Return the folder of propositions a file is in."""
    return next((d for d in reversed(proposition_dirs()) if path.is_relative_to(d)), path.parent)


def mark_of(path: Path, p: Proposition) -> str:
    """Return a digest of all that a person sees of a proposition in a file."""
    shown = [str(path), p.fingerprint(), p.recommendations, p.quote, p.active, p.rejected, p.retired]
    shown += [p.trait, p.trait_stopped]
    return hashlib.sha256(json.dumps(shown, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:32]


def free_id(owner: str, text: str, *, in_use: Collection[str]) -> str:
    """Return ``<agent>-<text in small letters>``, with a number where that id is in use."""
    prefix = "" if owner == DEFAULT else f"{slugified(owner)[:40].strip('-') or 'agent'}-"
    words = slugified(text.replace(AGENT_NAME, " ")).removeprefix(prefix)[:LONGEST_NAME].strip("-") or "proposition"
    free, number = prefix + words, 1
    while free in in_use:
        number += 1
        free = f"{prefix}{words}-{number}"
    return free


def slugified(text: str) -> str:
    """Lower-case letters and digits, everything else one hyphen."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
