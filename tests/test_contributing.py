"""CONTRIBUTING.md names places that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_every_place_that_is_named_exists() -> None:
    named = re.findall(r"`([\w<>.]+/[\w<>./]*)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))

    assert len(named) > 50
    assert [place for place in named if not any(ROOT.glob(re.sub(r"<\w+>", "*", place).rstrip("/")))] == []
