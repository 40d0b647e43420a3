"""What measuring has on the console's first page: who drifted, the judge, and what is missing."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from agents.alerts.models import Alert
from agents.kit.models import LLMCall
from agents.models import Agent
from correction.admin.matrix import gate_url
from evaluation.calibration.models import JudgeCalibration
from evaluation.change.admin import home as home_module
from evaluation.change.examples import COURSE_POINTS
from evaluation.change.models import DriftAlert
from evaluation.models import EvaluationRun, EvaluationSchedule
from tests.agents.test_admin_home import HOME, card, home, own_links, steps
from tests.console import HOSTILE, page_of, plain, queries, read, signed_in, staff, superuser, viewer
from tests.evaluation.change.measured import capture, flattened, measure, said, scored, store_all
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import LLM, make_baseline, make_run, make_score
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


def alert(agent: Agent, **fields: Any) -> DriftAlert:
    run = make_run(agent)
    defaults = {"dimension": "adherence", "judge": LLM, "procedure": "plumbline", "before": 8.1, "after": 3.2}
    raised = Alert.objects.create(
        kind="drift", about=f"{run.pk}", agent=agent, title="fell", acknowledged_at=fields.get("acknowledged_at")
    )
    shown = {**defaults, "since": timezone.now(), **fields}
    return DriftAlert.objects.create(agent=agent, evaluation_run=run, alert_id=raised.pk, **shown)


def judged(status: str = "ok", *, hours_ago: float = 1, role: str = "judge", **fields: Any) -> LLMCall:
    call = LLMCall.objects.create(
        role=role, purpose="gate", provider="anthropic", model=LLM, status=status, latency_ms=800, **fields
    )
    LLMCall.objects.filter(pk=call.pk).update(created_at=timezone.now() - timedelta(hours=hours_ago))
    return call


def fell(agent: Agent, *, before: int = 8, now: int = 3) -> EvaluationRun:
    """A message of nine days ago with a baseline, and a worse one of yesterday."""
    make_baseline(agent, scored(agent, before, days_ago=9), score=before)
    return scored(agent, now, days_ago=1)


def drift(html: str) -> str:
    """The part that says who drifted."""
    return html[html.index('id="drift"') :].split("</section>")[0]


def now(html: str) -> str:
    """Who drifted, in words."""
    return plain(f"<{drift(html)}")


class Row(NamedTuple):
    """The row of an agent that drifted: the dimension that it shows, what it says, where its buttons lead, and the lines of its drawing."""

    dimension: str
    text: str
    buttons: dict[str, str]
    lines: list[list[float]]


def rows(html: str) -> dict[str, Row]:
    """The rows by the agents' slugs, in their order."""
    found = {}
    for part in drift(html).split("<li data-agent=")[1:]:
        slug, dimension = re.findall(r'^"(.*?)" data-dimension="(.*?)"', part)[0]
        lines = []
        for points in re.findall(r'<polyline [^>]*points="(.*?)"', part):
            lines.append([float(point.partition(",")[2]) for point in points.split()])
        buttons = {
            label: url for url, label in re.findall(r'<a class="pl-button[^>]*href="(.*?)"[^>]*>(.*?)</a>', part)
        }
        found[slug] = Row(dimension, plain(part.partition(">")[2]), buttons, lines)
    return found


# -- who drifted
def test_each_agent_that_drifted_has_one_row_with_what_since_when_and_what_to_do() -> None:
    ada, bob, cleo = make_agent("ada"), make_agent("bob"), make_agent("cleo")
    for dimension in ("adherence", "fluency"):
        alert(bob, dimension=dimension)
    alert(ada, acknowledged_at=timezone.now())
    flattened(ada)
    capture(bob, {"dry": [8, 7] * 16})
    measure(bob, {"dry": [8, 7] * 16})
    html = home()
    found = rows(html)

    assert html.index('id="drift"') < html.index("To set up")
    assert 'data-drifted="1" data-agents="3"' in drift(html)
    assert list(found) == ["ada"]
    assert "8.1 → 3.1 since build 41" in found["ada"].text
    assert "2 Nov 2026" in found["ada"].text
    assert found["ada"].buttons == {"Read": f"{page_of(ada)}#change", "Set the gate": gate_url(ada)}
    assert "1 steady" in now(html)
    assert "1 never measured" in now(html), "who was not measured is counted"
    assert "last measured" in now(html)
    assert cleo.display_name not in now(html)
    assert "2 alerts to acknowledge" in plain(html)
    seen = plain(read(signed_in(viewer()), HOME))
    assert "alerts to acknowledge" not in seen, "a viewer cannot acknowledge them"


def test_the_drawing_is_of_what_drifted_before_and_since_the_build() -> None:
    ada = make_agent("ada")
    both = ["adherence", "fluency"]
    before, since = make_run(ada, dimensions=both, is_baseline=True), make_run(ada, dimensions=both)
    for dimension in both:
        make_baseline(ada, before, dimension=dimension, score=8)
    for run, build, fluency in ((before, "40", 8), (since, "41", 2)):
        for message in said(ada, 40, build):
            make_score(run, 8, message=message)
            make_score(run, fluency, message=message, dimension="fluency", proposition_id="varied")
    store_all(ada)
    row = rows(home())["ada"]

    assert row.dimension == "fluency"
    first, second = row.lines
    assert (len(first), len(second)) == (COURSE_POINTS, COURSE_POINTS)
    assert len(set(first)) == len(set(second)) == 1
    assert second[0] > first[0] + 15, "lower scores are drawn further down"
    assert "build 41" in row.text


def test_the_rows_are_no_more_than_fit_and_lead_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_module, "MOST_ROWS", 2)
    for number in range(3):
        flattened(make_agent(f"agent-{number}"))
    html = home()

    assert len(rows(html)) == 2
    assert "and 1 more" in now(html)
    assert f'href="{reverse("admin:evaluation_drift_overview")}?state=drifted"' in drift(html)


def test_an_agent_that_was_measured_without_a_baseline_was_not_never_measured() -> None:
    ada = make_agent()
    measure(ada, {"dry": [8, 7] * 16})
    root = signed_in(superuser())

    assert "1 no baseline" in now(read(root, HOME))
    for url in (page_of(ada), reverse("admin:evaluation_drift_overview")):
        assert "there is no baseline to compare it with" in plain(read(root, url)), url


def test_where_nothing_was_compared_drift_is_not_known_rather_than_none() -> None:
    ada = make_agent()
    html = home()
    assert "Whether an agent drifts is not known yet" in now(html)
    assert "1 never measured" in now(html)
    assert "Choose an agent to evaluate" in now(html)

    capture(ada, {"dry": [8, 7] * 16})
    assert "1 not measured since" in now(home(viewer()))
    measure(ada, {"dry": [8, 7] * 16})
    text = now(home(viewer("second")))
    assert "No agent is known to drift" in text
    assert "1 steady last measured" in text


def test_each_part_of_drift_needs_its_own_permission() -> None:
    flattened(make_agent())
    html = home(staff("change.view_baseline", "agents.view_agent"))

    assert list(rows(html)["ada"].buttons) == ["Read"], "the gate is for those who may see configurations"
    assert rows(html)["ada"].lines == [], "scores are for those who may see evaluations"
    assert 'id="drift"' not in home(staff("change.view_baseline", username="blind"))


def test_names_in_a_row_are_escaped() -> None:
    ada = make_agent("ada", display_name=f"Ada {HOSTILE}")
    capture(ada, {"dry": [8] * 8}, build=f"40{HOSTILE}")
    measure(ada, {"dry": [2] * 8}, build=f"41{HOSTILE}")
    html = home()

    assert "since build 41" in rows(html)["ada"].text
    assert HOSTILE not in html


# -- examples and simulations
def test_examples_are_shown_as_such_until_a_team_has_an_agent_of_its_own() -> None:
    kelly = make_agent("kelly", origin="seed")
    flattened(kelly)
    alert(kelly)
    html = home()
    assert list(rows(html)) == ["kelly"]
    assert "data-examples" in drift(html)
    assert "1 alert to acknowledge" in plain(html)

    make_agent("ada")
    html = home(superuser("second"))
    assert rows(html) == {}
    assert 'data-drifted="0" data-agents="1"' in drift(html)
    assert "data-examples" not in drift(html)
    assert "without the examples" in now(html)
    assert "to acknowledge" not in plain(html)
    assert "Missing: Ada ." in plain(html)
    assert "Kelly" not in plain(html[html.index('class="pl-home"') :])


def test_what_was_simulated_or_said_by_an_experiments_agents_is_no_drift() -> None:
    flattened(make_agent("made-up", synthetic=True))
    ada = make_agent("ada")
    capture(ada, {"dry": [8] * 8}, simulated=True)
    measure(ada, {"dry": [2] * 8}, simulated=True)
    html = home()

    assert rows(html) == {}
    assert 'data-agents="1"' in drift(html)
    assert "1 never measured" in now(html)
    assert "last measured" not in now(html)


# -- cards
def test_the_judge_card_tells_what_became_of_a_days_calls(settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.ANTHROPIC_API_KEY = LLM, "sk-x"
    for _ in range(8):
        judged()
    judged("timeout", error=f"no answer within 5 s {HOSTILE}")
    judged("malformed", hours_ago=3)
    judged("timeout", hours_ago=30)
    judged("rejected", role="actor")
    html = home()
    text = card(html, "Judge")

    assert text.startswith(f"80 % of calls answered {LLM} 8 answered , 2 failed , 800 ms on average in 24 h")
    assert "Last failure: timeout" in text
    assert "no human labels yet" in text
    assert HOSTILE not in html
    failed = [url for url in own_links(html) if "status__in=malformed%2Ctimeout" in url]
    client = signed_in(superuser("second"))
    assert len(re.findall(r'<td class="field-what', read(client, failed[0]))) == 2


def test_the_judges_agreement_with_people_stands_on_its_card(settings: Settings) -> None:
    settings.JUDGE_MODEL = LLM
    figures = {"kappa": 0.71, "kappa_low": 0.6, "kappa_high": 0.8, "labels": 60, "items": 60, "annotators": 2}
    JudgeCalibration.objects.create(judge=LLM, procedure="plumbline", dimension="adherence", **figures)

    assert "κ 0.71 [0.60, 0.80], 60 labels" in card(home(), "Judge")


# -- set-up
def test_agents_without_a_baseline_are_named_until_they_have_one() -> None:
    ada, _ = make_agent("ada"), make_agent("old", is_active=False)
    client = signed_in(superuser())
    html = read(client, HOME)
    assert "Agents have no baseline" in steps(html)
    assert "Missing: Ada ." in plain(html)
    assert "manage.py capture_baseline --agents all" in html

    make_baseline(ada, make_run(ada))
    found = steps(read(client, HOME))
    assert "Agents have no baseline" not in found
    assert "Nothing is measured again" in found

    EvaluationSchedule.objects.create(name="nightly", next_at=timezone.now())
    assert "Nothing is measured again" not in steps(read(client, HOME))


def test_broken_proposition_files_and_waiting_drafts_are_said(propositions: PropositionFolder) -> None:
    client = signed_in(superuser())
    make_agent()
    propositions.write("adherence/ada.agent.yaml", "propositions: [{id: dry}]")
    html = read(client, HOME)

    assert "Proposition files cannot be used" in steps(html)
    assert "manage.py check_propositions" in html


# -- rights, cost


def test_the_number_of_queries_does_not_grow_with_what_was_measured(settings: Settings) -> None:
    settings.JUDGE_MODEL = LLM
    client = signed_in(superuser())

    def add(number: int) -> None:
        for _ in range(number):
            agent = make_agent(f"agent-{Agent.objects.count()}")
            fell(agent)
            alert(agent)
            judged("timeout", agent=agent)
            make_run(agent, status="failed", error="x")

    add(2)
    few = queries(client, HOME)
    add(4)
    many = queries(client, HOME)

    assert len(many) == len(few), "\n".join(many)
