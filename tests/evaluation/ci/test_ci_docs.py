"""What docs/how-to/fail-a-build.md tells people to type is understood by the command, and its workflow is as safe as it says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import load_command_class

from evaluation.ci.options import read_request
from evaluation.ci.render import MARKER

DOCS = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "fail-a-build.md"
TEXT = DOCS.read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def shell() -> Iterator[str]:
    """The shell blocks, and the steps of the workflow."""
    yield from blocks("sh")
    for step in workflow()["jobs"]["check"]["steps"]:
        yield step.get("run", "")


def workflow() -> dict[Any, Any]:
    result: dict[Any, Any] = yaml.safe_load(blocks("yaml")[0])
    return result


def commands() -> list[str]:
    lines = "\n".join(shell()).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if re.match(r"\s*(python )?(\S*/)?manage\.py evaluate\b", line)]


@pytest.mark.parametrize("line", commands())
def test_every_command_line_is_understood(line: str) -> None:
    words = shlex.split(line)
    parser = load_command_class("evaluation", "evaluate").create_parser("manage.py", "evaluate")

    options = vars(parser.parse_args(words[words.index("evaluate") + 1 :]))

    read_request(options)


def test_there_are_commands_in_the_docs_and_in_the_workflow() -> None:
    assert len(commands()) >= 9
    assert any("plumbline/manage.py" in line for line in commands())


def test_the_workflow_is_pinned_and_may_do_no_more_than_it_must() -> None:
    result = workflow()

    assert result["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert result[True] == "pull_request", "the trigger (YAML reads `on` as true)"
    used = [step["uses"] for step in result["jobs"]["check"]["steps"] if "uses" in step]
    assert used
    for action in used:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action), action
    assert "|| true" not in TEXT
    assert "continue-on-error" not in TEXT


def test_no_text_of_a_pull_request_is_pasted_into_a_shell() -> None:
    for step in workflow()["jobs"]["check"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_the_comment_is_found_by_the_marker_it_begins_with() -> None:
    (step,) = [step for step in workflow()["jobs"]["check"]["steps"] if step.get("name") == "Comment"]

    assert f'startswith("{MARKER}")' in step["run"]
