"""Suggestions, checks of a judge, simulations and experiments from the console: estimate, click, worker, result."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from agents.kit.models import LLMCall
from agents.models import Message
from evaluation import jobs
from evaluation.calibration.models import JudgeCalibration
from evaluation.drafting.jobs import queue_suggestions
from evaluation.experiments.models import Experiment
from evaluation.experiments.scenario import shipped
from evaluation.models import BY_MESSAGE, EvaluationRun, Job
from evaluation.propositions.files import load_file
from evaluation.runs import execute
from tests.console import confirm, page_of, plain, read
from tests.evaluation.calibration.test_swap_test import KNOWS, cast
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drafting.proposing import file_of, make_ada, proposal, reply
from tests.evaluation.judged import OFFLINE
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

SUGGEST, CHECK = reverse("admin:evaluation_job_suggest"), reverse("admin:evaluation_job_check")
SUGGESTING = {"agents": "ada", "max": "8", "model": "test-model"}
CHECKING = {
    **{"agents": "all", "judge": "test-model", "dimensions": ["adherence"], "samples": "5", "window": "all"},
    **{"repeats": "1", "seed": "0", "per_call": "10", "method": "plumbline", "history": "before"},
}
EVALUATING = {**CHECKING, "judge": OFFLINE}


@pytest.fixture
def team(settings: Settings, propositions: PropositionFolder, tmp_path: Path) -> Path:
    """A team's folder, which is read."""
    folder = tmp_path / "team"
    folder.mkdir()
    settings.PROPOSITION_DIRS = [folder]
    return folder


@pytest.fixture
def judged_by_message(propositions: PropositionFolder) -> None:
    for dimension in BY_MESSAGE:
        propositions.claims(f"{dimension}/_default.yaml", "voice", extra="include_personas: false")


def work() -> None:
    """What a worker does until nothing waits."""
    while execute.work_one(owner="me") or jobs.work_one(owner="me"):
        pass


# -- suggestions
def test_suggestions_are_priced_first_then_written_by_a_worker_and_shown(
    root: Client, llm_server: LLMServer, team: Path
) -> None:
    make_ada()
    llm_server.reply(**reply(proposal(), proposal("{{agent_name}} sails", quote="adores sailing")))
    page = plain(read(root, f"{SUGGEST}?agents=ada"))
    assert "Calls of the model 1" in page
    assert "Cost, estimated unpriced" in page
    assert not LLMCall.objects.exists()

    answer = confirm(root, SUGGEST, **SUGGESTING)
    assert answer["Location"] == SUGGEST
    page = read(root, SUGGEST)
    progress = reverse("admin:evaluation_job_progress", args=[Job.objects.get().pk])
    assert f'data-live="{progress}"' in page
    assert root.get(progress).json() == {"status": "pending", "done": 0, "settled": 0}
    work()

    page = read(root, SUGGEST)
    assert "data-live" not in page
    page = plain(page)
    assert "completed" in page
    assert "ada 1 1" in page, "one suggestion, one that could not be used"
    assert [p.id for p in load_file(file_of(team)).inactive] == ["ada-sales-talk"]


def test_a_worker_that_was_lost_leaves_the_agents_that_were_asked(llm_server: LLMServer, team: Path) -> None:
    ada, bob = make_ada(), make_ada("bob")
    job = queue_suggestions(agents=[ada, bob], most=8, model="test-model")
    Job.objects.filter(pk=job.pk).update(result={"agents": [{"agent": "ada", "written": 1, "dropped": 0, "why": ""}]})
    llm_server.always(**reply(proposal()))
    work()

    job.refresh_from_db()
    assert [row["agent"] for row in job.result["agents"]] == ["ada", "bob"]
    assert llm_server.calls == 1


# -- checking a judge
def test_workers_check_a_judge_and_its_scores_show_the_result(
    root: Client, llm_server: LLMServer, judged_by_message: None
) -> None:
    cast("ada", "bob")
    llm_server.respond = KNOWS
    confirm(root, CHECK, **CHECKING)
    job = Job.objects.get()
    assert job.evaluations.count() == 4, "two halves of two agents"
    assert not jobs.work_one(owner="me"), "it waits for its evaluations"
    work()

    page = plain(read(root, CHECK))
    assert "better than chance 1.00" in page
    assert JudgeCalibration.objects.get().swap_test["auc"] == 1


def test_a_check_of_which_an_evaluation_failed_says_so_and_stores_nothing(
    root: Client, llm_server: LLMServer, judged_by_message: None
) -> None:
    cast("ada", "bob")
    confirm(root, CHECK, **CHECKING)
    EvaluationRun.objects.update(status="failed", error="the judge is away")
    work()

    assert "4 of 4 evaluations are failed, not completed: the judge is away" in read(root, CHECK)
    assert not JudgeCalibration.objects.exists()


# -- choices that changed since they were estimated
def test_choices_that_changed_are_estimated_again_before_anything_is_queued(
    root: Client, settings: Settings, judged_by_message: None
) -> None:
    settings.JUDGE_MODEL = OFFLINE
    ada, _ = cast("ada", "bob")
    url = reverse("admin:evaluation_agent_evaluate", args=[ada.pk])
    seen = re.search(r'name="seen" value="(\w+)"', root.post(url, EVALUATING).content.decode())
    assert seen
    page = root.post(url, {**EVALUATING, "samples": "7", "seen": seen[1]}).content.decode()

    assert "Your choices changed" in page
    assert not EvaluationRun.objects.exists()


def test_the_address_fills_in_tag_window_and_judge(root: Client, settings: Settings, judged_by_message: None) -> None:
    settings.JUDGE_MODEL = OFFLINE
    ada, _ = cast("ada", "bob")
    Message.objects.filter(agent=ada, position__lte=6).update(tags={"build": "41"})
    url = reverse("admin:evaluation_agent_evaluate", args=[ada.pk])
    page = read(root, f"{url}?tag=build=41&window=last:4&dimensions=adherence")
    assert 'value="build=41"' in page
    assert "Judgements 4" in plain(page)

    confirm(
        root,
        url,
        **{**EVALUATING, "where": "build=41", "window": "last:4", "by": "position", "position_bins": "1-5,6-15"},
    )
    run = EvaluationRun.objects.get()
    assert (run.where, run.window, run.position_bins) == ({"build": "41"}, "last:4", [[1, 5], [6, 15]])


def test_a_tag_without_a_value_is_refused_at_its_field(
    root: Client, settings: Settings, judged_by_message: None
) -> None:
    """Other refusals are those of every door: `test_request_doors`."""
    settings.JUDGE_MODEL = OFFLINE
    ada, _ = cast("ada", "bob")
    url = reverse("admin:evaluation_agent_evaluate", args=[ada.pk])
    page = confirm(root, url, **{**EVALUATING, "where": "build"}).content.decode()

    [error] = re.findall(r'<p class="pl-error" role="alert">(.*?)</p>', page, re.DOTALL)
    assert "tag=value" in error
    assert not EvaluationRun.objects.exists()


# -- simulating
SITUATIONS = "situations:\n  - {id: late, lines: [Where is my parcel?, It is late.]}\n"


def test_own_situations_are_simulated_as_often_as_asked_and_measured(
    root: Client, settings: Settings, propositions: PropositionFolder
) -> None:
    settings.JUDGE_MODEL, settings.ACTOR_MODEL = OFFLINE, "offline:scripted-1"
    propositions.claims("adherence/_default.yaml", "voice")
    ada = make_agent(sample_lines=["Fine.", "So be it."])
    url = reverse("admin:evaluation_agent_evaluate", args=[ada.pk])
    confirm(root, url, **{**EVALUATING, "situations": SITUATIONS, "repeats": "2"})
    work()

    run = EvaluationRun.objects.get()
    assert (run.status, run.simulated, run.sample_size) == ("completed", True, 4)
    assert set(Message.objects.filter(agent=None).values_list("text", flat=True)) == {
        "Where is my parcel?",
        "It is late.",
    }


# -- experiments
def test_an_experiment_starts_from_an_uploaded_scenario_that_is_shown_first(root: Client, settings: Settings) -> None:
    settings.JUDGE_MODEL = OFFLINE
    for slug in ("ada", "bob"):
        make_agent(slug, sample_lines=["Fine."])
    text = re.sub(r"(?m)^cast:.*", "cast: [ada, bob]", shipped()["gate-on-off"].read_text())
    text = re.sub(r"(?m)^environments:.*", "environments: 2", text)
    url = reverse("admin:experiments_experiment_add")
    choices = {"shipped": "gate-on-off", "scale": "1", "judge": OFFLINE}
    page = root.post(url, {**choices, "file": SimpleUploadedFile("mine.yaml", text.encode())}).content.decode()

    assert "Conversations" in plain(page)
    assert "No verdict is possible: too few conversations (2)" in plain(page)
    assert not Experiment.objects.exists()
    answer = confirm(root, url, **choices, scenario=text)
    assert answer["Location"] == page_of(Experiment.objects.get())


# -- two tags at once
def test_two_tags_are_estimated_together_and_evaluated_each(
    root: Client, settings: Settings, judged_by_message: None
) -> None:
    settings.JUDGE_MODEL = OFFLINE
    ada, _ = cast("ada", "bob")
    for build, places in (("40", (1, 6)), ("41", (7, 12))):
        Message.objects.filter(agent=ada, position__range=places).update(tags={"build": build})
    url = reverse("admin:evaluation_agent_evaluate", args=[ada.pk])
    assert "Judgements 12" in plain(read(root, f"{url}?tag=build=41&against=build=40&dimensions=adherence"))
    confirm(root, url, **{**EVALUATING, "where": "build=41", "against": "build=40"})

    assert [run.where for run in EvaluationRun.objects.order_by("pk")] == [{"build": "40"}, {"build": "41"}]


def test_suggestions_that_failed_say_why(root: Client, llm_server: LLMServer, team: Path) -> None:
    make_ada()
    llm_server.always(status=500)
    confirm(root, SUGGEST, **SUGGESTING)
    work()

    assert Job.objects.get().status == "failed"
    assert "no suggestions for ada: unavailable" in read(root, SUGGEST)
