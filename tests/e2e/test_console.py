"""An operator walks through the console on a phone, under the shipped security policy."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer

from agents.kit.models import LLMCall
from agents.models import Agent
from agents.personas.persona import TraitValue
from evaluation.models import EvaluationRun
from tests.console import list_of
from tests.e2e.conftest import Visitor
from tests.evaluation.judged import OFFLINE, make_baseline, make_run, make_score
from tests.factories import MONDAY, make_agent, make_channel, say

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def office(live_server: LiveServer) -> Agent:
    """A cast of two, a conversation of more than one page, and one evaluation of it."""
    ada = make_agent(
        title="Clerk", traits=[TraitValue("dry", "Says little."), TraitValue("proud")], avatar_color="#7c2d12"
    )
    bob = make_agent("bob")
    channel = make_channel(name="office")
    for minute in range(110):
        author = (ada, bob, "Visitor")[minute % 3]
        text = f"Remark number {minute}." if minute % 20 else HOSTILE
        message = say(channel, author, text, sent_at=MONDAY + timedelta(hours=minute), tags={"build": "41"})
    run = make_run(ada, judge=OFFLINE, is_baseline=True, overall_score=4.5)
    for number, found in enumerate(ada.messages.order_by("position")[:8]):
        make_score(run, number, message=found, context_snippet=found.text, reasoning="Because it is dry. " * 20)
        make_score(run, None, message=found, proposition_id="loud", claim="Ada is loud", reason="needs an LLM judge")
    make_baseline(ada, run)
    LLMCall.objects.create(
        role="judge", purpose="evaluation", model="m", provider="anthropic", status="ok", agent=ada,
        work_id=run.work_id, input_tokens=1000, output_tokens=20, cost_usd=Decimal("0.0123"),
    )  # fmt: skip
    say(channel, bob, "Is that so?", parent=message)
    return ada


def test_an_operator_reads_agent_conversation_run_and_scores(
    visit: Callable[..., Visitor], office: Agent, operator: User
) -> None:
    visitor = visit(width=390, scheme="dark")
    page = visitor.page
    visitor.sign_in(operator)
    expect(page.locator("h1")).to_have_text(re.compile("Home"))

    visitor.open(list_of(Agent))
    expect(page.locator(".pl-once")).to_contain_text("heuristic")
    assert visitor.fits
    page.get_by_role("link", name="Ada").click()
    page.locator("#tabs-items").get_by_role("link", name="History").click()
    expect(page.locator("#baselines")).to_contain_text("adherence")
    assert visitor.fits

    visitor.open(list_of(type(office.messages.all()[0].channel)))
    page.get_by_role("link", name="#office").click()
    expect(page.locator(".pl-transcript")).to_contain_text("Is that so?")
    expect(page.locator(".pl-message.pl-by-outsider").first).to_contain_text("outsider")
    assert visitor.fits
    page.get_by_role("link", name="Oldest").first.click()
    expect(page.locator(".pl-message").first).to_contain_text(HOSTILE)

    visitor.open(list_of(EvaluationRun))
    page.get_by_role("link", name=re.compile(r"#\d+ baseline")).click()
    expect(page.locator(".pl-worst")).to_contain_text("scored 0 of 9")
    assert visitor.fits

    page.get_by_role("link", name="all its scores").click()
    expect(page.locator("#result_list")).to_contain_text("needs an LLM judge")
    assert visitor.fits
    folded = page.locator("#result_list details").last
    folded.locator("summary").click()
    expect(folded.locator("div")).to_be_visible()
    page.locator("#result_list").get_by_role("link", name="Remark number 3.").first.click()
    expect(page.locator(".pl-wanted")).to_contain_text("Remark number 3.")

    visitor.open(list_of(LLMCall))
    expect(page.locator(".pl-totals")).to_contain_text("$0.0123")
    assert visitor.fits


@pytest.mark.skipif(not settings.CONTENT_SECURITY_POLICY, reason="DEBUG is set: no policy is sent")
def test_the_pages_are_served_under_the_shipped_policy(
    visit: Callable[..., Visitor], operator: User, live_server: LiveServer
) -> None:
    visitor = visit()
    response = visitor.page.goto(live_server.url + "/admin/login/")
    assert response is not None
    policy = response.headers["content-security-policy"]

    assert "script-src 'self' 'unsafe-eval'" in policy
    assert "default-src 'self'" in policy
    visitor.sign_in(operator)
    visitor.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.head.append(s) }"
    )
    assert visitor.page.evaluate("window.ran") is None
    assert any("policy violation: script-src" in problem for problem in visitor.problems)
    visitor.problems.clear()  # they were provoked
