"""A developer makes a token, runs the example that comes with it, and sees the check on the first page: in real Chromium."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from shutil import which

import pytest
from django.contrib.auth.models import Group, User
from django.urls import reverse
from playwright.sync_api import expect

from agents.kit.models import ApiToken
from correction.models import CorrectionLog
from tests.e2e.conftest import Visitor
from tests.factories import make_agent

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

RUN = {"curl": ["sh"], "Python": [sys.executable], "TypeScript": ["node", "--input-type=module"]}


def test_a_token_is_made_its_example_run_and_the_check_on_home(visit: Callable[..., Visitor]) -> None:
    make_agent("pam", display_name="Pam Beesly")
    developer = User.objects.create_user("developer", is_staff=True)
    developer.groups.add(Group.objects.get(name="Operator"))
    visitor = visit(developer, "/admin/", width=390, scheme="dark")
    page = visitor.page
    page.locator("header, #main").locator("text=dock_to_right").locator("visible=true").click()
    page.locator("#nav-sidebar-apps a", has_text="Access").click()
    page.locator("a[href$='/apitoken/add/']").first.click()
    page.get_by_label("Name").fill("my bot")
    page.get_by_role("button", name="Save", exact=True).click()
    # As browsers do on a page without HTTPS:
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.get_by_role("button", name="Copy", exact=True).first.click()
    expect(page.get_by_role("button", name="Selected")).to_be_visible()
    assert page.evaluate("String(getSelection())") == page.locator("#token-key").inner_text()
    assert visitor.faults() == []
    examples = {
        one.locator("summary").inner_text(): one.locator("pre").text_content() or ""
        for one in page.locator("details:has(pre)").all()
    }
    assert list(examples) == list(RUN)
    for name, text in examples.items():
        if which(RUN[name][0]):
            ran = subprocess.run(RUN[name], input=text, capture_output=True, text=True, timeout=60, check=False)
            assert ran.returncode == 0, f"{name}: {ran.stderr}"
    visitor.open(reverse("admin:correction_correctionlog_changelist"))

    expect(page.locator("body")).to_contain_text("Pam Beesly")
    assert CorrectionLog.objects.filter(session__source="external").count() == sum(
        bool(which(run[0])) for run in RUN.values()
    )
    assert ApiToken.objects.get().name == "my bot"
    assert visitor.problems == []
