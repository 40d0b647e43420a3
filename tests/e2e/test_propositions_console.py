"""Suggested propositions in a real browser: read beside the persona, accepted with one press, undone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect
from pytest_django import Settings

from evaluation.admin.propositions import propositions_url
from evaluation.propositions.files import load_file
from tests.e2e.conftest import Visitor
from tests.factories import make_agent

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

FILE = """\
propositions:
  - id: ada-emoji
    active: false
    claim: "{{agent_name}} uses no emoji"
    rule: {no_emoji: true}
    source: "You never use emoji"
  - id: ada-sales
    active: false
    inverted: true
    claim: "{{agent_name}} talks like a seller"
    cues: {supports: ["world class", "game changer"], contradicts: ["to be fair"]}
    recommendations_for_improvement: "Say it plainly."
    source: "Sales talk makes you wince"
"""


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_a_suggestion_is_accepted_and_undone(
    visit: Callable[..., Visitor], operator: User, settings: Settings, tmp_path: Path, width: int, scheme: str
) -> None:
    settings.PROPOSITIONS_DIR, settings.PROPOSITION_DIRS = tmp_path, []
    path = tmp_path / "adherence" / "ada.suggestions.yaml"
    path.parent.mkdir()
    path.write_text(FILE)
    make_agent(
        "ada", system_prompt="You are Ada, clerk of the harbour. You never use emoji.\n\nSales talk makes you wince."
    )
    visitor = visit(width=width, scheme=scheme)
    visitor.enter(operator)
    page = visitor.page

    visitor.open("/admin/evaluation/proposition/")
    page.get_by_role("link", name="Open", exact=True).click()
    card = page.locator("#proposition-ada-emoji")
    expect(card.locator("mark")).to_have_text("You never use emoji")
    card.get_by_role("button", name="Accept").click()
    expect(page.get_by_text("ada-emoji is accepted: it is judged from the next evaluation on.")).to_be_visible()
    assert [p.id for p in load_file(path).propositions] == ["ada-emoji"]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (
        "nothing is wider than the window"
    )

    card.get_by_role("button", name="Undo").click()
    expect(card.get_by_role("button", name="Accept")).to_be_visible()
    assert path.read_text() == FILE
    assert propositions_url("ada") in page.url
