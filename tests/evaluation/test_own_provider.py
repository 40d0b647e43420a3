"""A provider that nobody here knows, whose module is the only thing that was added."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from agents.kit.llm import Status, complete, providers
from agents.kit.llm.providers import batch_problem, is_priced, is_remote
from agents.kit.llm.providers.base import LONGEST_NAME
from agents.kit.models import LLMCall
from agents.kit.ops.health import CHECKS
from evaluation.models import EvaluationRun
from evaluation.runs.estimate import estimate
from tests.agents.kit.llm.asking import judge_request
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.measuring import measured, spec, statuses, three_kinds
from tests.llm_server import LLMServer, example_of
from tests.without import ROOT

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def plain(llm_server: LLMServer, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add the provider's module to the package, and have the judge be a model of it."""
    shutil.copy(ROOT / "tests/recipes/plain.py", tmp_path / "plain.py")
    monkeypatch.setattr(providers, "__path__", [*providers.__path__, str(tmp_path)])
    providers.providers.cache_clear()
    settings.JUDGE_MODEL = "plain:toy"
    llm_server.respond = answer
    yield
    providers.providers.cache_clear()
    sys.modules.pop("agents.kit.llm.providers.plain", None)


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """Answer as a server of this provider does, with an object that fits the schema."""
    return {"raw": json.dumps({"reply": json.dumps(example_of(body["schema"])), "tokens": [100, 10]})}


def test_a_judge_of_a_new_provider_measures_an_agent(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    agent = three_kinds(propositions)
    assert estimate(spec(agent)).cost_usd is None, "unpriced"
    measured(agent)

    run = EvaluationRun.objects.get()
    assert run.status == EvaluationRun.Status.COMPLETED
    assert statuses(run) == {"scored": 3}
    assert llm_server.paths == ["/ask"] * llm_server.calls
    (call,) = LLMCall.objects.all()
    assert (call.provider, call.model, call.status) == ("plain", "plain:toy", "ok")
    assert (call.input_tokens, call.output_tokens, call.cost_usd) == (100, 10, None), "unpriced"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"status": 529}, Status.UNAVAILABLE),
        ({"status": 429}, Status.RATE_LIMITED),
        ({"status": 403}, Status.REJECTED),
        ({"drop": True}, Status.UNAVAILABLE),
        ({"hang": True}, Status.TIMEOUT),
        ({"raw": "<html>"}, Status.REJECTED),
        ({"raw": "{}"}, Status.REJECTED),
        ({"raw": '{"reply": "seven"}'}, Status.MALFORMED),
    ],
)
def test_what_goes_wrong_at_a_new_provider_is_a_value(llm_server: LLMServer, sent: Any, status: Status) -> None:
    llm_server.reply(**sent)

    assert complete(judge_request(), deadline=2.0).status is status


def test_a_provider_whose_name_the_ledger_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    column = LLMCall._meta.get_field("provider")
    assert column.max_length == LONGEST_NAME
    monkeypatch.setattr(import_module("agents.kit.llm.providers.plain").PROVIDER, "name", "p" * (LONGEST_NAME + 1))
    providers.providers.cache_clear()

    with pytest.raises(ValueError, match="longer than 16 characters"):
        is_remote("plain:toy")


def test_a_new_provider_is_known_wherever_a_model_is_asked_about(settings: Settings) -> None:
    assert is_remote("plain:toy")
    assert is_priced("plain:toy")
    assert "takes no batches" in batch_problem("plain:toy")
    assert CHECKS["judge"]() == ""
    settings.JUDGE_BASE_URL = ""
    assert complete(judge_request()).error == "no server is set: set JUDGE_BASE_URL"
