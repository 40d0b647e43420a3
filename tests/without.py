"""Copies of the checkout to change: the product without one of its apps is one without the app's folder, lines in the settings and tests.

``python -m tests.without agents.debates`` runs the tests there that import nothing of the app; further words are given to pytest.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from tests import zygote

ROOT = Path(__file__).resolve().parent.parent
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".local", "__pycache__", ".*_cache", "site", "staticfiles")
# Written from the installed apps, by the project's own commands.
OPENAPI = ["manage.py", "spectacular", "--validate", "--fail-on-warn", "--file", "docs/openapi.yaml"]
REFERENCE = ["-m", "tests.reference"]


def copy_checkout(folder: Path) -> Path:
    """Copy the checkout into `folder` and return the root of the copy."""
    copy = folder / "copy"
    shutil.copytree(ROOT, copy, ignore=NOT_COPIED, symlinks=True)
    return copy


def copy_without(apps: Collection[str], folder: Path) -> Path:
    """Copy the checkout into `folder` and delete apps from the copy.

    Args:
        apps: Their names in INSTALLED_APPS, such as ``agents.debates``.

    Returns:
        The root of the copy.
    """
    copy = copy_checkout(folder)
    settings = copy / "project/settings.py"
    for app in apps:
        shutil.rmtree(copy.joinpath(*app.split(".")))
        lines = settings.read_text(encoding="utf-8").splitlines(keepends=True)
        named = re.compile(rf'\s*"{re.escape(app)}(\.[\w.]+)?",')
        settings.write_text("".join(line for line in lines if not named.match(line)), encoding="utf-8")
        for path in tests_of(app):
            (copy / path).unlink(missing_ok=True)
    run(copy, OPENAPI)
    return copy


def tests_of(app: str) -> set[Path]:
    """Return the files of tests that import the app or name a page of it, themselves or through others of them."""
    files = {path.relative_to(ROOT): _names(path) for path in (ROOT / "tests").rglob("*.py")}
    label = app.rpartition(".")[2]
    named = re.compile(
        rf"{re.escape(app)}(\..*)?|(admin:)?{label}_[a-z]+_[a-z_]+|{label}\.[a-z]+_[a-z]+"
    )  # module, page, permission
    gone: set[Path] = {path for path, names in files.items() if any(map(named.fullmatch, names))}
    while more := {path for path, names in files.items() if path not in gone and names & set(map(_module, gone))}:
        gone |= more
    return gone


def run(copy: Path, words: Sequence[str], *, codes: Collection[int] = (0,), **settings: str) -> str:
    """Run Python in the copy, with a database of its own, and return what it prints.

    Args:
        settings: Further environment variables.

    Raises:
        AssertionError: It did not end with one of `codes`; the message is its output.
    """
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    environment |= {"DEBUG": "1", "PYTHONPATH": str(copy), "DJANGO_SETTINGS_MODULE": "project.settings", **settings}
    done = zygote.run([sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True, timeout=900)
    if done.returncode not in codes:
        said = f"{done.stdout[-6000:]}{done.stderr[-3000:]}"
        raise AssertionError(f"{' '.join(words)} ended with {done.returncode}:\n{said}")
    return done.stdout


def _names(path: Path) -> set[str]:
    """All modules and names that a file imports, and dotted names in its texts."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.:]+", node.value):
            found.add(node.value)
    return found


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def main() -> None:
    app, *words = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_without([app], Path(folder))
        run(copy, REFERENCE)
        environment = os.environ | {"PYTHONPATH": str(copy)}
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not e2e and not service", *words]
        sys.exit(subprocess.run(command, cwd=copy, env=environment).returncode)


if __name__ == "__main__":
    main()
