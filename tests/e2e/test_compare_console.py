"""Two measurements compared in real Chromium: ticked in the list, then named by their tags."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer

from evaluation.models import EvaluationRun
from tests.console import list_of
from tests.e2e.axe import grave_faults
from tests.e2e.conftest import Visitor
from tests.e2e.test_console import HOSTILE
from tests.evaluation.change.measured import flattened
from tests.factories import make_agent

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]


def test_two_ticked_evaluations_are_compared_then_two_builds_and_the_numbers_downloaded(
    visit: Callable[..., Visitor], live_server: LiveServer, operator: User
) -> None:
    flattened(make_agent(title=f"Clerk {HOSTILE}"))
    for build, run in enumerate(EvaluationRun.objects.order_by("pk"), 40):
        run.where = {"build": str(build)}
        run.save()
    visitor = visit(width=390, scheme="dark")
    page = visitor.page
    visitor.enter(operator)
    visitor.open(list_of(EvaluationRun))
    for box in page.locator("input.action-select").all():
        box.check()
    page.locator("select[name=action]").select_option(label="Compare two")
    page.get_by_role("button", name="Run").click()

    rows = page.get_by_role("region", name="By proposition").locator("tbody tr")
    expect(rows.filter(has_text="drifted").first).to_be_visible()
    expect(page.locator("blockquote").first).to_be_visible()
    assert visitor.fits
    assert grave_faults(page) == []
    every = rows.count()

    page.get_by_label("Agent").select_option(label="Ada")
    page.get_by_label("A", exact=True).fill("build=40")
    page.get_by_label("B", exact=True).fill("build=41")
    page.get_by_label("only worse").check()
    page.get_by_role("button", name="Compare").click()
    expect(rows.filter(has_text="drifted").first).to_be_visible()
    assert 0 < rows.count() < every

    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    text = Path(download.value.path()).read_text()
    assert "drifted" in {row["verdict"] for row in csv.DictReader(text.splitlines())}
