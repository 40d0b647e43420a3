"""Dated prices: which one counts on which day, and what happens when none is known."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command

from agents.kit.llm import Usage, prices
from agents.kit.models import ModelPrice

pytestmark = pytest.mark.django_db

NOVEMBER = date(2026, 11, 21)


def price(day: date, dollars: str, **fields: Any) -> None:
    ModelPrice.objects.create(
        model=fields.pop("model", "m"),
        effective_from=day,
        input_usd=Decimal(dollars),
        output_usd=Decimal(0),
        cache_write_usd=Decimal(0),
        cache_read_usd=Decimal(0),
        **fields,
    )


def million(model: str, day: date, **fields: Any) -> Decimal | None:
    return prices.cost(model, Usage(input_tokens=1_000_000, output_tokens=0), day=day, **fields)


@pytest.mark.parametrize(
    ("day", "dollars"),
    [
        (date(2025, 12, 31), None),
        (date(2026, 6, 30), Decimal(3)),
        (date(2026, 7, 1), Decimal(2)),
    ],
)
def test_the_newest_price_in_force_on_the_day_counts(day: date, dollars: Decimal | None) -> None:
    price(date(2026, 1, 1), "3")
    price(date(2026, 7, 1), "2")

    assert million("m", day) == dollars


def test_a_dated_model_name_has_the_price_of_the_undated_name() -> None:
    price(date(2026, 1, 1), "3")

    for date_in_name in ("-20260301", "-2026-03-01", "@20260301", "-20260301-v1:0"):
        assert million(f"m{date_in_name}", NOVEMBER) == 3
    for version in ("-2", "-v1:0", "-2026"):
        assert million(f"m{version}", NOVEMBER) is None


def test_an_alias_has_the_price_of_the_model_that_served_it() -> None:
    price(date(2026, 1, 1), "3")

    assert million("alias", NOVEMBER, served_model="m-20260301") == 3


def test_a_long_prompt_costs_its_factor_for_all_its_tokens() -> None:
    price(date(2026, 1, 1), "1", long_prompt_tokens=100, long_prompt_factor=Decimal(5))

    def cost(usage: Usage) -> Decimal | None:
        return prices.cost("m", usage, day=NOVEMBER)

    assert cost(Usage(100, 1)) == Decimal("0.0001")
    assert cost(Usage(101, 1)) == 5 * Decimal("0.000101")
    assert cost(Usage(100, 1, cache_read_tokens=1)) == 5 * Decimal("0.0001")
    assert cost(Usage(100, 1, cache_write_tokens=1)) == 5 * Decimal("0.0001")


@pytest.mark.parametrize("usage", [Usage(input_tokens=1), Usage(output_tokens=1)])
def test_tokens_nobody_counted_have_no_cost(usage: Usage) -> None:
    price(date(2026, 1, 1), "1")

    assert prices.cost("m", usage, day=NOVEMBER) is None


@pytest.mark.parametrize("model", ["offline:lexical-1", "replay:/tmp/answers.jsonl"])
def test_offline_and_replay_cost_nothing(model: str) -> None:
    assert prices.cost(model, Usage(), day=NOVEMBER) == 0


@pytest.mark.parametrize(
    ("model", "usage", "dollars"),
    [
        ("claude-haiku-5-5", Usage(200_000, 1000), "0.1025"),
        ("claude-haiku-4-5", Usage(1000, 1000, 1000, 1000), "0.00735"),
    ],
)
def test_the_seeded_prices_are_those_that_are_published(model: str, usage: Usage, dollars: str) -> None:
    assert prices.cost(model, usage, day=NOVEMBER) == Decimal(dollars)


def test_migrating_again_adds_missing_rows_and_changes_none() -> None:
    ModelPrice.objects.filter(model="claude-haiku-4-5").delete()
    ModelPrice.objects.filter(model="claude-haiku-5-5").update(input_usd=Decimal(9))

    call_command("migrate", verbosity=0)

    assert ModelPrice.objects.filter(model="claude-haiku-4-5").count() == 1
    assert ModelPrice.objects.get(model="claude-haiku-5-5").input_usd == 9
