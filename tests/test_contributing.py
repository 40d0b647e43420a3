"""CONTRIBUTING.md names places that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_every_place_that_is_named_exists() -> None:
    named = re.findall(r"`([\w<>.]+/[\w<>./]*)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))

    assert len(named) > 50
    assert [place for place in named if not any(ROOT.glob(re.sub(r"<\w+>", "*", place).rstrip("/")))] == []


def imported(name: str, seen: set[str]) -> set[str]:
    """All modules that a module of the tests imports, also through others of them; those of a package are taken together."""
    if name in seen:
        return set()
    seen.add(name)
    path = ROOT.joinpath(*name.split("."))
    files = [*path.glob("*.py")] if path.is_dir() else [path.with_suffix(".py")]
    found: set[str] = set()
    for file in (file for file in files if file.is_file()):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.update([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    for module in sorted(found):
        if module.startswith("tests."):
            found |= imported(module, seen)
    return found


def test_what_make_runs_is_installed_by_it() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    rules = re.findall(r"^([a-z0-9-]+):([^\n#]*)##[^\n]*\n((?:\t[^\n]*\n)+)", makefile, flags=re.MULTILINE)
    lacking = []
    for target, needs, recipe in rules:
        for module in re.findall(r"-m (tests\.\w+)", recipe):
            if "pytest" in imported(module, set()) and ".dev" not in needs:
                lacking.append(target)

    assert len(rules) > 10
    assert "pytest" in imported("tests.bench", set())
    assert lacking == []
