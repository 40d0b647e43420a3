"""The files that a repository is expected to have say what the project does: workflow, hooks, releases, decisions."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40}")


def read_yaml(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def prerequisites_of(target: str) -> list[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [rule] = re.findall(rf"^{target}:([^\n#]*)", makefile, flags=re.MULTILINE)
    return str(rule).split()


def jobs() -> dict[str, Any]:
    workflow: dict[str, Any] = read_yaml(".github/workflows/ci.yml")
    return dict(workflow["jobs"])


def test_before_a_commit_the_same_checks_run_as_in_a_build() -> None:
    [repository] = read_yaml(".pre-commit-config.yaml")["repos"]
    called = [hook["entry"] for hook in repository["hooks"]]

    assert called == [f"make {step}" for step in prerequisites_of("check")]
    assert "make check" in (ROOT / ".ci/run").read_text(encoding="utf-8")


def test_the_workflow_calls_what_also_runs_on_a_bare_machine() -> None:
    commands = [step["run"] for step in jobs()["run"]["steps"] if "run" in step]

    assert commands == [".ci/run"]


def test_the_workflow_may_only_read_ends_in_time_and_uses_actions_that_cannot_be_exchanged() -> None:
    steps = [step for job in jobs().values() for step in job["steps"]]

    assert read_yaml(".github/workflows/ci.yml")["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 60 for job in jobs().values())
    assert [step["uses"] for step in steps if "uses" in step and not PINNED.fullmatch(step["uses"])] == []


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("github-workflows", ".github/workflows/ci.yml"),
        ("dependabot", ".github/dependabot.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/bug.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/idea.yml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
    ],
)
def test_files_for_github_follow_their_schemas(schema: str, path: str) -> None:
    checked = [str(BIN / "check-jsonschema"), "--builtin-schema", f"vendor.{schema}", path]
    run = subprocess.run(checked, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert run.returncode == 0, run.stdout + run.stderr


def test_the_newest_release_of_the_changelog_is_the_version_of_the_package() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert headings[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(package['version'])} \(\d{{4}}-\d\d-\d\d\)", headings[1])


def test_every_decision_is_on_the_site_and_in_its_list() -> None:
    pages = sorted(path.name for path in (ROOT / "docs/adr").glob("[0-9]*.md"))
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    index = (ROOT / "docs/adr/index.md").read_text(encoding="utf-8")

    assert len(pages) >= 6
    assert re.findall(r": adr/(\d[\w-]+\.md)$", navigation, flags=re.MULTILINE) == pages
    assert re.findall(r"\]\((\d[\w-]+\.md)\)", index) == pages
