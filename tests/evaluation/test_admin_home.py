"""What measuring has on the console's first page: drift, the judge, and what is missing."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from agents.alerts.models import Alert
from agents.kit.models import LLMCall
from agents.models import Agent, PersonaVersion
from agents.personas.persona import save_persona
from evaluation.calibration.models import JudgeCalibration
from evaluation.change.admin.home import USUAL_LINES
from evaluation.change.models import DriftAlert
from evaluation.models import EvaluationRun, EvaluationSchedule
from tests.agents.test_admin_home import HOME, card, home, own_links, steps
from tests.console import HOSTILE, drawn, page_of, plain, queries, read, signed_in, staff, superuser, viewer
from tests.evaluation.change.measured import capture, flattened, measure, scored
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import LLM, OFFLINE, make_baseline, make_run
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
    """The part that says who drifts, with the chart."""
    return html[html.index('id="drift"') : html.index('<div class="pl-cards">')]


def now(html: str) -> str:
    """Who drifts, in words."""
    return plain(f"<{drift(html)}").split(" drifted, ")[0]


def legend(html: str) -> list[str]:
    found = drift(html)
    if '<ul class="pl-legend">' not in found:
        return []
    return [plain(entry) for entry in found.split('<ul class="pl-legend">')[1].split("</ul>")[0].split("</li>")[:-1]]


# -- who drifts
def test_drifted_agents_come_first_and_alerts_wait_to_be_acknowledged() -> None:
    ada, bob, cleo = make_agent("ada"), make_agent("bob"), make_agent("cleo")
    for dimension in ("adherence", "fluency"):
        alert(bob, dimension=dimension)
    alert(ada, acknowledged_at=timezone.now())
    flattened(ada)
    capture(bob, {"dry": [8, 7] * 16})
    measure(bob, {"dry": [8, 7] * 16})
    html = home()
    text = now(html)

    assert html.index('id="drift"') < html.index("To set up")
    assert "Drifting now: 1 of 3 agents" in text
    assert "A Ada dry wit 8.1 → 3.1 since build 41 (2 Nov 2026)" in text
    assert f'{page_of(ada)}#change"' in drift(html)
    assert "1 steady" in text
    assert "1 never measured" in text, "who was not measured is counted"
    assert "last measured" in text
    assert cleo.display_name not in text.split("Choose")[0]
    assert "2 alerts to acknowledge" in plain(html)
    seen = plain(read(signed_in(viewer()), HOME))
    assert "alerts to acknowledge" not in seen, "a viewer cannot acknowledge them"


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
    fell(make_agent())
    html = home(staff("change.view_baseline", "agents.view_agent"))

    assert "1 possibly drifted" in now(html)
    assert "<canvas" not in drift(html), "scores are for those who may see evaluations"
    assert 'id="drift"' not in home(staff("change.view_baseline", username="blind"))


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


# -- the chart
def test_the_chart_shows_the_agents_that_lost_most_at_message_times() -> None:
    for number in range(USUAL_LINES + 2):
        fell(make_agent(f"agent-{number}", display_name=f"Agent {number}"), now=8 - number)
    html = home()
    times = {
        point["x"] for dataset in drawn(drift(html))[0]["datasets"] for point in dataset["data"] if "text" in point
    }

    assert legend(html)[0] == f"Agent {USUAL_LINES + 1} {(15 - USUAL_LINES) / 2:.1f} baseline 8.0"
    assert len(legend(html)) == USUAL_LINES
    assert len(times) == 2 * USUAL_LINES
    assert max(times) - min(times) > 7 * 86_400


def points(html: str) -> list[str]:
    """The addresses behind the points that are drawn."""
    charts = [dataset["data"] for dataset in drawn(drift(html))[0]["datasets"]]
    return [point.get("url", "") for data in charts for point in data if "text" in point]


def test_a_point_leads_to_its_message_for_those_who_may_read_it() -> None:
    ada = make_agent("ada")
    fell(ada)
    message = ada.messages.latest("sent_at")

    assert points(home())[-1].endswith(f"/transcript/?at={message.position}#m{message.position}")
    blind = home(staff("change.view_baseline", "agents.view_agent", "evaluation.view_evaluationrun"))
    assert points(blind) == ["", ""]


def test_agents_dimension_and_judge_are_chosen_in_the_url() -> None:
    ada, bob = make_agent("ada"), make_agent("bob")
    fell(ada)
    fell(bob)
    scored(ada, 2, days_ago=2, judge=OFFLINE)
    client = signed_in(superuser())

    assert len(legend(read(client, HOME))) == 2
    assert legend(read(client, f"{HOME}?agent=bob")) == ["Bob 5.5 baseline 8.0"]
    assert legend(read(client, f"{HOME}?judge={OFFLINE}+plumbline")) == ["Ada 2.0"]
    assert "heuristic" in drift(read(client, f"{HOME}?judge={OFFLINE}+plumbline"))
    assert "Fluency has no score of these agents yet" in plain(read(client, f"{HOME}?dimension=fluency"))
    assert len(points(read(client, HOME))) == 4
    assert len(legend(read(client, f"{HOME}?agent=nobody&dimension=%00&judge={HOSTILE}"))) == 2


def test_first_messages_of_builds_are_marked_and_unscored_ones_counted() -> None:
    ada = make_agent("ada")
    for days, build, score in ((9, "40", 8), (6, "40", None), (3, "41", 2), (2, "41", 2)):
        scored(ada, score, days_ago=days, build=build)
    html = drift(home())

    assert [marker["name"] for marker in drawn(html)[0]["markers"]] == ["build 40", "build 41"]
    assert "build 41: first message" in plain(html)
    assert "1 unscored" in plain(html)


def test_persona_edits_and_alerts_are_marked_with_links() -> None:
    ada = make_agent("ada")
    fell(ada)
    ada.system_prompt = "You are Ada, who jokes."
    save_persona(agent=ada, traits=[], note=f"jokes {HOSTILE}")
    raised = alert(ada)
    html = drift(home())

    assert PersonaVersion.objects.filter(agent=ada).count() == 2
    assert "--pl-accent" in [marker["colour"] for marker in drawn(html)[0]["markers"]]
    assert "Ada: persona version 2, jokes" in plain(html)
    versions = f"{reverse('admin:agents_agent_versions', args=[ada.pk])}?before=3"
    assert f'href="{versions}"' in html
    assert "jokes" in plain(read(signed_in(superuser("second")), versions))
    assert f'href="{page_of(raised)}"' in html
    assert "Ada: adherence fell from 8.1 to 3.2" in plain(html)
    assert HOSTILE not in html


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
