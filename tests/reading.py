"""Print how the product reads: ``python -m tests.reading [--json]``. Figures to look at; none of them is a target.

Per app: files, lines, syntax nodes a line, how many docstrings of functions begin with a verb, how many names say nothing out of
context. For the whole: the functions with most branches, packages that import each other, tables, commands, pages, settings.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
APPS = ("project", "agents", "evaluation", "correction", "tests")
# Names that hold anything: docs/explanation says what each thing is called instead.
EMPTY_NAMES = {"one", "of", "said", "place", "shown", "held", "told", "found", "way", "part"}
VERB_LIST = """
Accept Acknowledge Add Allow Answer Append Apply Arrange Ask Assert Assign Average Begin Bring Build Calculate Calibrate Call
Cancel Carry Change Check Choose Clamp Clean Clear Close Collect Combine Compare Compute Copy Convert Count Create Cut Decide
Declare Delete Describe Draw Drop Dump Empty End Enter Erase Estimate Evaluate Expect Explain Export Fail Fill Filter Find Fire
Fit Follow Forget Format Fetch Generate Get Give Group Handle Hash Hide Hold Ignore Import Insert Iterate Judge Keep Kill Label
Lead Learn Lease Leave Let List Load Lock Log Look Lower Make Map Mark Match Measure Merge Move Name Normalise Note Offer Open
Order Parse Pass Pick Pin Plan Play Polish Poll Post Prepare Print Put Queue Raise Rank Read Rebuild Record Redirect Refresh
Refuse Register Release Remember Remove Rename Render Renew Repeat Replace Replay Report Reset Resolve Respond Restart Restore
Resume Retry Return Round Run Sample Save Say Schedule Score Search Send Serve Set Shorten Show Shut Simulate Skip Sleep Sort
Split Start State Stop Store Stream Strip Submit Suggest Sum Summarise Switch Take Tell Test Throw Translate Trim Truncate Try
Turn Undo Update Upload Use Validate Verify Wait Walk Warn Weigh Wrap Write Yield
"""
VERBS = frozenset(VERB_LIST.split())
BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.comprehension, ast.match_case)


@dataclass
class App:
    """Figures of one app: what its files hold, without migrations."""

    files: int = 0
    lines: int = 0
    nodes: int = 0  # statements and expressions
    functions: int = 0
    docstrings: int = 0  # of functions
    verbs: int = 0  # docstrings that begin with one
    empty_names: int = 0
    comprehensions: int = 0
    conditional_expressions: int = 0


@dataclass
class Reading:
    """Figures of the whole product."""

    apps: dict[str, App] = field(default_factory=dict)
    branches: list[tuple[int, str]] = field(default_factory=list)  # most first
    first_words: dict[str, int] = field(default_factory=dict)  # of docstrings that begin with no verb
    knots: list[list[str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def paths(app: str) -> Iterator[Path]:
    """Yield the app's modules."""
    for path in sorted((ROOT / app).rglob("*.py")):
        if "migrations" not in path.parts:
            yield path


def read() -> Reading:
    """Read every module of the product and of its tests."""
    reading = Reading()
    first_words: Counter[str] = Counter()
    for name in APPS:
        app = reading.apps[name] = App()
        for path in paths(name):
            source = path.read_text(encoding="utf-8")
            app.files += 1
            app.lines += source.count("\n")
            for node in ast.walk(ast.parse(source)):
                app.nodes += isinstance(node, (ast.stmt, ast.expr))
                app.comprehensions += isinstance(node, ast.comprehension)
                app.conditional_expressions += isinstance(node, ast.IfExp)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    app.empty_names += node.id in EMPTY_NAMES
                if isinstance(node, ast.arg):
                    app.empty_names += node.arg in EMPTY_NAMES
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    app.functions += 1
                    if name != "tests":
                        reading.branches.append((count_branches(node), f"{path.relative_to(ROOT)}:{node.name}"))
                    if docstring := ast.get_docstring(node):
                        word = re.split(r"[\s,.:]", docstring, maxsplit=1)[0]
                        app.docstrings += 1
                        app.verbs += word in VERBS
                        if word not in VERBS and name != "tests":
                            first_words[word] += 1
    reading.branches = sorted(reading.branches, reverse=True)[:20]
    reading.first_words = dict(first_words.most_common(12))
    reading.knots = package_knots()
    reading.counts = count_things()
    return reading


def count_branches(function: ast.AST) -> int:
    """Return how many ways a function may go: branches, loops, handlers, and each further operand of `and` and `or`."""
    branches = 0
    for node in ast.walk(function):
        branches += isinstance(node, BRANCHES)
        if isinstance(node, ast.BoolOp):
            branches += len(node.values) - 1
    return branches


def package_knots() -> list[list[str]]:
    """Return the groups of packages that import each other, directly or by way of others."""
    from tests.test_imports import modules, needs

    imports: dict[str, set[str]] = {}
    for module, path in modules().items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for needed in needs(module):
            needed_package = needed if modules()[needed].name == "__init__.py" else needed.rpartition(".")[0]
            if not (needed_package.startswith(f"{package}.") or package.startswith(f"{needed_package}.")):
                imports.setdefault(package, set()).add(needed_package)
    reached = {package: _reachable(package, imports) for package in imports}
    knots: list[list[str]] = []
    for package in sorted(imports):
        knot = sorted(other for other in reached[package] if package in reached.get(other, ()))
        if len(knot) > 1 and knot not in knots:
            knots.append(knot)
    return knots


def _reachable(package: str, imports: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [package]
    while waiting:
        for needed in imports.get(waiting.pop(), ()):
            if needed not in reached:
                reached.add(needed)
                waiting.append(needed)
    return reached


def count_things() -> dict[str, int]:
    """Count tables, commands, pages, and settings of an agent and of the environment."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    os.environ.setdefault("DEBUG", "1")
    import django
    import yaml

    django.setup()
    from django.apps import apps
    from django.contrib import admin
    from django.core.management import get_commands
    from django.urls import URLResolver, get_resolver

    ours = ("agents", "evaluation", "correction")
    patterns = [get_resolver()]
    pages = 0
    while patterns:
        for pattern in patterns.pop().url_patterns:
            if isinstance(pattern, URLResolver):
                patterns.append(pattern)
            else:
                pages += 1
    environment = yaml.safe_load((ROOT / "project/effective.yaml").read_text(encoding="utf-8"))
    return {
        "tables": sum(model.__module__.startswith(ours) for model in apps.get_models(include_auto_created=True)),
        "commands": sum(str(app).startswith(ours) for app in get_commands().values()),
        "pages and routes": pages,
        "tables in the console": len(admin.site._registry),
        "environment settings": sum(len(names) for names in environment.values()),
    }


def show(reading: Reading) -> None:
    """Print the figures as text."""
    print(f"{'app':12}{'files':>7}{'lines':>8}{'nodes/line':>12}{'comprehensions':>16}{'x if y else z':>15}", end="")  # noqa: T201
    print(f"{'docstrings with a verb':>24}{'empty names':>13}")  # noqa: T201
    for name, app in reading.apps.items():
        per_thousand = 1000 / app.lines
        print(  # noqa: T201
            f"{name:12}{app.files:7}{app.lines:8}{app.nodes / app.lines:12.2f}{app.comprehensions * per_thousand:16.0f}"
            f"{app.conditional_expressions * per_thousand:15.0f}{f'{app.verbs} of {app.docstrings}':>24}{app.empty_names:13}"
        )
    print("(comprehensions and conditional expressions: per 1,000 lines)\n")  # noqa: T201
    print("Most branches:", *(f"{count:4}  {name}" for count, name in reading.branches), sep="\n  ")  # noqa: T201
    print("First words of docstrings without a verb:", reading.first_words)  # noqa: T201
    print("Packages that import each other:", reading.knots or "none")  # noqa: T201
    for name, count in reading.counts.items():
        print(f"{name}: {count}")  # noqa: T201


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    figures = read()
    if parser.parse_args().json:
        print(json.dumps(asdict(figures), indent=1))  # noqa: T201
    else:
        show(figures)
