"""Pick agents in the search field of a form, as a person does with the keyboard."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect


def pick(page: Page, name: str) -> None:
    """Type the start of an agent's name, and take the one agent that is found."""
    page.get_by_role("searchbox", name="Agents").press_sequentially(name[:3])
    expect(page.locator(".select2-results__option")).to_have_text([re.compile(name)])  # no other is left
    page.keyboard.press("Enter")
