"""``manage.py evaluate``: the verdict, its exit code, and what it says."""

from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command

from agents.models import Agent
from evaluation.models import Baseline, EvaluationRun
from tests.evaluation.ci.building import baseline, planted, report, run
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers, tail_of
from tests.factories import make_agent, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


# -- regressions
def test_a_planted_regression_exits_1_and_names_the_proposition_and_the_message(
    two: Agent, llm_server: LLMServer
) -> None:
    planted(llm_server, mood=3)
    baseline()

    code, out, said = run("--where", "build=41")
    found = report("--where", "build=41")

    assert code == 1
    assert "regression" in said
    assert "mood" in out
    assert "line 7 of build 41" in out
    (entry,) = found["regressions"]
    assert (entry["agent"], entry["dimension"], entry["proposition"]) == ("ada", "adherence", "mood")
    assert (entry["baseline"], entry["candidate"]) == (8.0, pytest.approx(3 - 1 / 12, abs=1e-3))
    assert entry["delta"] == pytest.approx(entry["candidate"] - 8, abs=1e-3)
    assert entry["worst_message"]["text"] == "line 7 of build 41"
    assert (entry["worst_message"]["channel"], entry["worst_message"]["score"]) == ("ada-41", 2)
    message = two.messages.get(text="line 7 of build 41")
    assert (entry["worst_message"]["position"], entry["worst_message"]["external_id"]) == (
        message.position,
        message.external_id,
    )


def test_json_is_captures_shape_with_what_was_compared_beside_it(two: Agent, llm_server: LLMServer) -> None:
    planted(llm_server, mood=3)
    baseline()

    found = report("--where", "build=41")

    (entry,) = found["runs"]
    dimension = entry["dimensions"]["adherence"]
    assert entry["agent"] == "ada"
    assert dimension["score"] == pytest.approx((8 + 3) / 2 - 1 / 12, abs=1e-3)
    assert (dimension["baseline"], dimension["verdict"]) == (8.0, "drifted")
    assert dimension["delta"] == pytest.approx(dimension["score"] - 8, abs=1e-3)
    low, high = dimension["interval"]
    assert low < dimension["delta"] < high < 0
    assert dimension["changes"]["voice"]["verdict"] == "steady"
    assert dimension["unscored_because"] == {"failed": 0, "needs_llm_judge": 0, "not_evaluable": 0}
    summary = found["summary"]
    assert (summary["verdict"], summary["judge"], summary["heuristic"]) == ("regression", "test-model", False)
    assert summary["judgements"]["scored"] == 24
    assert (summary["calls"], summary["cost_usd"], summary["unpriced_calls"]) == (12, None, 12)


def test_what_stays_as_it_was_passes(two: Agent, llm_server: LLMServer) -> None:
    llm_server.respond = answers(lambda claim: 8)
    baseline()

    code, out, said = run("--where", "build=41")

    assert (code, said) == (0, "")
    assert "pass: Nothing got worse." in out


def test_a_sure_fall_below_the_regression_delta_passes(two: Agent, llm_server: LLMServer) -> None:
    planted(llm_server, mood=6)
    baseline()

    assert run("--where", "build=41")[0] == 1
    assert run("--where", "build=41", "--regression-delta", "3")[0] == 0


def test_one_claim_that_falls_alone_is_a_regression_though_the_dimension_hides_it(
    propositions: PropositionFolder, two: Agent, llm_server: LLMServer
) -> None:
    propositions.claims("adherence/ada.yaml", *(f"other{n}" for n in range(8)))
    planted(llm_server, mood=5)
    baseline()

    found = report("--where", "build=41")

    assert [(r["scope"], r["proposition"]) for r in found["regressions"]] == [("proposition", "mood")]
    assert found["runs"][0]["dimensions"]["adherence"]["delta"] > -0.5


def test_what_cannot_be_told_passes_loudly_and_fails_only_when_strict(two: Agent, llm_server: LLMServer) -> None:
    noisy = [4, 9, 9, 9, 4, 9, 9, 9, 9, 4, 9, 9]

    def respond(body: dict[str, object]) -> dict[str, object]:
        number = int(tail_of(body).split("line ")[1].split(" ")[0])
        less = 1 + number % 2 if "of build 41" in tail_of(body) else 0
        return answers(lambda claim: noisy[number] - less)(body)

    llm_server.respond = respond
    baseline()

    code, out, _ = run("--where", "build=41")

    assert code == 0
    assert "possibly drifted: ada adherence" in out
    assert "more messages" in out
    strict = report("--where", "build=41", "--strict")["summary"]
    assert (strict["verdict"], strict["exit_code"]) == ("cannot tell yet", 2)


def test_an_evaluation_leaves_the_baseline_as_it_is(two: Agent, llm_server: LLMServer) -> None:
    planted(llm_server, mood=3)
    baseline()
    before = list(Baseline.objects.values_list("evaluation_run", "score"))

    run("--where", "build=41")

    assert list(Baseline.objects.values_list("evaluation_run", "score")) == before
    assert EvaluationRun.objects.filter(is_baseline=False).count() == 1


def test_an_edited_persona_is_said_beside_the_change(two: Agent, llm_server: LLMServer) -> None:
    from agents.persona import save_persona

    planted(llm_server, mood=3)
    baseline()
    two.system_prompt = "You are Ada, a cheerful clerk."
    save_persona(agent=two, traits=[], note="test")

    code, out, _ = run("--where", "build=41")
    found = report("--where", "build=41")

    assert code == 1
    assert "persona was edited" in out
    assert found["runs"][0]["persona_changed"] is True


def test_without_a_baseline_it_passes_and_says_so(two: Agent, llm_server: LLMServer) -> None:
    llm_server.respond = answers(lambda claim: 8)

    code, out, _ = run()

    assert code == 0
    assert "not compared: ada: no baseline by test-model (plumbline)" in " ".join(out.split())
    assert run("--strict")[0] == 2


# -- thresholds
def test_a_score_below_its_threshold_exits_1_and_names_the_weakest_claim(two: Agent, llm_server: LLMServer) -> None:
    planted(llm_server, mood=3)

    found = report("--where", "build=41", "--threshold", "adherence=6")

    (below,) = found["below_threshold"]
    assert (below["agent"], below["dimension"], below["threshold"]) == ("ada", "adherence", 6.0)
    assert (below["proposition"], below["worst_message"]["text"]) == ("mood", "line 7 of build 41")
    assert found["summary"]["verdict"] == "below threshold"
    assert run("--where", "build=41", "--threshold", "5")[0] == 0


def test_the_overall_score_can_have_a_threshold(two: Agent, llm_server: LLMServer) -> None:
    llm_server.respond = answers(lambda claim: 5)

    assert run("--threshold", "overall=5")[0] == 0
    (below,) = report("--threshold", "overall=5.5")["below_threshold"]
    assert (below["dimension"], below["score"]) == ("overall", 5.0)


# -- other
def test_a_dry_run_asks_and_stores_nothing(two: Agent, llm_server: LLMServer) -> None:
    code, out, _ = run("--dry-run", "--repeats", "2")

    assert code == 0
    assert "Dry run" in out
    assert (llm_server.calls, EvaluationRun.objects.count()) == (0, 0)


def test_a_crash_is_no_regression(two: Agent, llm_server: LLMServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*args: object, **kwargs: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr("evaluation.management.commands.evaluate.measure", breaks)

    code, _, said = run()

    assert (code, said) == (2, "broke off: RuntimeError: planted")


def test_an_agent_without_a_score_is_given_a_reason(two: Agent, llm_server: LLMServer) -> None:
    talk(make_agent("mute"), ["Hm."], tags={"build": "40"})
    llm_server.respond = answers(lambda claim: 8)

    code, out, _ = run("--where", "build=41")

    assert code == 0
    shown = " ".join(out.split())
    assert "no score: mute: " in shown, shown[150:]
    assert "in the window" in shown.partition("no score: mute: ")[2][:80], shown[150:]


def test_a_verdict_is_not_called_a_command_error(two: Agent, llm_server: LLMServer) -> None:
    llm_server.respond = answers(lambda claim: 1)

    with pytest.raises(CommandError) as caught:
        call_command("evaluate", "--threshold", "5", stdout=io.StringIO())

    assert type(caught.value).__name__ == "Verdict", "what Django prints before the text"
