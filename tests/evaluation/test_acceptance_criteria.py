"""Specification 001: every acceptance criterion has a test named after it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
STORIES = {0: 18, 1: 9, 2: 8, 3: 9, 4: 10, 5: 9, 6: 7}  # criteria per story of specification 001
CRITERIA = [f"6_{story}_{n}" for story, count in STORIES.items() for n in range(1, count + 1)] + ["6_0_3a"]


def test_every_criterion_has_a_test_named_after_it_ac_6_0_17() -> None:
    named: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                named.update(re.findall(r"ac_(\d+_\d+_\d+[a-z]?)(?=_|$)", node.name))

    assert [criterion for criterion in CRITERIA if criterion not in named] == []
