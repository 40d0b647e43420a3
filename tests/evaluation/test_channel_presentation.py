"""What people see of channels in an agent's evaluation: command, export, console."""

from __future__ import annotations

import io
import json
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.test import Client

from agents.models import Agent
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.execute import capture
from evaluation.runs.spec import RunSpec
from tests.evaluation.channel_cast import captured, gather
from tests.factories import MONDAY, make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def cast(llm_server: LLMServer) -> dict[str, Agent]:
    return gather(llm_server)


# -- what people see
def command(*arguments: str) -> str:
    out = io.StringIO()
    call_command("capture_baseline", *arguments, stdout=out)
    return out.getvalue()


def test_json_names_the_channels(cast: dict[str, Agent]) -> None:
    document = json.loads(command("--agents", "ada,bea", "--dimensions", "convergence,ideas_quantity", "--json"))

    assert [run["channel"] for run in document["channels"]] == ["one", "two"]
    ada = document["runs"][0]["dimensions"]
    assert [c["channel"] for c in ada["convergence"]["channels"]] == ["one", "two"]
    assert (ada["ideas_quantity"]["count"], "score" in ada["ideas_quantity"]) == (4, False)
    one = document["channels"][0]["dimensions"]
    assert one["convergence"]["figures"]["pairs"][0][:2] == ["ada", "bea"]
    assert [idea["idea"] for idea in one["ideas_quantity"]["ideas"]] == ["a pond", "a boat"]


def test_a_dry_run_counts_each_channel_once(llm_server: LLMServer, cast: dict[str, Agent]) -> None:
    asked = ("--dimensions", "fluency,convergence", "--no-simulate", "--dry-run")
    document = json.loads(command("--agents", "ada,bea", "--json", *asked))

    assert [(c["channel"], c["calls"]) for c in document["channels"]] == [("one", 1), ("two", 1)]
    assert [(a["agent"], a["calls"]) for a in document["agents"]] == [("ada", 1), ("bea", 1)]
    assert "#one" in command("--agents", "ada", "--dimensions", "convergence", "--no-simulate", "--dry-run")
    assert llm_server.calls == 0


def test_exports_hold_the_channels_too(cast: dict[str, Agent], capsys: pytest.CaptureFixture[str]) -> None:
    captured([cast["bea"]], "fluency", "convergence", "ideas_quantity")

    call_command("export_scores", "--format", "jsonl", "--agents", "bea")

    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(row["agent"], row["channel"], row["dimension"]) for row in rows} == {
        ("bea", None, "fluency"),
        (None, "one", "convergence"),
        (None, "one", "ideas_quantity"),
    }
    assert [row["count"] for row in rows if row["dimension"] == "ideas_quantity"] == [2]


def test_the_console_shows_channels_ideas_and_pairs(cast: dict[str, Agent], root: Client) -> None:
    (found,) = captured([cast["bea"]], "fluency", "convergence", "ideas_quantity")
    channel_run = EvaluationRun.objects.get(channel__slug="one")

    agents_page = root.get(f"/admin/evaluation/evaluationrun/{found.summary.run.pk}/change/").content.decode()
    page = root.get(f"/admin/evaluation/evaluationrun/{channel_run.pk}/change/").content.decode()
    scores = root.get("/admin/evaluation/evaluationscore/").content.decode()

    assert f"/admin/evaluation/evaluationrun/{channel_run.pk}/change/" in agents_page
    assert "Messages of the agent" in agents_page
    for words in ("a pond", "a boat", "Whose words are most alike", "ada", "bea"):
        assert words in page
    assert "the whole conversation" in scores


def test_the_console_shows_both_messages_of_a_pair(llm_server: LLMServer, root: Client) -> None:
    ada, office = make_agent("ada"), make_channel()
    talk(ada, ["It was always so."], channel=office)
    talk(ada, ["It is new."], channel=office, sent_at=MONDAY + timedelta(days=1))
    capture([RunSpec(agent=ada, dimensions=("consistency",))])
    score = EvaluationScore.objects.filter(dimension="consistency")[0]

    listed = root.get("/admin/evaluation/evaluationscore/").content.decode()
    page = root.get(f"/admin/evaluation/evaluationscore/{score.pk}/change/").content.decode()

    assert "against" in listed
    for text in ("It was always so.", "It is new."):
        assert text in page
