"""A judge that answered otherwise on the two that are compared is named, and compared all the same."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from agents.models import Agent, Message
from evaluation.judge.identity import JudgeIdentity, judge_changed, prompt_digest
from evaluation.models import EvaluationRun
from tests.console import page_of, plain, read
from tests.evaluation.ci.building import baseline, report, two_builds
from tests.evaluation.ci.building import run as evaluated
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers
from tests.factories import MONDAY
from tests.llm_server import LLMServer

NAMED = "the judge answered as claude-a before and as claude-b now: differences may be the judge's"


@pytest.mark.parametrize(
    ("before", "now", "sentence"),
    [
        ([{"served_model": "a"}], [{"served_model": "a"}], ""),
        ([], [{"served_model": "a"}], ""),
        ([{"served_model": ""}], [{"served_model": "a"}], ""),
        ([{"served_model": "a"}], [{"served_model": "b"}], "answered as a before and as b now"),
        ([{"served_model": "a"}], [{"served_model": "a"}, {"served_model": "b"}], "as a before and as a and b now"),
        ([{"since": None}], [{"since": MONDAY}], "by its sentinel the judge changed"),
        ([{"since": MONDAY}], [{"since": MONDAY}], ""),
        ([], [{"since": MONDAY}], ""),
        ([{"prompt_digest": "1"}], [{"prompt_digest": "2"}], "with the prompts 1 before and with the prompts 2 now"),
        (
            [{"endpoint": "u", "served_model": "a"}],
            [{"endpoint": "v", "served_model": "a"}],
            "at u before and at v now",
        ),
    ],
)
def test_only_what_is_known_and_differs_is_named(before: list[Any], now: list[Any], sentence: str) -> None:
    said = judge_changed([JudgeIdentity(**one) for one in before], [JudgeIdentity(**one) for one in now])

    assert sentence in said
    assert bool(said) == bool(sentence)


@pytest.mark.parametrize("beside", ["ideas_quantity", "fluency"])
def test_the_prompts_of_convergence_do_not_depend_on_what_is_measured_beside_it(beside: str) -> None:
    alone = prompt_digest("a-model", method="plumbline", double_check=False, dimensions=["convergence"])
    both = prompt_digest("a-model", method="plumbline", double_check=False, dimensions=["convergence", beside])

    assert both == alone


@pytest.fixture
def ada(propositions: PropositionFolder, llm_server: LLMServer) -> Agent:
    """Measured in build 40, by a judge that answers as another model from now on."""
    agent = two_builds(propositions)
    for message in Message.objects.filter(channel__slug="ada-41"):
        message.sent_at = message.said_at + timedelta(days=1)
        message.save()
    scores = answers(lambda claim: 7)
    llm_server.respond = lambda body: {**scores(body), "model": "claude-a"}
    baseline("--dimensions", "adherence")
    llm_server.respond = lambda body: {**scores(body), "model": "claude-b"}
    return agent


@pytest.mark.django_db
def test_commands_name_it(ada: Agent) -> None:
    document = report("--where", "build=41", "--dimensions", "adherence")
    (entry,) = document["runs"]
    out = io.StringIO()
    call_command("compare", "--agents", "ada", "--dimensions", "adherence", "--json", stdout=out)

    assert NAMED in entry["baseline_notes"]
    assert entry["judged_by"][0]["served_model"] == "claude-b"
    assert (document["summary"]["verdict"], document["summary"]["compared"]["dimensions"]) == ("pass", 1)
    assert NAMED in json.dumps(json.loads(out.getvalue()))
    assert NAMED in " ".join(evaluated("--where", "build=41", "--dimensions", "adherence")[1].split())


@pytest.mark.django_db
def test_a_baseline_in_a_file_says_who_judged_it(ada: Agent, llm_server: LLMServer, tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps(report("--where", "build=41", "--dimensions", "adherence")))
    scores = answers(lambda claim: 7)
    llm_server.respond = lambda body: {**scores(body), "model": "claude-c"}

    (entry,) = report("--where", "build=40", "--dimensions", "adherence", "--baseline", str(file))["runs"]

    assert any("as claude-b before and as claude-" in note for note in entry["baseline_notes"])


@pytest.mark.django_db
def test_pages_name_it(ada: Agent, root: Client) -> None:
    report("--where", "build=41", "--dimensions", "adherence")
    newest = EvaluationRun.objects.first()
    compare = reverse("admin:evaluation_evaluationrun_compare")
    assert newest is not None

    for url in (
        reverse("admin:evaluation_drift_overview"),
        f"{compare}?agent=ada&candidate={newest.pk}",
        page_of(ada),
    ):
        assert "answered as claude-a before and as claude-b now" in plain(read(root, url)), url
