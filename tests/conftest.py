"""Fixtures for every test."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest
import sentry_sdk
from django.core.cache import cache
from pytest_django import Settings

from agents.llm import endpoints, prices
from tests.llm_server import LLMServer
from tests.tracing import Caught

# On a busy machine an example may take long; that is no defect of what is tested.
hypothesis.settings.register_profile(
    "plumbline", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("plumbline")


@pytest.fixture(autouse=True)
def _nothing_remembered(settings: Settings) -> None:
    """What a process remembers of servers and prices must not pass from one test to the next; nor may a developer's own files."""
    settings.PROPOSITION_DIRS = []
    cache.clear()  # how often somebody asked for what costs money
    endpoints.forget()
    prices.forget_prices()


@pytest.fixture
def llm_server(settings: Settings) -> Iterator[LLMServer]:
    """A loopback server that speaks the Messages API; judge and actor are set to use it."""
    with LLMServer() as server:
        settings.JUDGE_BASE_URL = settings.ACTOR_BASE_URL = server.url
        settings.JUDGE_MODEL = settings.ACTOR_MODEL = "test-model"
        settings.ANTHROPIC_API_KEY = "sk-test-secret"
        yield server


@pytest.fixture
def sentry() -> Iterator[Caught]:
    """Sentry as the settings start it, but for the transport; put back as it was afterwards."""
    before, caught = sentry_sdk.get_client(), Caught()
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1",
        transport=caught,
        traces_sample_rate=1.0,
        include_local_variables=False,
        default_integrations=False,  # they patch other libraries for good
        auto_enabling_integrations=False,
    )
    yield caught
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(before if before.is_active() else None)
