"""Captures that are queued simulation agents with little speech, too: in the worker, going on where one was killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db.models.signals import post_save
from pytest_django import Settings

from agents.models import Agent, Message
from correction.config.configure import configure
from evaluation.change.models import Baseline
from evaluation.models import EvaluationRun
from evaluation.runs.control import cancel_run, resume_run
from evaluation.runs.execute import work_one
from evaluation.runs.spec import RunSpec
from evaluation.simulation.situations import load_situations
from tests.api_client import BASELINES, RUNS, program, refused
from tests.console import list_of, page_of, plain, read, signed_in, superuser
from tests.correction.ledger import call
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.measuring import queue_baseline
from tests.evaluation.simulation.acting import acts
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db(transaction=True)
LINES = sum(len(situation.lines) for situation in load_situations())


@pytest.fixture(autouse=True)
def offline(settings: Settings, propositions: PropositionFolder) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "offline:scripted-1", "offline:lexical-1"
    propositions.claims("adherence/_default.yaml", "brief", extra="rule: {max_words: 3}")


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada", sample_lines=["One.", "Two.", "Three."])


def queued(agent: Agent, **options: bool) -> EvaluationRun:
    spec = RunSpec(agent=agent, dimensions=("adherence",))
    (run,) = queue_baseline(agents=[agent], spec=spec, **{"simulate": True, **options})
    return run


def work() -> None:
    while work_one(owner="worker"):
        pass


def spoken(agent: Agent) -> int:
    return Message.objects.filter(agent=agent, synthetic=True).count()


def test_the_worker_simulates_an_agent_with_little_speech_and_measures_that(ada: Agent) -> None:
    run = queued(ada)
    assert (run.status, run.awaits_simulation, spoken(ada)) == ("pending", True, 0)

    work()

    run.refresh_from_db()
    assert (run.status, run.simulated, run.actor_model) == ("completed", True, "offline:scripted-1")
    assert spoken(ada) == LINES == run.sample_size
    assert Baseline.objects.get(agent=ada).evaluation_run == run


def test_asking_twice_is_one_capture_and_simulates_nothing_again(ada: Agent) -> None:
    assert queued(ada).pk == queued(ada).pk
    work()
    again = queued(ada)
    work()

    again.refresh_from_db()
    assert (again.status, EvaluationRun.objects.count(), spoken(ada)) == ("completed", 2, LINES)


@contextmanager
def at_answer(number: int, happens: Callable[[], object]) -> Iterator[None]:
    """Something happens while the agent's n-th answer is being stored."""
    seen = 0

    def saved(sender: object, instance: Message, **kwargs: object) -> None:
        nonlocal seen
        seen += instance.agent_id is not None
        if instance.agent_id is not None and seen == number:
            happens()

    post_save.connect(saved, sender=Message)
    try:
        yield
    finally:
        post_save.disconnect(saved, sender=Message)


def stop() -> None:
    raise KeyboardInterrupt


def test_a_worker_stopped_in_a_simulation_leaves_it_to_the_next(ada: Agent) -> None:
    run = queued(ada)
    with at_answer(8, stop), pytest.raises(KeyboardInterrupt):
        work()
    run.refresh_from_db()
    assert (run.status, run.awaits_simulation, spoken(ada)) == ("pending", True, 7)

    work()
    run.refresh_from_db()
    assert (run.status, spoken(ada)) == ("completed", LINES)


def test_a_cancelled_capture_ends_its_simulation_at_the_current_line(ada: Agent) -> None:
    run = queued(ada)
    with at_answer(3, lambda: cancel_run(run)):
        work()

    run.refresh_from_db()
    assert (run.status, run.awaits_simulation, spoken(ada)) == ("cancelled", True, 3)


@pytest.mark.slow
def test_an_actor_that_is_down_fails_the_run_which_can_resume(
    ada: Agent, settings: Settings, llm_server: LLMServer
) -> None:
    settings.ACTOR_MODEL = "actor"
    llm_server.respond = lambda body: {"status": 500}
    run = queued(ada)
    work()
    run.refresh_from_db()
    assert run.status == "failed"
    assert "not simulated: 10 of 10 conversations not finished" in run.error

    llm_server.respond = acts(lambda asked: "Yes.")
    resume_run(run)
    work()
    run.refresh_from_db()
    assert (run.status, run.error, spoken(ada)) == ("completed", "", LINES)


def test_a_budget_that_is_used_up_pauses_it_until_there_is_room(
    ada: Agent, settings: Settings, llm_server: LLMServer
) -> None:
    settings.ACTOR_MODEL = "actor"
    llm_server.respond = acts(lambda asked: "Yes.")
    configure(agent=ada, changes={"budget_enabled": True, "daily_budget_usd": "0.01"})
    call(ada, cost="0.01")
    run = queued(ada)
    work()
    run.refresh_from_db()
    assert (run.status, llm_server.calls) == ("paused_budget", 0)
    assert "the daily budget of Ada is used up" in run.error

    configure(agent=ada, changes={"daily_budget_usd": "9"})
    work()
    run.refresh_from_db()
    assert (run.status, spoken(ada)) == ("completed", LINES)


def test_the_console_simulates_first_and_says_so(ada: Agent) -> None:
    root = signed_in(superuser())
    chosen = {"action": "capture_baseline", "confirmed": "1", "_selected_action": [str(ada.pk)]}
    said = plain(root.post(list_of(Agent), chosen, follow=True).content.decode())

    assert "Simulated first (fewer than 10 messages): Ada." in said
    waiting = EvaluationRun.objects.get(simulated=True)
    assert "a worker simulates conversations first" in read(root, page_of(waiting))


def test_the_api_simulates_unless_it_is_told_not_to(ada: Agent) -> None:
    client = program(superuser())
    for asked, simulated in (({}, True), ({"simulate": "never"}, False)):
        answer = client.post(BASELINES, {"agent": "ada", **asked})
        assert answer.status_code == 202, answer.content
        assert EvaluationRun.objects.latest("pk").simulated is simulated
    assert "simulate" in refused(client.post(RUNS, {"agent": "ada", "simulate": False}))
