"""What tokens cost: dated prices, seeded from ``prices.yaml``, stored as `ModelPrice` rows. Unknown is None, never 0."""

from __future__ import annotations

import re
import time
from datetime import date
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from django.apps import apps

from agents.kit.llm.providers import is_priced, provider_of
from agents.kit.llm.requests import Usage
from agents.kit.models import ModelPrice

SEED_FILE = Path(__file__).with_name("prices.yaml")
CACHE_SECONDS = 60.0
PER_MILLION = Decimal(1_000_000)
DOLLARS = Decimal("0.00000001")  # the ledger's eight decimals
_DATED_NAME = re.compile(r"[-@]20\d\d-?\d\d-?\d\d(-v\d+:\d+)?$")  # also as OpenAI, Vertex and Bedrock write it

_cache: tuple[float, dict[str, list[ModelPrice]]] | None = None


def cost(model: str, usage: Usage, *, day: date, served_model: str = "", batch: bool = False) -> Decimal | None:
    """Return the cost of one call in US dollars, or None when its price or its tokens are not known; models of this process cost 0.

    The price is that of the model asked for; where it has none, of the one that the provider's server says it used. Its factors for
    long prompts and for batches apply.
    Cache reads and writes that a server does not report count as none: only servers that bill caching report it.
    """
    if not is_priced(model):
        return Decimal(0)
    price = price_on(model, day)
    if price is None and served_model:
        price = price_on(provider_of(model).full_name(served_model), day)
    if price is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    written, read = usage.cache_write_tokens or 0, usage.cache_read_tokens or 0
    dollars = (
        usage.input_tokens * price.input_usd
        + usage.output_tokens * price.output_usd
        + written * price.cache_write_usd
        + read * price.cache_read_usd
    ) / PER_MILLION
    if price.long_prompt_tokens is not None and usage.input_tokens + written + read > price.long_prompt_tokens:
        dollars *= price.long_prompt_factor
    if batch:
        dollars *= price.batch_factor
    return dollars.quantize(DOLLARS)


def price_on(model: str, day: date) -> ModelPrice | None:
    """Return the price of `model` in force on `day`; a dated name (``…-20251001``) falls back to the name without its date."""
    prices = _all_prices()
    for name in (model, _DATED_NAME.sub("", model)):
        for price in prices.get(name, ()):  # newest first
            if price.effective_from <= day:
                return price
    return None


def forget_prices() -> None:
    """Read the prices again on the next call; otherwise a change is seen within a minute."""
    global _cache
    _cache = None


def _all_prices() -> dict[str, list[ModelPrice]]:
    """Return the prices by model, newest first, read from the database once in CACHE_SECONDS."""
    global _cache
    cached = _cache
    if cached is None or time.monotonic() - cached[0] > CACHE_SECONDS:
        prices: dict[str, list[ModelPrice]] = {}
        for price in ModelPrice.objects.order_by("model", "-effective_from"):
            prices.setdefault(price.model, []).append(price)
        cached = _cache = time.monotonic(), prices
    return cached[1]


@lru_cache(maxsize=1)
def seed_rows() -> tuple[dict[str, Any], ...]:
    """Return the rows of ``prices.yaml``, with money as `Decimal`."""
    rows = []
    for row in yaml.safe_load(SEED_FILE.read_text(encoding="utf-8")):
        money = {name: Decimal(str(value)) for name, value in row.items() if name.endswith(("_usd", "_factor"))}
        rows.append({**row, **money})
    return tuple(rows)


def has_seed_price(model: str) -> bool:
    """Return whether ``prices.yaml`` prices `model`; offline and replay cost nothing."""
    names = {row["model"] for row in seed_rows()}
    return not is_priced(model) or bool({model, _DATED_NAME.sub("", model)} & names)


def seed_prices(**kwargs: Any) -> None:
    """Add the rows of ``prices.yaml`` that are missing, after migrate and flush. A row that was changed is left alone."""
    try:
        model = kwargs.get("apps", apps).get_model(ModelPrice._meta.label)  # flush names none
    except LookupError:  # migrated back to before the table
        return
    model.objects.using(kwargs["using"]).bulk_create([model(**row) for row in seed_rows()], ignore_conflicts=True)
    forget_prices()
