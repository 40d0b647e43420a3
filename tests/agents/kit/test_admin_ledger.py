"""The ledger's page: what calls used and cost, never a 0 where the price is not known."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from agents.kit.admin import ledger
from agents.kit.llm import Usage, prices
from agents.kit.models import LLMCall, LLMPayload, ModelPrice
from tests.console import list_of, page_of, read
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


def call(**fields: Any) -> LLMCall:
    defaults = {"role": "judge", "purpose": "evaluation", "provider": "anthropic", "model": "m", "status": "ok"}
    return LLMCall.objects.create(**{**defaults, **fields})


def totals(html: str) -> str:
    found = re.search(r'<p class="pl-totals">(.*?)</p>', html, flags=re.S)
    assert found is not None
    return " ".join(re.sub(r"<[^>]*>", " ", found.group(1)).split())


def test_a_call_without_a_price_is_unpriced(root: Client) -> None:
    unpriced = call(input_tokens=1200, output_tokens=3)

    for url in (list_of(LLMCall), page_of(unpriced)):
        html = read(root, url)
        assert "unpriced" in html
        assert "$0" not in html


def test_the_totals_are_those_of_the_filtered_calls(root: Client) -> None:
    ada = make_agent()
    tokens = {"input_tokens": 1000, "output_tokens": 200, "cache_read_tokens": 30, "cache_write_tokens": 4}
    call(agent=ada, cost_usd=Decimal("0.25"), **tokens)
    call(agent=ada, input_tokens=1, cost_usd=None, status="timeout")
    call(input_tokens=5000, cost_usd=Decimal("1.5"))

    assert totals(read(root, list_of(LLMCall))) == "3 calls 6,235 tokens $1.75 + 1 unpriced"
    assert (
        totals(read(root, list_of(LLMCall, f"?agent__id__exact={ada.pk}")))
        == "2 calls 1,235 tokens $0.2500 + 1 unpriced"
    )
    assert totals(read(root, list_of(LLMCall, "?status__exact=timeout"))) == "1 calls 1 tokens unpriced"


def test_totals_over_very_many_calls_are_not_computed(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "TOTALLED_ROWS", 3)
    for number in range(4):
        call(work_id=f"evaluation_run:{number}")

    assert totals(read(root, list_of(LLMCall))).startswith("More than 3 calls")
    assert totals(read(root, list_of(LLMCall, "?work_id=evaluation_run:2"))).startswith("1 calls")


def test_filters_offer_what_the_newest_calls_have(root: Client) -> None:
    call(purpose="evaluation", model="large")
    call(purpose="gate", model="small", work_id="evaluation_run:7")
    html = read(root, list_of(LLMCall))

    for choice in ("evaluation", "gate", "large", "judge", "evaluation_run:7"):
        assert f'<option value="{choice}"' in html
    narrowed = read(root, list_of(LLMCall, "?purpose=gate"))
    assert "small" in re.sub(r"<a href=.*?</a>", "", narrowed, flags=re.S)
    assert totals(narrowed).startswith("1 calls")


def test_prices_can_be_edited_and_count_at_once(root: Client) -> None:
    price = ModelPrice.objects.create(
        model="m", effective_from="2026-10-01", input_usd=1, output_usd=2, cache_write_usd=1, cache_read_usd=1
    )
    sent = {
        "model": "m", "effective_from": "2026-10-01", "input_usd": "0.5", "output_usd": "2", "cache_write_usd": "1",
        "cache_read_usd": "1", "long_prompt_factor": "1", "batch_factor": "0.5",
        "source": "the vendor's page",
    }  # fmt: skip

    assert prices.cost("m", Usage(1_000_000, 0), day=date(2026, 11, 1)) == 1
    assert root.post(page_of(price), sent).status_code == 302
    assert prices.cost("m", Usage(1_000_000, 0), day=date(2026, 11, 1)) == Decimal("0.5")
    price.refresh_from_db()
    assert (price.input_usd, price.source) == (Decimal("0.5"), "the vendor's page")


def test_a_stored_reply_shows_the_tools_it_wanted_to_use(root: Client) -> None:
    acted = call(role="actor", purpose="turn")
    LLMPayload.objects.create(
        call=acted,
        request={},
        reply="",
        tool_calls=[{"id": "a", "name": "send_message", "input": {"text": "<b>Hi</b>"}}],
    )

    html = read(root, page_of(acted))
    assert "send_message" in html
    assert "&lt;b&gt;Hi&lt;/b&gt;" in html
