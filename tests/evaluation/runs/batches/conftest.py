"""A judge that takes batches, and an agent to be judged."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import pytest
from pytest_django import Settings

from agents.kit.llm import prices
from agents.kit.models import ModelPrice
from tests.batch_server import BatchServer
from tests.evaluation.judging import answers


@pytest.fixture
def server(settings: Settings) -> Iterator[BatchServer]:
    """A judge that gives every claim a value that depends on its words."""
    with BatchServer() as running:
        settings.JUDGE_BASE_URL, settings.JUDGE_MODEL = running.url, "test-model"
        settings.ANTHROPIC_API_KEY = "sk-test-secret"
        settings.LLM_BATCH_POLL_SECONDS = 0
        running.respond = answers(lambda text: len(text) % 10)
        yield running


@pytest.fixture
def price(db: None) -> ModelPrice:
    """The judge's: a dollar for a million tokens in, two for a million out."""
    made: ModelPrice = ModelPrice.objects.create(
        model="test-model",
        effective_from=date(2026, 1, 1),
        input_usd=1,
        output_usd=2,
        cache_write_usd=1,
        cache_read_usd=1,
    )
    prices.forget_prices()
    return made
