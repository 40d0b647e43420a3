"""The workflow that docs/how-to/fail-a-build.md shows, and the action, are as safe as the page says."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.evaluation.ci.test_files import ROOT

PAGE = (ROOT / "docs" / "how-to" / "fail-a-build.md").read_text(encoding="utf-8")
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


def test_the_workflow_is_pinned_and_may_do_no_more_than_it_must() -> None:
    workflow: dict[Any, Any] = yaml.safe_load(
        re.findall(r"^```yaml[^\n]*\n(name: personas.*?)^```", PAGE, re.M | re.S)[0]
    )

    assert workflow["permissions"] == {"contents": "read"}
    assert workflow[True] == "pull_request", "the trigger (YAML reads `on` as true)"
    steps = [*workflow["jobs"]["check"]["steps"], *ACTION["runs"]["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert len(used) == 3
    for action in used:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action), action


def test_the_workflow_gives_the_action_what_it_takes() -> None:
    given = yaml.safe_load(re.findall(r"with: (\{personas.*?\})", PAGE)[0])
    required = {name for name, one in ACTION["inputs"].items() if one.get("required")}
    assert required <= given.keys() <= ACTION["inputs"].keys()


def test_every_input_of_the_action_is_used_and_every_output_is_made() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    steps = {step["id"]: step for step in ACTION["runs"]["steps"] if "id" in step}
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == set(ACTION["inputs"])
    for output in ACTION["outputs"].values():
        step, name = re.findall(r"steps\.(\w+)\.outputs\.(\w+)", output["value"])[0]
        assert re.search(rf"\b{name}\.\w+", steps[step]["run"]), name
    assert all(step["shell"] == "bash" for step in ACTION["runs"]["steps"] if "run" in step)
