"""Who may import whom. Imports inside functions count, too; those for type checkers do not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# A package or module imports only what stands in a line above it. Names in one line do not know each other.
ORDER = """
# The kit: what knows no agent.
agents.kit.capability agents.kit.running agents.kit.bulk agents.kit.refusals agents.kit.erasing agents.kit.first_migration
agents.kit.text agents.kit.team_functions
agents.kit.files agents.kit.bodies agents.kit.alerting agents.kit.models agents.kit.registry
agents.kit.groups agents.kit.api agents.kit.llm
agents.kit.work
agents.kit.ops agents.kit.commands agents.kit.checks
agents.kit.use_cases
agents.kit.console agents.kit.management agents.kit.tables
agents.kit.admin agents.kit.templatetags agents.kit.apps agents.kit.urls
# Agents: people and talk.
agents.models
agents.personas agents.builds agents.erasure
agents.bodies agents.seed agents.tables agents.turn
agents.chat agents.transcripts agents.checks
agents.admin agents.api agents.management agents.apps
agents.urls
# What agents do besides: none of these knows another.
agents.debates agents.swarm agents.alerts
# Measuring.
evaluation.dimensions evaluation.windows evaluation.statistics
evaluation.models evaluation.budget
evaluation.wording evaluation.jobs evaluation.scorers
evaluation.propositions evaluation.examples
evaluation.judge evaluation.simulation evaluation.checks
evaluation.runs
evaluation.commands evaluation.tables evaluation.api
evaluation.admin evaluation.management evaluation.urls evaluation.apps
evaluation.calibration evaluation.drafting
evaluation.change
evaluation.experiments
evaluation.ci
# Correcting.
correction.config
correction.models correction.repetition
correction.costs correction.examples correction.sampling
correction.gate
correction.alerts correction.api correction.tables correction.stages correction.management correction.apps
correction.admin correction.urls
correction.interventions correction.behavior correction.litellm correction.sending
correction.demo
project
"""
LINES = [line.split() for line in ORDER.strip().splitlines() if not line.startswith("#")]
PLACE = {name: number for number, line in enumerate(LINES) for name in line}
HOUSE = ("agents", "evaluation", "correction", "project")


def place_of(module: str) -> str:
    """The name in the table that a module falls under: the longest one."""
    parts = module.split(".")
    names = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((name for name in names if name in PLACE), "")


@cache
def modules() -> dict[str, Path]:
    """All modules of the product by their dotted names."""
    paths = [path for package in HOUSE for path in (ROOT / package).rglob("*.py") if "migrations" not in path.parts]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def imported(source: str, *, package: str = "") -> Iterator[str]:
    """Every dotted name that a module imports, wherever the import stands; relative ones resolved against `package`."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{name}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (
            "import_module",
            "__import__",
        ):
            yield from (a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str))


@cache
def needs(module: str) -> frozenset[str]:
    """The modules of the product that a module imports."""
    path = modules()[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names = imported(path.read_text(encoding="utf-8"), package=package)
    found = {name if name in modules() else name.rpartition(".")[0] for name in names}
    return frozenset(found & modules().keys() - {module})


def test_a_package_imports_only_what_stands_above_it() -> None:
    wrong = []
    for module in modules():
        package = place_of(module)
        for need in needs(module):
            is_above = PLACE.get(place_of(need), len(LINES)) < PLACE.get(package, -1)
            if package and place_of(need) != package and not is_above:
                wrong.append(f"{module} imports {need}")

    assert wrong == []


def test_every_module_has_a_place() -> None:
    homeless = [module for module, path in modules().items() if not place_of(module) and path.name != "__init__.py"]

    assert homeless == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: set(needs(module)) for module in modules()}
    while leaves := [module for module, needed in graph.items() if not needed & graph.keys()]:
        for module in leaves:
            del graph[module]
    users = {need for needed in graph.values() for need in needed}

    assert not [module for module in graph if module in users], "these import each other, or modules that do"


def test_tests_import_project_no_more_than_anybody_else() -> None:
    found = []
    for path in (ROOT / "tests").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if "project" in source:  # reading all of them takes seconds
            found += [f"{path} imports {name}" for name in imported(source) if name.split(".")[0] == "project"]

    assert found == []


def test_there_is_no_other_package_at_the_top() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/*.py") if not path.parent.name.startswith(".")}

    assert packages <= {*HOUSE, "tests"}
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
    found = set(imported(source, package="agents.llm"))

    assert {
        "evaluation.judge.questions",
        "correction.gate",
        "evaluation.runs.execute.execute",
        "correction.stages",
    } <= found
    assert {"agents.llm.models", "agents.evaluation.runs"} <= found


SDKS = ("anthropic", "openai", "boto3", "botocore", "google.auth")  # with which models are called


def test_the_sdk_of_a_provider_is_imported_in_providers_alone() -> None:
    found = []
    for module, path in modules().items():
        if module.startswith("agents.kit.llm.providers."):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))  # imports for type checkers count here
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names.append(node.module or "")
            found += [
                f"{module} imports {name}" for name in names if f"{name}.".startswith(tuple(f"{sdk}." for sdk in SDKS))
            ]

    assert found == []
