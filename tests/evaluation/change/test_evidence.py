"""Which evaluation says how an agent is now: the same one on home, in the overview, on the agent's page, in `compare` and the API."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from agents.models import Agent, Message
from agents.personas.persona import TraitValue, save_persona
from evaluation.change.evidence import JudgeAndProcedure, judged_ways, newest_since_baselines
from evaluation.change.overview import AgentDrift, drift_overview
from evaluation.change.sentences import sentence_of
from evaluation.models import EvaluationRun, EvaluationSchedule
from evaluation.runs.execute import capture, work_one
from evaluation.runs.schedules import fire_now
from evaluation.runs.spec import RunSpec
from tests.agents.test_admin_home import HOME
from tests.console import plain, read
from tests.evaluation.change.measured import judge, run_of
from tests.evaluation.change.test_compare_command import document, ran
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import make_run
from tests.evaluation.test_admin_home import now
from tests.factories import MONDAY, make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
WAY = JudgeAndProcedure(judge="test-model", procedure="plumbline")


@pytest.fixture(autouse=True)
def _judged_by_test_model(settings: Settings) -> None:
    settings.JUDGE_MODEL = WAY.judge


@pytest.fixture
def ada(propositions: PropositionFolder) -> Agent:
    """Eight messages of build 1, eight of build 2 a day later."""
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    propositions.claims("fluency/_default.yaml", "varied", extra="include_personas: false")
    agent = make_agent("ada")
    for day in (1, 2):
        say(agent, str(day), MONDAY + timedelta(days=day))
    return agent


@pytest.fixture
def drifted(llm_server: LLMServer, ada: Agent) -> EvaluationRun:
    """The evaluation of build 2, in which the voice is lost; the baseline is of build 1."""
    judge(llm_server, voice=8)
    run_of(ada, "1", is_baseline=True)
    judge(llm_server, voice=1)
    run = run_of(ada, "2")
    judge(llm_server, voice=8)
    return run


def say(agent: Agent, build: str, at: datetime | None) -> list[Message]:
    channel = make_channel(f"{agent.slug}-{build}")
    return talk(agent, [f"Line {n} of {build}." for n in range(8)], channel=channel, sent_at=at, tags={"build": build})


def overview() -> AgentDrift:
    return drift_overview([Agent.objects.get(slug="ada")], next(iter(judged_ways()), None)).drifts[0]


def chosen() -> dict[str, int]:
    """By dimension the evaluation that is the newest evidence."""
    ada = Agent.objects.get(slug="ada")
    found = newest_since_baselines([ada.pk], WAY).get(ada.pk, {})
    return {name: one.evaluation_run_id for name, one in found.items()}


def on_home(root: Client) -> str:
    """Who drifts, up to when something was measured last."""
    return now(read(root, HOME)).split("last measured")[0]


def everywhere(root: Client) -> tuple[object, ...]:
    """What home, the agent's page and `compare` say."""
    html = read(root, page_of_ada())
    story = plain(html[html.index('id="change"') :].split("</section>")[0])
    story = re.sub(
        r"Observe it at the gate.*?Passport", "", story
    )  # the chart: older messages judged later are in it, too
    code, found = document()
    return on_home(root), story, code, found


def page_of_ada() -> str:
    return reverse("admin:agents_agent_change", args=[Agent.objects.get(slug="ada").pk])


def scheduled_without_messages(agent: Agent) -> None:
    schedule = EvaluationSchedule.objects.create(name="nightly", window="1d", next_at=timezone.now())
    fire_now(schedule)
    while work_one(owner="test"):
        pass
    run = EvaluationRun.objects.latest("pk")
    assert (run.schedule, run.status, run.overall_score) == (schedule, "completed", None)
    EvaluationSchedule.objects.update(is_active=False)


def the_baselines_messages_again(agent: Agent) -> None:
    assert run_of(agent, "1", seed=3).overall_score is not None


def older_messages_imported_later(agent: Agent) -> None:
    say(agent, "0", MONDAY)
    assert run_of(agent, "0").overall_score is not None


def unfinished(agent: Agent) -> None:
    for status in ("pending", "running", "paused_budget", "failed", "errored", "cancelled"):
        make_run(agent, judge=WAY.judge, status=status)


def other_procedures(agent: Agent) -> None:
    run_of(agent, "2", hard=True)
    run_of(agent, "2", position_bins=((1, 4), (5, None)))


def test_what_judged_no_newer_message_hides_no_drift(drifted: EvaluationRun, ada: Agent, root: Client) -> None:
    before = everywhere(root)
    assert overview().state == "drifted"
    assert "1 of 1 agent drifted" in str(before[0])

    for later in (
        scheduled_without_messages,
        the_baselines_messages_again,
        older_messages_imported_later,
        unfinished,
        other_procedures,
    ):
        later(ada)

        assert chosen() == {"adherence": drifted.pk, "fluency": drifted.pk}, later.__name__
    assert overview().state == "drifted"
    assert everywhere(root) == before


def test_newest_messages_win_then_the_newest_evaluation_of_them(drifted: EvaluationRun, ada: Agent) -> None:
    again = run_of(ada, "2", seed=3)
    assert chosen() == dict.fromkeys(("adherence", "fluency"), again.pk)

    say(ada, "3", MONDAY + timedelta(days=3))
    newest = run_of(ada, "3")
    run_of(ada, "2", seed=4)

    assert chosen() == dict.fromkeys(("adherence", "fluency"), newest.pk)
    assert overview().state == "not enough data", "eight messages are too few to call it steady"


def test_each_dimension_has_its_own_newest_evaluation(drifted: EvaluationRun, ada: Agent, root: Client) -> None:
    say(ada, "3", MONDAY + timedelta(days=3))
    fluency = run_of(ada, "3", dimensions=("fluency",))
    code, found = document()
    (comparison,) = found["comparisons"]

    assert chosen() == {"adherence": drifted.pk, "fluency": fluency.pk}
    assert (code, comparison["worse"]) == (1, ["adherence", "adherence/voice"])
    assert comparison["dimensions"]["fluency"]["delta"] == 0.0
    assert all(f"evaluation {run.pk}" in comparison["candidate"]["name"] for run in (drifted, fluency))
    assert (comparison["candidate"]["evaluation_run"], comparison["candidate"]["where"]) == (None, None)
    page = plain(read(root, page_of_ada()))
    assert "Now: adherence: build 2, " in page
    assert "; fluency: build 3, " in page


def test_a_later_baseline_of_old_messages_keeps_the_drift(drifted: EvaluationRun, ada: Agent) -> None:
    run_of(ada, "1", is_baseline=True, seed=2)
    assert overview().state == "drifted"

    save_persona(agent=ada, traits=[TraitValue("loud")], note="edit")
    run_of(ada, "1", is_baseline=True)

    assert chosen() == {}, "what was measured before is of another persona"


def test_a_baseline_captured_after_the_drift_asks_for_newer_messages(
    drifted: EvaluationRun, ada: Agent, root: Client
) -> None:
    capture([RunSpec(agent=ada, is_baseline=True)])
    code, _, told = ran()

    assert overview().state == "not measured since"
    assert "evaluate newer messages, or capture a baseline of older ones" in sentence_of(overview())
    assert (code, "evaluate newer messages, or capture a baseline of older ones" in told) == (2, True)
    assert "Whether an agent drifts is not known yet" in on_home(root), "not known is not none"
    assert "1 not measured since" in on_home(root)


def test_messages_without_a_time_count_from_when_they_were_stored(llm_server: LLMServer, ada: Agent) -> None:
    Message.objects.all().delete()
    judge(llm_server, voice=8)
    say(ada, "one", None)
    run_of(ada, "one", is_baseline=True)
    say(ada, "two", None)
    run = run_of(ada, "two")

    assert chosen() == dict.fromkeys(("adherence", "fluency"), run.pk)


def test_a_judge_that_was_down_found_nothing_in_vain(llm_server: LLMServer, drifted: EvaluationRun, ada: Agent) -> None:
    say(ada, "3", MONDAY + timedelta(days=4))
    llm_server.respond = lambda body: {"status": 500}
    run_of(ada, "3", dimensions=("adherence",))

    assert newest_since_baselines([ada.pk], WAY)[ada.pk]["adherence"].evaluation_run == drifted


def test_an_evaluation_stays_evidence_when_its_messages_are_erased(drifted: EvaluationRun, ada: Agent) -> None:
    Message.objects.filter(tags={"build": "2"}).delete()

    assert chosen()["adherence"] == drifted.pk
    assert overview().main is not None
