"""Propositions and thresholds in a real browser: a draft is tried, edited and accepted; a typed threshold counts at once and is used."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect
from pytest_django import Settings

from correction.gate.thresholds import mark_result
from correction.models import AgentEvaluationConfig
from evaluation.propositions.files import load_file
from tests.correction.judged_drafts import MODEL, make_log, verdict
from tests.e2e.conftest import Visitor
from tests.e2e.test_product_owner import PATIENCE, work
from tests.factories import MONDAY, make_agent, make_channel, say, talk

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

DRAFT = """\
propositions:
  - id: ada-brief   # hers
    active: false
    claim: "{{agent_name}} is brief"
    rule: {max_words: 4}
    source: "a dry and careful clerk"
"""


def test_a_draft_is_tried_edited_and_accepted(
    visit: Callable[..., Visitor], operator: User, settings: Settings, tmp_path: Path
) -> None:
    shipped, team = tmp_path / "shipped", tmp_path / "team"
    (team / "adherence").mkdir(parents=True)
    shipped.mkdir()
    settings.PROPOSITIONS_DIR, settings.PROPOSITION_DIRS = shipped, [team]
    path = team / "adherence" / "ada.suggestions.yaml"
    path.write_text(DRAFT)
    talk(make_agent(), ["No.", "Not in this office, and never again."])
    visitor = visit(operator, "/admin/evaluation/proposition/ada/change/", width=390, scheme="dark")
    page = visitor.page
    card = page.locator("#proposition-ada-brief")
    card.get_by_role("link", name="Edit or try").click()
    expect(page.locator("#pl-holds")).to_contain_text("Holds in 1 of Ada’s last 2 messages.")
    page.get_by_role("button", name="YAML", exact=True).click()
    page.get_by_role("button", name="Try on 10 messages, without saving").click()
    expect(page.locator("#trial")).to_contain_text("2 scored")
    expect(page.locator("#trial tbody tr").first).to_contain_text("never again")
    assert visitor.fits

    page.get_by_role("button", name="Sentence").click()
    page.get_by_role("spinbutton", name="words").fill("7")
    expect(page.locator("#pl-holds")).to_contain_text("Holds in 2 of Ada’s last 2 messages.")
    assert path.read_text() == DRAFT
    assert visitor.faults() == []
    assert visitor.fits
    page.get_by_role("button", name="Save and accept").click()
    expect(page.get_by_text("ada-brief is saved to")).to_be_visible()
    [found] = load_file(path).propositions
    assert found.rule is not None
    assert found.rule.checks() == {"max_words": 7}
    assert "id: ada-brief   # hers" in path.read_text()
    assert visitor.fits

    card.get_by_text("Retire …").click()
    card.get_by_role("button", name="Retire ada-brief").click()
    expect(card.get_by_role("button", name="Ask it again")).to_be_visible()
    assert load_file(path).propositions == ()


def test_a_sentence_is_typed_counted_saved_and_says_what_drifted_between_two_builds(
    visit: Callable[..., Visitor], operator: User, settings: Settings, tmp_path: Path
) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    settings.PROPOSITION_DIRS = [tmp_path]
    nora = make_agent("nora", system_prompt="You are Nora, a baker. You often say “fresh at seven”. Never say sorry.")
    for number in range(24):
        talk(nora, [f"Loaf {number}, fresh at seven."], channel=make_channel(f"old-{number}"), tags={"build": "40"})
    next_day = MONDAY + timedelta(days=1)  # so that build 41 is the newer one
    for number in range(24):
        channel = make_channel(f"new-{number}")
        talk(nora, [f"Loaf {number}. Sorry."], channel=channel, tags={"build": "41"}, sent_at=next_day)
    visitor = visit(operator, "/admin/evaluation/proposition/nora/change/", width=390)
    page = visitor.page
    expect(page.locator(".pl-offered")).to_contain_text("Nora never says “sorry”")
    page.get_by_role("button", name="Add Nora never says “sorry”").click()
    expect(page.get_by_text("nora-never-says-sorry is saved to")).to_be_visible()
    page.get_by_role("link", name="New proposition").click()
    count = page.locator("#pl-holds")
    page.get_by_role("textbox", name="words or phrases").nth(1).press_sequentially("fresh at s", delay=20)
    expect(count).to_contain_text("In 0 of Nora’s last 48 messages")
    page.get_by_role("textbox", name="words or phrases").nth(1).press_sequentially("even")
    expect(count).to_contain_text("In 24 of Nora’s last 48 messages, 5 of 10; it asks for 5 of 10.")
    expect(count.get_by_role("listitem")).to_have_count(3)
    assert visitor.faults() == []
    page.keyboard.press("Enter")
    expect(page.get_by_text("is saved to adherence/nora.yaml")).to_be_visible()
    assert visitor.faults() == []
    assert [found.of_ten for found in load_file(tmp_path / "adherence" / "nora.yaml").propositions] == [None, 5]

    page.get_by_role("link", name="Evaluate build=40 and build=41, to compare them").click()
    page.get_by_role("button", name="Evaluate now").click()
    expect(page.get_by_text("Being evaluated")).to_be_visible(timeout=PATIENCE)
    work()
    expect(page.get_by_role("heading", name="Every proposition")).to_be_visible(timeout=PATIENCE)
    for claim in ("Nora never says “sorry”", "Nora says one of “fresh at seven” in at least 5 of 10 messages"):
        expect(page.get_by_role("row").filter(has_text=claim).first).to_contain_text("drifted")


def test_a_typed_threshold_counts_at_once_with_its_messages_and_is_saved(
    visit: Callable[..., Visitor], operator: User, settings: Settings
) -> None:
    settings.JUDGE_MODEL = MODEL
    ada, channel = make_agent(), make_channel("den")
    for score in (2.0, 4.5, 6.0, 6.4, 8.0, 1.0):
        log = make_log(
            ada,
            {"adherence": score, "fluency": 1.0 if score == 8 else 9.0},
            message=say(channel, ada, f"Remark {score}."),
        )
    mark_result(result=verdict(log), mark="right", user=None)
    visitor = visit(
        operator, f"/admin/correction/agentevaluationconfig/target/{ada.pk}/gate/", width=390, scheme="dark"
    )
    page = visitor.page
    panel = page.locator("#threshold-adherence")
    expect(panel).to_contain_text("3 of 6 (50 %) scored messages would have been sent back.")
    panel.get_by_label("Lowest score that passes, 0 to 9").fill("6.4")
    expect(panel).to_contain_text("4 of 6 (67 %) scored messages would have been sent back.")
    expect(panel).to_contain_text("1 of 1 marked alarms below it were right, 100 % (95 % interval 21 to 100 %)")
    panel.get_by_label("Lowest score that passes, 0 to 9").fill("12")
    expect(panel.get_by_role("alert")).to_have_text("0 to 9, with one decimal place")
    panel.get_by_label("Lowest score that passes, 0 to 9").fill("4")
    expect(panel.get_by_role("alert")).to_be_hidden()
    expect(page.locator("[data-total]")).to_have_text("2 of 6 (33 %)")
    page.get_by_label("Check fluency").check()
    expect(page.locator("[data-total]")).to_have_text("3 of 6 (50 %)")
    expect(page.get_by_role("link", name="Remark 8.0.")).to_be_visible()
    expect(page.get_by_role("link", name="Remark 4.5.")).to_be_hidden()
    assert visitor.fits

    page.get_by_role("radio", name="Enforce").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Drafts that fail adherence, fluency are sent back from now on.")).to_be_visible()
    assert AgentEvaluationConfig.objects.get(agent=ada).gate_adherence_threshold == Decimal("4.0")
    page.locator("#changes").get_by_role("button", name="Undo").click()
    expect(page.get_by_text("The gate is off: no draft is checked from now on.")).to_be_visible()
    assert AgentEvaluationConfig.objects.get(agent=ada).gate_adherence_threshold is None
