"""What changed is stored once, when an evaluation ends; pages, command, API and CI say the same of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from agents.models import Agent, Message
from evaluation.calibration.models import JudgeCalibration
from evaluation.change.evidence import JudgeAndProcedure, judged_ways
from evaluation.change.models import Baseline, Change
from evaluation.change.overview import drift_overview
from evaluation.change.stored import current_changes, refresh_changes, store_ended
from evaluation.models import EvaluationRun
from tests.api_client import BASELINES, program
from tests.console import superuser
from tests.evaluation.change.measured import capture, drift_of, flattened, measure
from tests.evaluation.change.test_compare_command import document
from tests.evaluation.ci.building import report
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import LLM, make_baseline
from tests.factories import MONDAY, make_agent, make_channel, talk

pytestmark = pytest.mark.django_db

WAY = JudgeAndProcedure(judge=LLM, procedure="plumbline")
STEADY = [7, 8] * 8
CLAIMS = """
dimension: adherence
propositions:
  - {id: stock, claim: "{{agent_name}} is a stock assistant", inverted: true, cues: {supports: [dear customer], contradicts: [my friend]}}
  - {id: brief, claim: "{{agent_name}} is brief", rule: {max_words: 4}}
  - {id: sober, claim: "{{agent_name}} is sober", rule: {max_words: 40}}
  - {id: calm, claim: "{{agent_name}} is calm", rule: {contains_none: ["!"]}}
"""
FLUENCY = """
dimension: fluency
propositions:
  - {id: formulas, claim: "{{agent_name}} has no formulas", measure: phrases}
"""


# -- one function, read everywhere
@pytest.fixture
def two_builds(propositions: PropositionFolder, settings: Settings) -> dict[str, Any]:
    """What `evaluate --json` says of a build in which hits, a rule and the words changed."""
    settings.JUDGE_MODEL = "offline:lexical-1"
    propositions.write("adherence/_default.yaml", CLAIMS)
    propositions.write("fluency/_default.yaml", FLUENCY)
    nora = make_agent("nora")
    for day, (greeting, ending) in enumerate((("My friend", "."), ("Dear customer", ", and once more!"))):
        texts = [f"{greeting if n % 3 else 'Hello'} w{n}a{ending if n % 4 else '.'}" for n in range(24)]
        at = MONDAY + timedelta(days=day)
        talk(nora, texts, channel=make_channel(f"nora-{day}"), tags={"build": str(day)}, sent_at=at)
    asked = ("--agents", "nora", "--samples", "100", "--dimensions", "adherence,fluency")
    call_command("capture_baseline", *asked, "--where", "build=0", "--no-simulate", "--json", stdout=StringIO())
    return report(*asked, "--where", "build=1")


@pytest.mark.usual_minimum
def test_the_page_the_command_the_api_and_ci_say_the_same(two_builds: dict[str, Any]) -> None:
    drift = drift_overview([Agent.objects.get(slug="nora")], judged_ways()[0]).drifts[0]
    page = {(d.dimension, ""): d.model_dump(mode="json") for d in drift.dimensions}
    page |= {(row.dimension, row.proposition): row.result.model_dump(mode="json") for row in drift.propositions}
    _, command = document("--agents", "nora")
    answer = program(superuser("eve")).get(f"{BASELINES}nora/compare/").json()
    ci = {}
    for name, entry in two_builds["runs"][0]["dimensions"].items():
        shown = {"candidate": entry["comparable_score"], "coverage": entry["coverage"], "hits": None}
        ci[name] = {**shown, **entry, "propositions": entry["changes"]}

    assert {figures["verdict"] for figures in page.values()} == {"drifted", "not enough data"}
    for dimensions in (command["comparisons"][0]["dimensions"], answer["comparison"]["dimensions"], ci):
        assert _by_name(dimensions, like=page) == page


def _by_name(dimensions: dict[str, Any], *, like: dict[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    """The changes of a document by dimension and proposition, with the figures that these others have."""
    changes: dict[tuple[str, str], Any] = {}
    for name, dimension in dimensions.items():
        changes |= {(name, proposition): change for proposition, change in dimension["propositions"].items()}
        changes[name, ""] = dimension
    return {key: {name: changes[key][name] for name in figures} for key, figures in like.items()}


def test_many_agents_take_as_many_statements_as_one() -> None:
    agents = [make_agent(f"agent-{n}") for n in range(6)]
    for agent in agents:
        flattened(agent)

    def statements(some: list[Agent]) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert len(drift_overview(some, WAY).drifts) == len(some)
        return len(captured)

    assert statements(agents) == statements(agents[:1])
    assert statements(agents) <= 7


# -- which rows say how an agent is now
def test_a_newer_evaluation_is_current_and_older_rows_stay() -> None:
    ada = make_agent()
    capture(ada, {"dry": STEADY})
    first = measure(ada, {"dry": [4] * 8, "new": [5] * 8})
    second = measure(ada, {"dry": [2] * 8})

    assert {row.evaluation_run for row in current_changes([ada.pk])} == {second}
    assert {row.proposition for row in Change.objects.filter(evaluation_run=first)} == {"", "dry"}
    assert [
        (row.evaluation_run, row.candidate, row.baseline)
        for row in Change.objects.filter(proposition="").order_by("pk")
    ] == [
        (first, 4.0, 7.5),
        (second, 2.0, 7.5),
    ]


def test_storing_again_changes_nothing() -> None:
    ada = make_agent()
    run = flattened(ada)
    before = list(current_changes([ada.pk]).values_list("pk", "verdict", "value"))
    store_ended(run)

    assert list(current_changes([ada.pk]).values_list("pk", "verdict", "value")) == before
    assert refresh_changes() == ""


def test_an_evaluation_that_ends_while_another_is_compared_is_not_overwritten() -> None:
    ada = make_agent()
    capture(ada, {"dry": STEADY})
    run = measure(ada, {"dry": [5] * 8})
    newer: list[EvaluationRun] = []

    def ends_meanwhile(execute: Callable[..., Any], sql: str, *query: Any) -> Any:
        if 'FROM "evaluation_scores"' in sql and not newer:
            newer.append(run)  # once
            newer[:] = [measure(ada, {"dry": [1] * 8})]
        return execute(sql, *query)

    with connection.execute_wrapper(ends_meanwhile):
        store_ended(run)

    assert {row.evaluation_run for row in current_changes([ada.pk])} == set(newer)


def test_a_worker_that_dies_while_it_stores_leaves_it_to_the_next() -> None:
    ada = make_agent()
    capture(ada, {"dry": STEADY})
    first = measure(ada, {"dry": STEADY})

    def dies(execute: Callable[..., Any], sql: str, *query: Any) -> Any:
        if sql.startswith('INSERT INTO "changes"'):
            raise KeyboardInterrupt
        return execute(sql, *query)

    with connection.execute_wrapper(dies), pytest.raises(KeyboardInterrupt):
        measure(ada, {"dry": [1] * 8})
    assert {row.evaluation_run for row in current_changes([ada.pk])} == {first}, "nothing of it is stored"

    assert refresh_changes() == "1 computed again"
    assert {row.evaluation_run for row in current_changes([ada.pk])} == {EvaluationRun.objects.latest("pk")}
    assert drift_of(ada).state == "drifted"


# -- computed again in the background
def another_baseline(ada: Agent) -> None:
    run = EvaluationRun.objects.get(is_baseline=True)
    again = EvaluationRun.objects.create(
        agent=ada, judge=LLM, dimensions=["adherence"], status="completed", persona_digest=run.persona_digest
    )
    run.scores.update(evaluation_run=again)
    run.evidence.update(evaluation_run=again)
    Baseline.objects.all().delete()
    make_baseline(ada, again)


def newest_deleted(ada: Agent) -> None:
    EvaluationRun.objects.latest("pk").delete()


def messages_deleted(ada: Agent) -> None:
    run = EvaluationRun.objects.latest("pk")
    Message.objects.filter(evaluation_scores__evaluation_run=run, evaluation_scores__score=2).delete()


@pytest.mark.parametrize("happens", [another_baseline, newest_deleted, messages_deleted])
def test_what_rows_rest_on_is_another_one_and_they_are_computed_again(happens: Callable[[Agent], None]) -> None:
    ada = make_agent()
    capture(ada, {"dry": STEADY})
    measure(ada, {"dry": [4] * 8})
    measure(ada, {"dry": [2, 3, 4, 3, 4, 3, 4, 3]})
    happens(ada)

    assert refresh_changes() == "1 computed again"
    rows = current_changes([ada.pk]).exclude(proposition="")
    newest = EvaluationRun.objects.filter(is_baseline=False).exclude(baselines__isnull=False).latest("pk")
    assert [(row.evaluation_run, row.baseline_run) for row in rows] == [(newest, Baseline.objects.get().evaluation_run)]
    assert all(row.quote is not None and row.baseline_quote is not None for row in rows)
    assert refresh_changes() == "", "once"


def test_the_api_lists_changes_by_agent_verdict_and_dimension() -> None:
    ada, bob = make_agent("ada"), make_agent("bob")
    for agent in (ada, bob):
        flattened(agent)
    measure(bob, {"bob-dry-wit": [3] * 8})
    client = program(superuser("eve"))

    def listed(query: str) -> list[tuple[str, str, str]]:
        rows = client.get(f"/api/changes/?{query}").json()["results"]
        return sorted((row["agent"], row["proposition"], row["verdict"]) for row in rows)

    drifted = [("ada", "", "drifted"), ("ada", "ada-dry-wit", "drifted")]
    assert listed("agent=ada&verdict=drifted&dimension=adherence") == drifted
    assert listed("agent=bob&current=true") == [("bob", "", "drifted"), ("bob", "bob-dry-wit", "drifted")]
    assert len(listed("agent=bob&current=false")) == 3, "those of the evaluation before"
    assert client.get("/api/changes/?verdict=worse").status_code == 400


def test_new_labels_change_the_agreement_of_current_rows_alone() -> None:
    ada = make_agent()
    capture(ada, {"dry": STEADY})
    measure(ada, {"dry": [4] * 8})
    measure(ada, {"dry": [3] * 8})
    JudgeCalibration.objects.create(judge=LLM, procedure="plumbline", dimension="adherence", kappa=0.6, labels=30)
    refresh_changes()

    assert {(row.current, row.agreement, row.labels) for row in Change.objects.all()} == {
        (True, 0.6, 30),
        (False, None, 0),
    }
