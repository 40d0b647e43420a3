"""``manage.py evaluate``: the verdict, its exit code, and what it says."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.kit.models import ModelPrice
from agents.models import Agent, Message
from evaluation.change.models import Baseline
from evaluation.models import EvaluationRun
from tests.evaluation.ci.building import baseline, half, planted, report, run
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers, tail_of
from tests.factories import make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("mood", "captured", "arguments", "verdict", "code"),
    [
        (6, True, "--regression-delta 3", "pass", 0),
        (8, False, "--strict", "cannot tell yet", 2),
        (3, False, "--threshold 5", "pass", 0),
        (3, False, "--threshold adherence=6", "below threshold", 1),
        (3, False, "--threshold overall=5.5", "below threshold", 1),
    ],
)
def test_the_verdict(
    two: Agent, llm_server: LLMServer, mood: int, captured: bool, arguments: str, verdict: str, code: int
) -> None:
    planted(llm_server, mood=mood)
    if captured:
        baseline()

    summary = report("--where", "build=41", *arguments.split())["summary"]

    assert (summary["verdict"], summary["exit_code"]) == (verdict, code)


def test_a_planted_regression_is_named_with_proposition_and_message(two: Agent, llm_server: LLMServer) -> None:
    planted(llm_server, mood=3)
    baseline()
    before = list(Baseline.objects.values_list("evaluation_run", "score"))

    code, out, said = run("--where", "build=41")
    document = report("--where", "build=41")

    assert (code, "regression" in said, "mood" in out, "line 7 of build 41" in out) == (1, True, True, True)
    (regression,) = document["regressions"]
    now = pytest.approx(3 - 1 / 12, abs=1e-3)
    assert (regression["proposition"], regression["baseline"], regression["candidate"]) == ("mood", 8.0, now)
    worst, message = regression["worst_message"], two.messages.get(text="line 7 of build 41")
    assert (worst["text"], worst["channel"], worst["score"]) == (message.text, "ada-41", 2)
    assert (worst["position"], worst["external_id"]) == (message.position, message.external_id)
    dimension = document["runs"][0]["dimensions"]["adherence"]
    assert dimension["score"] == pytest.approx((8 + 3) / 2 - 1 / 12, abs=1e-3)
    assert (dimension["baseline"], dimension["verdict"]) == (8.0, "drifted")
    low, high = dimension["interval"]
    assert low < dimension["delta"] < high < 0
    assert dimension["changes"]["voice"]["verdict"] == "steady"
    assert dimension["unscored_because"] == {"failed": 0, "needs_llm_judge": 0, "not_evaluable": 0}
    summary = document["summary"]
    assert (summary["judge"], summary["heuristic"], summary["judgements"]["scored"]) == ("test-model", False, 24)
    assert (summary["calls"], summary["cost_usd"], summary["unpriced_calls"]) == (12, None, 12)
    assert list(Baseline.objects.values_list("evaluation_run", "score")) == before, "the baseline stays as it is"
    assert EvaluationRun.objects.filter(is_baseline=False).count() == 2


def test_one_claim_falling_alone_is_a_regression_though_its_dimension_hides_it(
    propositions: PropositionFolder, two: Agent, llm_server: LLMServer
) -> None:
    propositions.claims("adherence/ada.yaml", *(f"other{n}" for n in range(8)))
    planted(llm_server, mood=5)
    baseline()

    document = report("--where", "build=41")

    assert [(r["scope"], r["proposition"]) for r in document["regressions"]] == [("proposition", "mood")]
    assert document["runs"][0]["dimensions"]["adherence"]["delta"] > -0.5


def test_a_dimension_that_cannot_be_evaluated_says_why(
    propositions: PropositionFolder, two: Agent, llm_server: LLMServer
) -> None:
    propositions.write("convergence/_default.yaml", "target_type: environment\npropositions: [{id: own, claim: own}]\n")
    planted(llm_server, mood=8)

    _, out, _ = run("--dimensions", "adherence,convergence")

    assert "convergence: not evaluable: one agent alone speaks in the window" in " ".join(out.split())


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


# -- other


def test_a_crash_is_no_regression(two: Agent, llm_server: LLMServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*args: object, **kwargs: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr("evaluation.ci.management.commands.evaluate.measure", breaks)

    code, _, said = run()

    assert (code, said) == (2, "broke off: RuntimeError: planted")


# -- ``manage.py evaluate`` where not enough could be judged: neither a pass nor a fall
def test_a_judge_failing_half_the_calls_exits_2_not_0_or_1(two: Agent, llm_server: LLMServer) -> None:
    llm_server.respond = answers(lambda claim: 8)
    baseline()
    half(llm_server)

    code, out, said = run("--where", "build=41", "--threshold", "5")
    document = report("--where", "build=41", "--threshold", "5")

    assert code == 2
    assert "could not judge enough" in said
    assert "12 of 24 judgements failed" in " ".join(out.split())
    (unjudged,) = document["could_not_judge"]
    assert (unjudged["agent"], unjudged["dimension"], unjudged["share"]) == ("ada", "adherence", 0.5)
    assert "unavailable" in unjudged["why"]
    assert document["summary"]["failed_share"] == 0.5
    assert document["runs"][0]["dimensions"]["adherence"]["unscored_because"]["failed"] == 12
    assert document["below_threshold"], "what was found is still said"


def test_a_typo_in_a_tag_measures_nothing_and_is_no_pass(two: Agent, llm_server: LLMServer) -> None:
    document = report("--where", "biuld=41")

    assert document["summary"]["exit_code"] == 2
    assert document["could_not_judge"][0]["why"] == "nothing was scored for any agent"
    assert llm_server.calls == 0


@pytest.mark.parametrize(
    ("tag", "known"), [("biuld=41", "none has a tag biuld"), ("build=99", "build is one of: 40, 41")]
)
@pytest.mark.parametrize(
    "command", ["evaluate --where", "capture_baseline --no-simulate --where", "compare --a build=40 --b"]
)
def test_a_tag_that_no_message_has_is_named_with_those_there_are(
    two: Agent, llm_server: LLMServer, command: str, tag: str, known: str
) -> None:
    err = io.StringIO()
    with pytest.raises((CommandError, SystemExit)):
        call_command(*command.split(), tag, stdout=io.StringIO(), stderr=err)

    assert f"No message is tagged {tag}; {known}" in err.getvalue()


def test_a_silent_agent_fails_nothing_unless_it_was_named_or_measured_before(two: Agent, llm_server: LLMServer) -> None:
    llm_server.respond = answers(lambda claim: 8)
    make_agent("mute")

    assert report()["summary"]["exit_code"] == 0
    named = report("--agents", "ada,mute")
    assert [entry["agent"] for entry in named["could_not_judge"]] == ["mute"]
    baseline("--agents", "ada")
    talk(Agent.objects.get(slug="mute"), [f"line {n} of build 42" for n in range(3)], tags={"build": "42"})
    gone = report("--where", "build=42")
    assert [entry["agent"] for entry in gone["could_not_judge"]] == ["ada"], "it had a baseline and says nothing now"


def test_a_threshold_without_a_score_is_no_pass(
    propositions: PropositionFolder, two: Agent, llm_server: LLMServer
) -> None:
    propositions.claims("consistency/_default.yaml", "same", extra="include_personas: false")
    llm_server.respond = answers(lambda claim: 8)

    talk(two, ["line 1 of build 42"], channel=make_channel("new"), tags={"build": "42"})

    document = report("--where", "build=42", "--threshold", "consistency=5")

    assert document["summary"]["exit_code"] == 2
    assert document["could_not_judge"][0]["dimension"] == "consistency"
    assert report("--where", "build=42", "--threshold", "5")["summary"]["exit_code"] == 0


@pytest.mark.django_db
def test_a_threshold_without_a_score_names_what_is_missing_and_not_another_judge(
    settings: Settings, tmp_path: Path
) -> None:
    settings.JUDGE_MODEL, settings.PROPOSITION_DIRS = "offline:lexical-1", [tmp_path]
    own = tmp_path / "adherence" / "ada.yaml"
    own.parent.mkdir()
    own.write_text("propositions: [{id: brief, claim: is brief, rule: {max_words: 9}}]")
    agent, channel = make_agent("ada"), make_channel("desk")
    later = talk(agent, [f"Drawer {n}." for n in range(24)], channel=channel)[12:]
    Message.objects.filter(pk__in=[message.pk for message in later]).update(tags={"build": "41"})
    asked = ("--dimensions", "adherence,consistency", "--where", "build=41")

    [finding] = report(*asked, "--threshold", "5")["could_not_judge"]

    assert finding["dimension"] == "consistency"
    assert "a voice is distinguished" in finding["why"]
    assert "LLM" not in finding["why"]


def test_an_offline_judge_is_not_blamed_for_what_needs_an_llm(two: Agent, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/ada.yaml", "brief", extra="rule: {max_words: 9}")

    document = report("--where", "build=41")

    summary = document["summary"]
    assert (summary["exit_code"], summary["heuristic"]) == (0, True)
    assert summary["judgements"] == {
        "scored": 12,
        "trivial": 0,
        "unscored": 24,
        "failed": 0,
        "needs_llm_judge": 24,
        "not_evaluable": 0,
    }
    assert document["runs"][0]["dimensions"]["adherence"]["unscored"] == 24


# -- A baseline that shares no proposition with what is asked now cannot say that nothing got worse
RULE = "propositions:\n  - {{id: {0}, claim: short, rule: {{max_words: 3}}}}\n"


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 2)])
def test_renamed_propositions_are_not_enough_data(
    propositions: PropositionFolder, options: tuple[str, ...], code: int
) -> None:
    ada = make_agent("ada")
    for build, text in (("40", "Short."), ("41", "This goes on and on and on.")):
        talk(ada, [f"{text} {n}" for n in range(12)], channel=make_channel(f"c{build}"), tags={"build": build})
    propositions.write("adherence/_default.yaml", RULE.format("short"))

    call_command(
        "capture_baseline", "--agents", "ada", "--dimensions", "adherence", "--where", "build=40", "--no-simulate"
    )
    propositions.write("adherence/_default.yaml", RULE.format("brief"))

    result, out, _ = run("--agents", "ada", "--dimensions", "adherence", "--where", "build=41", *options)

    assert result == code
    assert "no proposition was scored in both" in " ".join(out.split())
    assert "Nothing got worse" not in out


# -- ``evaluate --by position``: fading within long conversations fails a build
TURNS = 15
ASKED = ("--by", "position", "--bins", "1-5,6-10,11+", "--samples", "60")


@pytest.fixture
def talker(propositions: PropositionFolder) -> Agent:
    """An agent in four conversations of fifteen turns."""
    propositions.claims("adherence/_default.yaml", "voice")
    agent = make_agent("ada")
    for number in range(4):
        talk(agent, [f"turn {n + 1} said" for n in range(TURNS)], channel=make_channel(f"talk-{number}"))
    return agent


def fading_judge(server: LLMServer, *, late: int) -> None:
    def respond(body: dict[str, object]) -> dict[str, object]:
        said = tail_of(body).split("turn ")
        turn = int(said[-1].split(" said")[0]) if " said" in said[-1] else int(said[1].split(" ")[0])
        return answers(lambda claim: late if turn > 10 else 8 - turn % 2)(body)

    server.respond = respond


def test_an_agent_that_fades_exits_1_and_says_from_when(talker: Agent, llm_server: LLMServer) -> None:
    fading_judge(llm_server, late=3)

    document = report(*ASKED)
    code, out, said = run(*ASKED)

    assert code == 1
    (fading,) = document["fading"]
    assert (fading["agent"], fading["dimension"], fading["first"], fading["last"]) == ("ada", "adherence", "1-5", "11+")
    assert fading["delta"] == pytest.approx(-4.5, abs=0.3)
    bins = document["runs"][0]["by_position"]["dimensions"]["adherence"]["bins"]
    assert [row["positions"] for row in bins] == ["1-5", "6-10", "11+"]
    assert "fades" in out
    assert said.startswith("regression: 1 score fading within conversations")


def test_an_agent_that_holds_passes_and_nothing_is_said_of_baselines(talker: Agent, llm_server: LLMServer) -> None:
    fading_judge(llm_server, late=8)

    code, out, said = run(*ASKED, "--strict")

    assert (code, said) == (0, "")
    assert "baseline" not in out


# -- What a verdict cost: estimated before anything is asked, counted after it
@pytest.fixture
def priced(llm_server: LLMServer) -> LLMServer:
    ModelPrice.objects.create(
        model="test-model", effective_from="2026-01-01", input_usd=1, output_usd=5, cache_write_usd=0, cache_read_usd=0
    )
    llm_server.respond = answers(lambda claim: 8)
    return llm_server


def test_the_estimate_stands_first_and_both_at_the_end(two: Agent, priced: LLMServer, tmp_path: Path) -> None:
    comment = tmp_path / "comment.md"

    code, out, _ = run("--where", "build=41", "--markdown", str(comment))

    text = " ".join(out.split())
    assert code == 0
    assert text.startswith("Estimate: 12 calls, ")
    assert "(if nothing was judged before)" in text
    assert "Judging: estimated 12 calls, " in text
    assert "; used 12 calls, " in text
    (line,) = [line for line in comment.read_text(encoding="utf-8").splitlines() if line.startswith("Judging: ")]
    assert "estimated 12 calls" in line
    assert line.count("$") == 2


def test_a_dry_run_asks_and_stores_nothing(two: Agent, llm_server: LLMServer) -> None:
    code, out, _ = run("--dry-run", "--repeats", "2")

    assert code == 0
    assert "Dry run" in out
    assert (llm_server.calls, EvaluationRun.objects.count()) == (0, 0)
