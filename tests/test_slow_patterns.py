"""A pattern that takes too long, seen by those who use the site: senders, operators, editors. It is unscored, named and counted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from pytest_django import Settings

from agents.models import Agent, Channel, Run
from correction.interventions import FunctionalPrecondition
from correction.models import CorrectionLog
from evaluation.drafting.admin.propositions import propositions_url
from evaluation.models import EvaluationScore
from tests.api_client import program
from tests.console import plain, queries, read, staff
from tests.correction.gating import configure, join
from tests.correction.interventions.steering import dormant, logs, looked_at
from tests.evaluation.measuring import measured
from tests.evaluation.propositions.console import change, url_of, write
from tests.factories import make_agent, make_channel, say, talk

pytestmark = pytest.mark.django_db

ESCAPED = r"([\u0430-\u044f]+[\u0430-\u044f]+)*$"  # classes written as escapes
SLOW = "д" * 3_000 + "!"


@pytest.fixture(autouse=True)
def _team(settings: Settings, tmp_path: Path) -> None:
    for name in ("shipped", "team"):
        (tmp_path / name).mkdir()
    settings.PROPOSITIONS_DIR, settings.PROPOSITION_DIRS = tmp_path / "shipped", [tmp_path / "team"]
    settings.JUDGE_MODEL = "offline:lexical-1"


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def saved(root: Client, *, name: str = "brief", rule: str = "", supports: str = "") -> None:
    """A proposition of Ada's, written in the console as YAML."""
    fields: dict[str, Any] = {"id": name, "claim": "{{agent_name}} is brief"}
    if rule:
        fields["rule"] = yaml.safe_load(rule)
    if supports:
        fields["cues"] = {"supports": [supports]}
    assert "is saved" in plain(write(root, url_of("new"), yaml=yaml.safe_dump(fields)))


def test_a_pattern_saved_in_the_console_does_not_stop_those_who_send(root: Client, ada: Agent) -> None:
    saved(root, rule=f"not_matches: '{ESCAPED}x'")
    configure(ada, "adherence")
    channel = join(ada)
    sender = program(staff("agents.view_message", "agents.add_message", "agents.view_agent", "agents.view_channel"))
    begun = time.perf_counter()
    for _ in range(3):
        answer = sender.post(
            "/api/messages/send/", {"agent": "ada", "channel": channel.slug, "text": SLOW + "x"}, format="json"
        )
        assert answer.status_code == 201, answer.content
        assert answer.json()["outcome"] == "unscored_passed"

    assert time.perf_counter() - begun < 20  # three times 0.1 s; without a limit it does not end
    for log in CorrectionLog.objects.prefetch_related("dimension_results"):
        [row] = log.dimension_results.all()
        assert (row.status, row.passed) == ("unscored", True)
        assert row.reason == f"pattern timed out: /{ESCAPED}x/"
    for url in (propositions_url("ada"), url_of("edit", name="brief")):
        shown = plain(read(root, url))
        assert f"The pattern /{ESCAPED}x/ timed out 3 times, last" in shown
    assert "in use" in plain(read(root, propositions_url("ada"))), "nothing is switched off"


@pytest.mark.parametrize(
    "typed",
    [
        {"rule": "matches: (?:a|aa)+$"},
        {"rule": "contains_none: ['/(?:a|aa)+$/']"},
        {"supports": r"/(?:a|aa)+$/"},
    ],
    ids=str,
)
def test_an_evaluation_leaves_it_unscored_and_counts_it(root: Client, ada: Agent, typed: dict[str, str]) -> None:
    saved(root, **typed)
    talk(ada, ["a" * 3_900 + "!", "Fine. aa"])
    measured(ada)

    [row] = EvaluationScore.objects.filter(proposition_id="brief", message__text__startswith="aaa")
    assert (row.status, row.score, row.reason) == ("unscored", None, "pattern timed out: /(?:a|aa)+$/")
    assert "The pattern /(?:a|aa)+$/ timed out 1 time, last" in plain(read(root, propositions_url("ada")))
    tried = change(root, url_of("edit", name="brief"), "_try")
    assert "pattern timed out: /(?:a|aa)+$/" in tried


def test_the_page_asks_once_for_the_counts_of_all_propositions(root: Client, ada: Agent) -> None:
    saved(root, rule="not_matches: x")
    few = len(queries(root, propositions_url("ada")))
    for number in range(5):
        saved(root, name=f"brief-{number}", rule="not_matches: x")

    assert len(queries(root, propositions_url("ada"))) == few


def test_too_slow_a_pattern_keeps_an_intervention_from_firing_and_says_why(ada: Agent) -> None:
    channel: Channel = make_channel("office")
    for _ in range(3):
        say(channel, "Guest", "a" * 3_900 + "!")
    say(channel, "Guest", "I agree.")
    phrases = ["/(?:a|aa)+$/", "i agree"]
    slow = dormant(FunctionalPrecondition.named("mentions", {"phrases": phrases, "at_least": 2}), name="slow")
    sure = dormant(FunctionalPrecondition.named("mentions", {"phrases": phrases, "at_least": 1}), name="sure")
    never = dormant(FunctionalPrecondition.named("mentions", {"phrases": phrases, "at_least": 5}), name="never")
    looked_at(ada, channel, slow, sure, never, run=Run.objects.create(agent=ada, channel=channel))

    found = {log.name: log for log in logs()}
    assert {name: log.fired for name, log in found.items()} == {"slow": False, "sure": True, "never": False}
    assert found["slow"].preconditions[0]["held"] is None
    assert "could not be judged: pattern timed out: /(?:a|aa)+$/" in found["slow"].preconditions[0]["reasoning"]
    assert found["never"].preconditions[0]["held"] is False, "four messages cannot be five"
