"""``capture_baseline`` of agents with fewer than ten messages (AC-6.5.2)."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from pytest_django import Settings

from agents.models import Agent, Channel, Run
from evaluation.change.models import Baseline
from evaluation.models import EvaluationRun
from evaluation.runs.execute import capture
from evaluation.runs.simulating import simulation_spec
from evaluation.runs.spec import RunSpec
from evaluation.simulation.situations import load_situations
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers
from tests.evaluation.simulation.acting import acts, simulated
from tests.factories import make_agent, talk
from tests.llm_server import LLMServer
from tests.tracing import Caught, tree

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def offline(settings: Settings, propositions: PropositionFolder) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "offline:scripted-1", "offline:lexical-1"
    propositions.claims("adherence/_default.yaml", "brief", extra="rule: {max_words: 3}")


def speaker(slug: str = "ada", *, messages: int = 0, lines: tuple[str, ...] = ("One.", "Two.", "Three.")) -> Agent:
    agent = make_agent(slug, sample_lines=list(lines))
    talk(agent, [f"real {n}" for n in range(messages)])
    return agent


def command(*arguments: str) -> str:
    out = io.StringIO()
    call_command("capture_baseline", *arguments, stdout=out)
    return out.getvalue()


def captured(*arguments: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(command("--json", *arguments))
    return result


def test_one_trace_holds_the_simulation_and_the_judging_of_a_capture_ac_6_5_9(sentry: Caught) -> None:
    speaker()

    captured()

    (transaction,) = sentry.of_type("transaction")
    assert transaction["contexts"]["trace"]["op"] == "evaluation.baseline"
    spans = tree(transaction)
    assert spans["evaluation.simulation", "evaluation.baseline"] == 1
    assert spans["evaluation.run", "evaluation.baseline"] == 1


@pytest.mark.parametrize(("messages", "is_simulated"), [(9, True), (10, False)])
def test_agents_with_fewer_than_ten_messages_are_simulated_ac_6_5_2(messages: int, is_simulated: bool) -> None:
    speaker(messages=messages)

    document = captured()

    (run,) = document["runs"]
    assert run.get("simulated", False) is is_simulated
    assert (run.get("actor_model") == "offline:scripted-1") is is_simulated
    assert run["dimensions"]["adherence"]["scored"] == (17 if is_simulated else 10)
    (baseline,) = Baseline.objects.all()
    assert baseline.procedure == ("plumbline+simulated" if is_simulated else "plumbline")
    assert Channel.objects.filter(synthetic=True).count() == (10 if is_simulated else 0)
    if is_simulated:
        (simulation,) = document["simulations"]
        assert (simulation["agent"], simulation["complete"], simulation["problem"], simulation["messages"]) == (
            "ada",
            True,
            "",
            17,
        )
        assert [c["done"] for c in simulation["conversations"]] == [c["lines"] for c in simulation["conversations"]]
    else:
        assert "simulations" not in document


def test_the_table_says_who_was_simulated_and_by_whom() -> None:
    speaker()
    speaker("bob", messages=12)

    table = command()

    assert "ada (simulated)" in table
    assert "bob (simulated)" not in table
    assert "Simulated conversations" in table
    assert "offline:scripted-1" in table
    assert "10 of 10" in table
    assert "never mixed with real speech" in table
    assert "no measure of a model" in table


def test_who_asks_for_tagged_speech_asks_for_real_speech() -> None:
    agent = speaker()
    talk(agent, ["real"] * 3, tags={"build": "41"})

    (run,) = captured("--history-where", "build=41")["runs"]

    assert "simulated" not in run


def test_capturing_again_simulates_nothing_again_ac_6_5_7() -> None:
    speaker()
    captured()

    captured()

    assert Run.objects.count() == 17
    assert Baseline.objects.count() == 1


def test_an_agent_without_lines_is_measured_by_its_own_messages() -> None:
    speaker(messages=3, lines=("", " "))

    document = captured()

    assert "simulated" not in document["runs"][0]
    assert document["runs"][0]["dimensions"]["adherence"]["scored"] == 3
    assert "no sample lines" in document["simulations"][0]["problem"]
    assert "no sample lines" in " ".join(command().split())
    assert not Channel.objects.filter(synthetic=True).exists()
    assert not Run.objects.exists(), "no turn was run"


def test_a_real_model_acts_and_a_real_judge_judges(
    llm_server: LLMServer, settings: Settings, propositions: PropositionFolder
) -> None:
    settings.ACTOR_MODEL = settings.JUDGE_MODEL = "test-model"
    propositions.claims("adherence/_default.yaml", "voice")
    speaker()
    acting, judging = acts(lambda body: "I act."), answers(lambda claim: 8)
    llm_server.respond = lambda body: acting(body) if "tools" in body else judging(body)

    (run,) = captured()["runs"]

    assert (run["overall_score"], run["actor_model"]) == (8.0, "test-model")


def test_a_dry_run_estimates_simulations_and_makes_none() -> None:
    speaker()
    out, err = io.StringIO(), io.StringIO()

    call_command("capture_baseline", "--dry-run", "--json", stdout=out, stderr=err)

    assert "Fewer than 10 messages: conversations with ada would be simulated first" in err.getvalue()
    (simulation,) = json.loads(out.getvalue())["simulations"]
    assert (simulation["agent"], simulation["calls"]) == ("ada", 2 * simulation["lines"])
    assert simulation["lines"] == sum(len(situation.lines) for situation in load_situations())
    assert not Run.objects.exists()


# -- in the console
def test_numbers_of_simulated_speech_say_so(root: Client, settings: Settings, propositions: PropositionFolder) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "offline:scripted-1", "offline:lexical-1"
    propositions.claims("adherence/_default.yaml", "brief", extra="rule: {max_words: 3}")
    ada = make_agent("ada", sample_lines=["One.", "Two."])
    simulation = simulated(ada, repeats=2)
    spec = RunSpec(agent=ada, dimensions=("adherence",), is_baseline=True)
    run = capture([simulation_spec(spec, simulation)])[0].summary.run
    baseline = Baseline.objects.get()

    for page in (
        f"/admin/evaluation/evaluationrun/{run.pk}/change/",
        f"/admin/change/baseline/{baseline.pk}/change/",
    ):
        html = root.get(page).content.decode()
        assert ">simulated</span>" in html
        assert "offline:scripted-1" in html
    for page in ("/admin/evaluation/evaluationrun/", "/admin/change/baseline/"):
        assert ">simulated</span>" in root.get(page).content.decode()


def test_a_dry_run_says_who_would_not_be_simulated() -> None:
    speaker(messages=3, lines=())
    out, err = io.StringIO(), io.StringIO()

    call_command("capture_baseline", "--dry-run", "--json", stdout=out, stderr=err)

    assert "ada: not simulated: no sample lines" in err.getvalue()
    assert "simulations" not in json.loads(out.getvalue())


def test_an_actor_that_is_down_leaves_only_its_agent_unmeasured(llm_server: LLMServer, settings: Settings) -> None:
    settings.ACTOR_MODEL = "test-model"
    speaker(messages=2)
    speaker("bob", messages=10)
    llm_server.always(status=401)

    with pytest.raises(CommandError) as caught:
        command()

    assert caught.value.returncode == 2
    assert "ada: failed: 10 of 10 conversations not finished" in str(caught.value)
    assert "the model call failed: rejected" in str(caught.value)
    assert [run.agent.slug for run in EvaluationRun.objects.select_related("agent") if run.agent] == ["bob"]
