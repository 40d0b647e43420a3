"""What axe-core finds wrong with a page for people who use a keyboard, a screen reader or strong contrast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

GRAVE = ("serious", "critical")


def grave_faults(page: Page, *only: str, without: Sequence[str] = ()) -> list[str]:
    """One line per element: the rule, how grave, the element, and what to do. Empty = nothing serious.

    Args:
        only: Rules; default all of them.
        without: Rules that are left out.
    """
    options: dict[str, Any] = {
        "preload": False,  # no rule needs it, and it may time out
        "resultTypes": ["violations"],  # the others are counted only, which is quicker
        "rules": {rule: {"enabled": False} for rule in without},
    }
    if only:
        options["runOnly"] = list(only)
    found = Axe().run(page, options=options).response["violations"]
    return [
        f"{rule['id']} ({rule['impact']}): {node['target']} {node['html'][:160]} | {node['failureSummary'][:200]}"
        for rule in found
        if rule["impact"] in GRAVE
        for node in rule["nodes"]
    ]
