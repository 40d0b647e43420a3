"""Four floors, arrows only downwards: agents < evaluation < correction < project. Read from the imports themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = ("agents", "evaluation", "correction", "project")  # lowest first
HOUSE = {*FLOORS, "tests"}


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(source: str, *, package: str = "") -> Iterator[str]:
    """Every dotted name a module imports, wherever the import stands; relative ones resolved against `package`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (
            "import_module",
            "__import__",
        ):
            yield from (a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str))


def forbidden_to(floor: str) -> set[str]:
    """The floors above, `project` (which nobody imports) and the tests."""
    above = set(FLOORS[FLOORS.index(floor) + 1 :])
    return above | {"project", "tests"} - ({"project"} if floor == "project" else set())


def upward_imports(floor: str) -> list[str]:
    found = []
    for path in sources(floor):
        package = ".".join(path.parent.relative_to(ROOT).parts)
        for name in imported(path.read_text(encoding="utf-8"), package=package):
            if name.split(".")[0] in forbidden_to(floor):
                found.append(f"{path.relative_to(ROOT)} imports {name}")
    return sorted(set(found))


@pytest.mark.parametrize("floor", FLOORS)
def test_no_floor_imports_one_above_it(floor: str) -> None:
    assert upward_imports(floor) == []


def test_tests_import_project_no_more_than_anybody_else() -> None:
    found = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources("tests")
        for name in imported(path.read_text(encoding="utf-8"))
        if name.split(".")[0] == "project"
    ]

    assert found == []


def test_the_lower_floors_are_there_to_be_checked() -> None:
    assert {floor for floor in FLOORS if sources(floor)} >= {"agents", "evaluation", "project"}


def test_there_is_no_other_package_at_the_top() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/*.py") if not path.parent.name.startswith(".")}

    assert packages <= HOUSE
    assert {path.name for path in ROOT.glob("*.py")} == {"manage.py"}


def test_an_upward_import_would_be_seen_however_it_is_written() -> None:
    source = """
import evaluation.judge.questions as j
from correction import gate
from . import models
from ..evaluation import runs
def later():
    from evaluation.runs.execute import execute
    import importlib
    importlib.import_module("correction.stages")
"""
    found = set(imported(source, package="agents.kit.llm"))

    assert {
        "evaluation.judge.questions",
        "correction.gate",
        "evaluation.runs.execute.execute",
        "correction.stages",
    } <= found
    assert {"agents.kit.llm.models", "agents.evaluation.runs"} <= found


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions count, too; those for type checkers do not."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for floor in FLOORS
        for path in sources(floor)
        if "migrations" not in path.parts
    }
    graph = {name: _needed(path, set(modules)) - {name} for name, path in modules.items()}
    while leaves := [name for name, needs in graph.items() if not needs & graph.keys()]:
        for name in leaves:
            del graph[name]
    users = {need for needs in graph.values() for need in needs}
    assert not [name for name in graph if name in users], "these import each other, or modules that do"


def _needed(path: Path, modules: set[str]) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    needed = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            needed |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            needed |= names & modules or {node.module}
    return needed & modules
