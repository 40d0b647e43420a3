"""The command `compare`: output, JSON, exit codes and bad input."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from pytest_django import Settings

from agents.models import Agent
from evaluation.change.comparison import Comparison, compare
from evaluation.change.management.commands.compare import comparisons_table
from evaluation.change.measurements import Measurement
from evaluation.change.models import DriftAlert
from evaluation.models import EvaluationRun
from tests.evaluation.change.measured import judge, run_of
from tests.evaluation.change.samples import OFFLINE, adherence, measurement, of
from tests.evaluation.change.test_against_baseline import ada
from tests.evaluation.ci.building import own_bot
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.conversing import diverse
from tests.evaluation.judging import answers, claims_of, entry, tail_of
from tests.factories import MONDAY, make_agent, make_channel, talk
from tests.llm_server import LLMServer

__all__ = ["ada"]
pytestmark = pytest.mark.django_db
TAGS = ("--a", "build=1", "--b", "build=2")


def ran(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, and what was complained of."""
    out, err, code = StringIO(), StringIO(), 0
    try:
        call_command("compare", *arguments, stdout=out, stderr=err)
    except SystemExit as ended:
        code = int(ended.code or 0)
    except CommandError as error:
        code, _ = error.returncode, err.write(str(error))
    return code, out.getvalue(), err.getvalue()


def document(*arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = ran(*arguments, "--json")
    return code, json.loads(out)


def by_build(llm_server: LLMServer, scores: dict[str, int]) -> None:
    """Claims about what was said in a build get its score."""

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        build = next((b for b in scores if f"of {b}." in tail_of(body)), "")
        found = {key: entry(scores.get(build, 5)) for key in claims_of(body)}
        return {"json": found if len(found) > 1 else found["p1"]}

    llm_server.respond = respond


def test_two_tags_are_measured_and_compared_and_a_fall_ends_with_1(llm_server: LLMServer, ada: Agent) -> None:
    by_build(llm_server, {"1": 8, "2": 2})

    code, found = document(*TAGS, "--dimensions", "adherence")

    (comparison,) = found["comparisons"]
    change = comparison["dimensions"]["adherence"]
    assert code == 1
    assert (comparison["baseline"]["name"], comparison["candidate"]["name"]) == ("build=1", "build=2")
    assert (change["baseline"], change["candidate"], change["delta"], change["verdict"]) == (8.0, 2.0, -6.0, "drifted")
    assert comparison["worse"] == ["adherence", "adherence/mood", "adherence/voice"]
    assert ran("--a", "build=2", "--b", "build=1", "--dimensions", "adherence")[0] == 0, "it got better"


def test_one_agents_broken_file_exits_3_and_the_others_are_compared(
    llm_server: LLMServer, ada: Agent, propositions: PropositionFolder
) -> None:
    by_build(llm_server, {"1": 8, "2": 8})
    make_agent("bea")
    propositions.write("adherence/bea.yaml", "propositions: 3\n")

    code, found, said = ran(*TAGS, "--dimensions", "adherence", "--json")

    assert code == 3
    assert [comparison["target"] for comparison in json.loads(found)["comparisons"]] == ["ada"]
    assert "bea.yaml:1: propositions" in said


def test_what_was_measured_before_is_not_asked_again_until_more_is_said(llm_server: LLMServer, ada: Agent) -> None:
    judge(llm_server, voice=8)
    ran(*TAGS)
    asked, runs = llm_server.calls, EvaluationRun.objects.count()

    assert ran(*TAGS)[0] == 0
    assert (llm_server.calls, EvaluationRun.objects.count()) == (asked, runs)
    talk(ada, ["One more of 2."], channel=make_channel("later"), tags={"build": "2"})
    ran(*TAGS)
    assert llm_server.calls > asked


def test_detect_says_how_many_messages_a_change_takes(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    agent = make_agent("ada")
    for build in ("1", "2"):
        talk(agent, [f"Line {n} of {build}." for n in range(30)], channel=make_channel(build), tags={"build": build})

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        return {"json": entry(5 + int(re.findall(r"Line (\d+) of", tail_of(body))[-1]) % 3)}

    llm_server.respond = respond

    code, found = document(*TAGS, "--dimensions", "adherence", "--samples", "30", "--detect", "0.5")

    (row,) = found["detect"]
    assert code == 0
    assert row["sd"] == pytest.approx(0.83, abs=0.1)
    assert row["needed"] == pytest.approx(2 * (2.8 * 0.83 / 0.5) ** 2, rel=0.25)
    text = ran(*TAGS, "--detect", "0.5", "--samples", "30")[1]
    assert "change of 0.5 points" in text
    assert f"80 % power to detect a change of {row['smallest_detectable']:.1f}" in text


def test_the_newest_evaluation_is_compared_with_the_baseline(
    llm_server: LLMServer, settings: Settings, ada: Agent
) -> None:
    judge(llm_server, voice=8)
    code, _, err = ran()
    assert (code, "manage.py capture_baseline --agents ada" in err) == (2, True)
    run_of(ada, "1", is_baseline=True)
    code, _, err = ran()
    assert (
        code,
        "ada: no evaluation by test-model judged like the baseline (plumbline) scored a message newer" in err,
    ) == (2, True)
    judge(llm_server, voice=2)
    run = run_of(ada, "2")

    code, found = document()

    assert (code, found["comparisons"][0]["candidate"]["evaluation_run"]) == (1, run.pk)
    assert found["comparisons"][0]["worse"] == ["adherence", "adherence/voice"]
    settings.JUDGE_MODEL = "another-model"
    code, _, err = ran("--agents", "ada")
    assert (code, "no baseline by another-model; there are baselines by test-model" in err) == (2, True)


def test_a_file_serves_as_a_baseline(llm_server: LLMServer, ada: Agent, tmp_path: Path) -> None:
    judge(llm_server, voice=8)
    path = tmp_path / "baseline.json"
    with (tmp_path / "printed").open("w") as printed:
        where = ["--where", "build=1", "--dimensions", "adherence"]
        call_command("capture_baseline", *where, "--json", "--out", str(path), stdout=printed)
    judge(llm_server, voice=2)
    run_of(ada, "2")
    judge(llm_server, voice=9)
    run_of(ada, "2", position_bins=((1, 4), (5, None)))  # drawn otherwise: passed over

    code, found = document("--baseline", str(path))

    assert code == 1
    change = found["comparisons"][0]["dimensions"]["adherence"]
    assert (change["delta"], change["baseline_n"], change["n"]) == (-3.0, 8, 8)
    code, _, err = ran("--baseline", str(path), "--dimensions", "consistency")
    assert (code, "ada: no evaluation of consistency yet" in err) == (2, True)
    make_agent("bea")
    code, _, err = ran("--baseline", str(path), "--agents", "bea")
    assert (code, "it has: ada" in err) == (3, True)
    path.write_text(path.read_text().replace('"test-model"', '"older-model"'))
    code, _, err = ran("--baseline", str(path))
    assert (code, "was judged by older-model" in err, "by test-model" in err) == (3, True, True)


@pytest.mark.parametrize("way", ["--runs", "baseline", "--baseline"])
def test_messages_without_a_time_are_noted_however_two_measurements_are_chosen(
    llm_server: LLMServer, ada: Agent, tmp_path: Path, way: str
) -> None:
    judge(llm_server, voice=8)
    path = tmp_path / "baseline.json"
    where = ("--agents", "ada", "--where", "build=1", "--dimensions", "adherence")
    call_command("capture_baseline", *where, "--json", "--out", str(path), stdout=StringIO())
    talk(ada, ["Without a time."], channel=make_channel("undated"), tags={"build": "2"}, sent_at=None)
    second = run_of(ada, "2")
    first = EvaluationRun.objects.exclude(pk=second.pk).get()
    ways = {
        "--runs": ("--runs", str(first.pk), str(second.pk)),
        "baseline": ("--agents", "ada"),
        "--baseline": ("--baseline", str(path)),
    }

    _, found = document(*ways[way])

    (comparison,) = found["comparisons"]
    assert any(note.startswith("undated: 1 of ") for note in comparison["notes"])


def test_two_runs_are_compared(llm_server: LLMServer, ada: Agent) -> None:
    judge(llm_server, voice=8)
    first, second = run_of(ada, "1"), run_of(ada, "2")

    assert ran("--runs", str(first.pk), str(second.pk), "--dimensions", "adherence")[0] == 0
    hard = run_of(ada, "2", hard=True)
    code, _, err = ran("--runs", str(first.pk), str(hard.pk))
    assert (code, "judged as plumbline, " in err, "as plumbline+hard" in err) == (2, True, True)


def test_a_channel_is_compared_by_tags(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.write(
        "convergence/_default.yaml",
        "dimension: convergence\ntarget_type: environment\npropositions: [{id: apart, claim: voices stay apart}]\n",
    )
    channel = diverse()
    for message in channel.messages.all():
        message.tags = {"build": "1" if message.position <= 8 else "2"}
        message.save()
    llm_server.respond = answers(lambda claim: 6)

    code, found = document("--channel", "diverse", *TAGS, "--dimensions", "convergence", "--repeats", "3")

    assert (code, found["comparisons"][0]["target"]) == (0, "#diverse")
    assert found["comparisons"][0]["dimensions"]["convergence"]["unit"] == "repeats"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--a", "build=1"], "--a and --b go together"),
        (["--a", "build=1", "--b", "build=1"], "nothing to compare"),
        ([*TAGS, "--runs", "1", "2"], "one way of comparing at a time"),
        (["--channel", "office"], "--channel goes with --a and --b"),
        ([*TAGS, "--channel", "nowhere"], "no channel 'nowhere'; channels: "),
        ([*TAGS, "--dimensions", "charm"], "--dimensions 'charm': allowed: adherence"),
        ([*TAGS, "--detect", "nan"], "--detect nan: allowed: more than 0"),
    ],
)
def test_wrong_usage_is_refused_and_says_what_is_allowed(ada: Agent, arguments: list[str], message: str) -> None:
    code, _, err = ran(*arguments)

    assert (code in (2, 3), message in err) == (True, True), err


def test_agents_that_cannot_be_compared_for_the_same_reason_are_named_together(
    llm_server: LLMServer, ada: Agent
) -> None:
    judge(llm_server, voice=8)
    for slug in ("bea", "cyd"):
        make_agent(slug)

    code, _, err = ran(*TAGS, "--dimensions", "adherence")

    assert code == 2
    assert "\n  bea, cyd: build=1: nothing scored: " in err


OWN_TAGS = ("--a", "build=7", "--b", "build=8", "--dimensions", "adherence", "--samples", "50")


def test_hits_on_one_side_come_first_with_their_messages_and_exit_1(
    settings: Settings, propositions: PropositionFolder
) -> None:
    settings.JUDGE_MODEL = OFFLINE
    own_bot(propositions)

    code, text, err = ran(*OWN_TAGS)

    first, _, table = text.partition("build=7 → build=8")
    assert code == 1
    for part in ("stock", "7 of 24", "0 of 28", "p 0.0026", "Dear customer, request 0", "45 of 52", "kind, warm"):
        assert part in " ".join(first.split())
    assert "adherence/kind, adherence/warm" in " ".join(table.split())
    assert err == ""
    (comparison,) = document(*OWN_TAGS)[1]["comparisons"]
    assert comparison["shown"][0]["verdict"] == "worse"
    assert comparison["worse"] == ["adherence/stock"]


def test_a_build_of_which_nothing_is_scored_is_compared_all_the_same(
    settings: Settings, propositions: PropositionFolder
) -> None:
    settings.JUDGE_MODEL = OFFLINE
    propositions.write(
        "adherence/_default.yaml",
        """
        dimension: adherence
        propositions:
          - {id: greets, claim: "{{agent_name}} greets", cues: {supports: [good morning]}}
        """,
    )
    propositions.write(
        "fluency/_default.yaml",
        """
        dimension: fluency
        propositions:
          - {id: formulas, claim: "{{agent_name}} has no formulas", measure: phrases}
        """,
    )
    bob = make_agent("bob")
    talk(bob, [f"Good morning, number {n}!" for n in range(20)], channel=make_channel("one"), tags={"build": "1"})
    run_of(bob, "1", dimensions=("adherence", "fluency"), is_baseline=True)
    talk(bob, [f"Knight takes pawn {n}." for n in range(24)], channel=make_channel("two"), tags={"build": "2"})
    run_of(bob, "2", dimensions=("adherence", "fluency"))

    code, found = document("--agents", "bob")

    (comparison,) = found["comparisons"]
    adherence = comparison["dimensions"]["adherence"]
    assert code == 2, "fluency is compared, but adherence has no score any more"
    assert "less than half as much is scored as in the baseline" in " ".join(ran("--agents", "bob")[1].split())
    assert (adherence["baseline"], adherence["candidate"], adherence["coverage"]) == (8.0, None, 0.0)
    assert [one["proposition"] for one in comparison["not_enough_data"]] == ["", "greets"]


def shown(*comparisons: Comparison) -> str:
    out = StringIO()
    comparisons_table(comparisons, out)
    return " ".join(out.getvalue().split())


def window(score: float, *, target: str = "ada", judge: str = OFFLINE) -> Measurement:
    """A fluency judged once, of the window as a whole."""
    return measurement({"fluency": {"varied": of([score], unit="repeat")}}, target=target, judge=judge)


def test_a_large_change_without_an_interval_is_not_lost_among_the_rows() -> None:
    calm = [compare(window(8, target=f"agent-{n}"), window(8.4, target=f"agent-{n}")) for n in range(3)]

    text = shown(*calm, compare(window(9), window(0)), compare(window(7, target="bob"), window(6, target="bob")))

    assert "ada fluency 9.0 → 0.0, bob fluency 7.0 → 6.0" in text
    assert "fluency 8.0 → 8.4" not in shown(*calm)


def test_a_baseline_that_is_too_small_leads_to_detect() -> None:
    text = shown(compare(adherence([8, 2, 9, 5]), adherence([8, 3, 9, 5, 7, 6, 8, 4], first=100)))

    assert "--detect 0.5" in text


@pytest.mark.parametrize("dated", [True, False])
def test_comparing_builds_raises_no_alert_and_notes_messages_without_time(
    llm_server: LLMServer, propositions: PropositionFolder, dated: bool
) -> None:
    propositions.claims("adherence/_default.yaml", "dry")
    ada, office = make_agent("ada"), make_channel("office")
    for day, build in enumerate(("1", "2")):
        texts = [f"Number {n} of {build}." for n in range(12)]
        said = MONDAY + timedelta(days=day) if dated else None
        talk(ada, texts, channel=office, tags={"build": build}, sent_at=said)
    by_build(llm_server, {"1": 8, "2": 2})

    code, out, _ = ran(*TAGS, "--dimensions", "adherence")

    assert code == 1
    assert not DriftAlert.objects.exists()
    assert ("undated: 24 of 24 messages have no time" in " ".join(out.split())) is not dated


def test_agents_who_said_nothing_on_a_side_cannot_be_compared(llm_server: LLMServer, ada: Agent) -> None:
    judge(llm_server, voice=8)

    code, out, err = ran("--a", "build=1", "--b", "build=77")

    assert code == 2
    assert "ada: build=77: " in err
    assert out == ""


def test_consistency_that_nothing_can_score_asks_for_no_cues(
    settings: Settings, propositions: PropositionFolder
) -> None:
    settings.JUDGE_MODEL = OFFLINE
    propositions.claims("consistency/_default.yaml", "voice", extra="include_personas: false, measure: voice")
    bob = make_agent("bob")
    channel = make_channel("one")
    for build in ("0", "1", "2"):
        talk(bob, [f"Good morning, number {n} of {build}!" for n in range(20)], channel=channel, tags={"build": build})

    _, text, _ = ran("--agents", "bob", "--a", "build=1", "--b", "build=2", "--dimensions", "consistency")

    first = " ".join(text.partition("build=1 → build=2")[0].split())
    assert "a voice shows across at least 10 earlier messages" in first
    assert "write rules or cues" not in first
