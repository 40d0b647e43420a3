"""Cancelling an evaluation in the console, and having it go on."""

from __future__ import annotations

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from agents.models import Agent
from evaluation.models import ChannelShare, EvaluationRun
from tests.console import page_of, read
from tests.evaluation.judged import make_run, make_score
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def page(run: EvaluationRun) -> str:
    return page_of(run)


def url(run: EvaluationRun, act: str) -> str:
    return page(run).replace("/change/", f"/{act}/")


def offered(client: Client, run: EvaluationRun) -> list[str]:
    """Labels of the buttons on the run's page, each inside of a form that carries the token."""
    html = read(client, page(run))
    found = re.findall(rf'formaction="{url(run, "(?:cancel|resume)")}" formnovalidate>([^<]*)<', html)
    if found:
        form = html[html.index('id="evaluationrun_form"') : html.index("formaction=")]
        assert "csrfmiddlewaretoken" in form
        assert "</form>" not in form
    return found


def press(client: Client, run: EvaluationRun, act: str) -> str:
    html: str = client.post(url(run, act), follow=True).content.decode()
    run.refresh_from_db()
    return html


def test_a_run_is_cancelled_and_goes_on(root: Client, ada: Agent) -> None:
    run = make_run(ada, status="running", lease_owner="worker:1:x")
    make_score(run, 3)
    assert offered(root, run) == ["Cancel"]

    press(root, run, "cancel")
    assert (run.status, run.scores.count()) == ("cancelled", 1)
    assert offered(root, run) == ["Resume"]

    press(root, run, "resume")
    assert (run.status, run.error) == ("pending", "")
    done = LogEntry.objects.filter(object_id=str(run.pk)).order_by("pk")
    assert [entry.change_message for entry in done] == ["cancel pressed", "resume pressed"]


@pytest.mark.parametrize(
    ("status", "labels"),
    [
        ("pending", ["Cancel"]),
        ("paused_budget", ["Cancel"]),
        ("failed", ["Resume"]),
        ("errored", ["Resume"]),
        ("completed", []),
    ],
)
def test_only_what_is_possible_is_offered(root: Client, ada: Agent, status: str, labels: list[str]) -> None:
    assert offered(root, make_run(ada, status=status)) == labels


def test_a_completed_run_with_something_left_to_judge_can_resume(root: Client, ada: Agent) -> None:
    judge_failed = make_run(ada)
    make_score(judge_failed, None, reason="timeout: no answer")
    channel_failed = make_run(ada)
    ChannelShare.objects.create(agent_run=channel_failed, channel_run=make_run(status="failed"), messages=1)

    assert offered(root, judge_failed) == offered(root, channel_failed) == ["Resume"]


def test_what_is_not_possible_any_more_is_said(root: Client, ada: Agent) -> None:
    run = make_run(ada, status="completed")

    html = press(root, run, "cancel")

    assert f"evaluation {run.pk} is completed" in html
    assert run.status == "completed"
    assert not LogEntry.objects.exists()
