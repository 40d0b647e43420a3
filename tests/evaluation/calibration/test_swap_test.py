"""`manage.py check_judge`: does a judge tell agents' own words from those of others?"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from agents.alerts.models import Alert
from agents.kit.models import LLMCall, ModelPrice
from agents.models import Agent, Message
from correction.config.configure import configure
from evaluation.calibration.labels import draw_label_set
from evaluation.calibration.models import JudgeCalibration
from evaluation.calibration.passport import JUDGE_IS, passports
from evaluation.change.models import Baseline, DriftAlert, Evidence
from evaluation.dimensions import BY_MESSAGE
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.control import queue_run
from evaluation.runs.execute import capture, work_one
from evaluation.runs.planning import propositions_asked, subject_of
from evaluation.runs.spec import RunSpec
from evaluation.scorers import SCORERS
from evaluation.scorers.foils import load_foils
from tests.console import page_of, plain, read
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers, prompt_of
from tests.evaluation.runs.batches.conftest import price as priced
from tests.factories import MONDAY, make_agent, make_channel, say, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
price = priced  # the fixture
MESSAGES = 24
_JUDGED = re.compile(r"<<<(?:MESSAGE|LATER) \w+>>>\n(.*?)\n<<<END", re.DOTALL)


@pytest.fixture(autouse=True)
def setting(settings: Settings, propositions: PropositionFolder) -> None:
    settings.LLM_EVALUATION_RETRIES = 0
    for dimension in BY_MESSAGE:
        propositions.claims(f"{dimension}/_default.yaml", "voice", extra="include_personas: false")
    propositions.claims("fluency/_default.yaml", "varied", extra="include_personas: false")


def cast(*slugs: str) -> list[Agent]:
    """Agents with a channel each, whose every message holds their name for themselves."""
    agents = []
    for slug in slugs:
        agent = make_agent(slug, system_prompt=f"You are {slug}.")
        talk(agent, [f"The {slug} way, number {n}." for n in range(MESSAGES)], channel=make_channel(f"room-of-{slug}"))
        agents.append(agent)
    return agents


def judged(body: dict[str, Any]) -> str:
    """The text of the message that a request is about."""
    result = _JUDGED.search(prompt_of(body))
    assert result is not None
    return result[1].splitlines()[-1]


def a_judge_that_knows(value: Callable[[bool], int]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """It sees from the text whether it is the agent's own."""

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        speaker, _, text = judged(body).partition(" acts: ")
        slug = speaker.split(". ")[-1].lower()
        return answers(lambda claim: value(f"The {slug} way" in text))(body)

    return respond


KNOWS, SAYS_EIGHT = a_judge_that_knows(lambda own: 8 if own else 2), answers(lambda claim: 8)


def command(*arguments: str) -> str:
    out = io.StringIO()
    call_command("check_judge", *arguments, stdout=out)
    return out.getvalue()


def checked(*arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(command("--json", *arguments))
    return document


# -- the figures
@pytest.mark.parametrize("dimension", BY_MESSAGE)
@pytest.mark.parametrize(("judge", "auc", "share"), [(KNOWS, 1.0, 0.0), (SAYS_EIGHT, 0.5, 1.0)])
def test_a_judge_that_knows_is_told_from_one_that_does_not(
    llm_server: LLMServer, dimension: str, judge: Any, auc: float, share: float
) -> None:
    cast("ada", "bob", "cy")
    llm_server.respond = judge

    result = checked("--dimensions", dimension)["dimensions"][dimension]

    assert (result["auc"]["value"], result["high_share"]) == (auc, share)
    low, high = result["auc"]["interval"]
    assert low < high
    assert (low > 0.5) == (auc == 1)
    assert (result["own_scored"], result["swapped_scored"], result["against"]) == (30, 30, "agents")
    assert result["own_higher"] == (3 if auc == 1 else 0)
    assert {one["agent"]: one["auc"] for one in result["agents"]} == dict.fromkeys(("ada", "bob", "cy"), auc)


def test_each_message_is_swapped_amid_the_same_conversation(llm_server: LLMServer) -> None:
    cast("ada", "bob")
    llm_server.respond = KNOWS

    checked("--agents", "ada", "--dimensions", "adherence", "--samples", "5")

    own, swapped = EvaluationRun.objects.order_by("pk")
    assert (own.procedure, swapped.procedure) == ("plumbline+own-words", "plumbline+swapped-texts")
    assert [set(run.scores.values_list("message", flat=True)) for run in (own, swapped)] == [
        {int(pk) for pk in swapped.swaps}
    ] * 2
    sources = Message.objects.filter(pk__in=swapped.swaps.values())
    assert set(sources.values_list("agent__slug", flat=True)) == {"bob"}
    assert len(sources) == 5, "no text twice"
    prompts = [prompt_of(body) for body in llm_server.bodies]
    foreign = [prompt for prompt in prompts if "The bob way" in prompt]
    assert len(foreign) == 5
    for prompt in foreign:
        assert len(set(re.findall(r"The bob way, number \d+", prompt))) == 1, "only the judged message is swapped"
        assert prompt.count("The bob way") == 2, "where it stands, and as the message judged"
        assert "The ada way" in prompt
        assert "Bob" not in prompt


def test_a_pair_keeps_the_agents_own_earlier_message(llm_server: LLMServer) -> None:
    cast("ada", "bob")
    llm_server.respond = KNOWS

    checked("--agents", "ada", "--dimensions", "consistency", "--samples", "5")

    foreign = [prompt for prompt in map(prompt_of, llm_server.bodies) if "The bob way" in prompt]
    assert foreign
    for prompt in foreign:
        earlier = prompt.partition("<<<EARLIER")[2].partition("<<<END EARLIER")[0]
        assert "The ada way" in earlier
        assert "The bob way" not in earlier


def test_rules_look_at_the_swapped_text_too(settings: Settings, propositions: PropositionFolder) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    propositions.claims("adherence/_default.yaml", "own", extra="rule: {matches: 'The ada way'}")
    cast("ada", "bob")

    result = checked("--agents", "ada", "--dimensions", "adherence")["dimensions"]["adherence"]

    assert (result["own_mean"], result["swapped_mean"], result["auc"]["value"]) == (9.0, 0.0, 1.0)


def test_texts_are_compared_by_what_is_scored_for_both(settings: Settings, propositions: PropositionFolder) -> None:
    """A foreign text that only an exact rule says something about has its 9; an own one with cues an 8 more."""
    settings.JUDGE_MODEL = "offline:lexical-1"
    propositions.claims("adherence/_default.yaml", "brief", extra="rule: {max_words: 30}")
    propositions.claims("adherence/ada.yaml", "own", extra="cues: {supports: ['the ada way']}")
    cast("ada", "bob")

    result = checked("--agents", "ada", "--dimensions", "adherence")["dimensions"]["adherence"]

    assert (result["own_mean"], result["swapped_mean"], result["auc"]["value"]) == (9.0, 9.0, 0.5)
    assert result["verdict"] == "no better than chance so far"


def test_a_check_of_one_agent_does_not_replace_that_of_all(llm_server: LLMServer) -> None:
    cast("ada", "bob", "cy")
    llm_server.respond = KNOWS
    command("--dimensions", "adherence")
    llm_server.respond = SAYS_EIGHT

    printed = command("--agents", "ada", "--dimensions", "adherence", "--samples", "6")

    assert "no better than chance" in printed
    assert "over 3 agents" in shown("adherence")
    command("--dimensions", "adherence", "--samples", "6")
    assert "AUC 0.50" in shown("adherence"), "one of all agents does"


def test_texts_that_the_judge_cannot_score_are_counted_as_not_scored(llm_server: LLMServer) -> None:
    cast("ada", "bob")
    knows = KNOWS
    llm_server.respond = lambda body: {"text": "no"} if "number 7" in judged(body) else knows(body)

    result = checked("--dimensions", "adherence", "--samples", "24")["dimensions"]["adherence"]

    assert (result["own_texts"], result["own_scored"], result["swapped_texts"], result["swapped_scored"]) == (
        *(48, 46),
        *(48, 46),
    )


# -- whose texts
def test_a_team_with_one_persona_is_checked_with_the_foils(llm_server: LLMServer) -> None:
    (ada,) = cast("ada")
    twin = make_agent("twin", system_prompt=ada.system_prompt)
    talk(twin, ["The twin way."] * 9, channel=make_channel("twins"))
    llm_server.respond = KNOWS

    result = checked("--agents", "ada", "--dimensions", "adherence")["dimensions"]["adherence"]

    assert (result["against"], result["auc"]["value"]) == ("foils", 1.0)
    said = {text for texts in load_foils().values() for text in texts}
    swapped = EvaluationRun.objects.exclude(swaps={}).get()
    assert {source.split()[0] for source in swapped.swaps.values()} == set(load_foils())
    snippets = swapped.scores.values_list("context_snippet", flat=True)
    assert all(any(text.startswith(snippet.rstrip("…")) for text in said) for snippet in snippets)
    assert "(foils)" in shown("adherence")


@pytest.mark.parametrize("samples", [5, 80])
def test_the_voice_measure_does_not_learn_from_swapped_texts(
    settings: Settings, propositions: PropositionFolder, samples: int
) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    propositions.claims("consistency/_default.yaml", "voice", extra="include_personas: false, measure: voice")
    ada, hall = make_agent("ada"), make_channel("hall")
    for n in range(6):
        say(hall, "Zoe", f"Is it {n} already?", sent_at=MONDAY - timedelta(hours=1))
        say(hall, "Yan", f"oh WOW, {n}!!!", sent_at=MONDAY - timedelta(hours=1))
    talk(ada, [f"The ada way, later {n}." for n in range(200)], channel=hall)
    spec = RunSpec(agent=ada, dimensions=("adherence", "consistency"), samples=samples, swap_test="swapped-texts")
    swapped, _ = queue_run(spec)
    rows = swapped.scores.filter(dimension="consistency").select_related("message", "compared_with")
    subject, (row,) = subject_of(swapped), rows[:1]
    proposition = propositions_asked(ada, "consistency")[0]

    measured = SCORERS["consistency"].context(subject, proposition, row.message, row.compared_with).measured
    assert measured is not None
    shown = measured["voice"]

    assert len(swapped.swaps) >= samples
    assert shown["others"] == 12 + sum(map(len, load_foils().values())) - len(swapped.swaps)


def test_the_foils_are_four_voices_with_texts_enough() -> None:
    foils = load_foils()

    assert len(foils) == 4
    for texts in foils.values():
        assert len(set(texts)) >= 20
        assert all(isinstance(text, str) and text.strip() for text in texts)


def test_a_swapped_text_that_was_deleted_meanwhile_is_unscored(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "brief", extra="rule: {max_words: 9}")
    cast("ada", "bob")
    ada = Agent.objects.get(slug="ada")
    run, _ = queue_run(RunSpec(agent=ada, dimensions=("adherence",), samples=4, swap_test="swapped-texts"))
    Message.objects.filter(agent__slug="bob").delete()
    assert work_one(owner="worker:1:x")

    assert set(run.scores.values_list("status", flat=True)) == {"unscored"}


# -- what it costs, and going on
def test_a_broken_file_of_one_agent_leaves_the_others_to_check(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    cast("ada", "bob", "eve")
    llm_server.respond = KNOWS
    propositions.write("adherence/eve.yaml", "propositions: 3\n")
    out = io.StringIO()

    with pytest.raises(CommandError) as ended:
        call_command("check_judge", "--dimensions", "adherence", "--json", stdout=out, stderr=io.StringIO())

    assert (ended.value.returncode, "eve.yaml:1: propositions" in str(ended.value)) == (3, True)
    assert len(json.loads(out.getvalue())["evaluations"]) == 2


def test_a_dry_run_asks_nothing_and_estimates_both_halves(llm_server: LLMServer, price: ModelPrice) -> None:
    cast("ada", "bob")
    llm_server.respond = KNOWS

    document = checked("--dry-run", "--dimensions", "adherence", "--samples", "6")

    assert llm_server.calls == 0
    assert [(one["agent"], one["calls"]) for one in document["agents"]] == [
        ("ada", 6),
        ("ada", 6),
        ("bob", 6),
        ("bob", 6),
    ]
    assert not EvaluationRun.objects.exists()
    checked("--dimensions", "adherence", "--samples", "6")
    assert llm_server.calls == 24
    assert not JudgeCalibration.objects.exclude(dimension="adherence").exists()


def test_the_budget_stops_it_and_the_same_command_goes_on(llm_server: LLMServer, price: ModelPrice) -> None:
    ada, _ = cast("ada", "bob")
    llm_server.respond = KNOWS
    configure(agent=ada, changes={"budget_enabled": True, "daily_budget_usd": "0"})

    with pytest.raises(CommandError, match="paused_budget") as caught:
        command("--dimensions", "adherence")

    assert caught.value.returncode == 2
    assert not JudgeCalibration.objects.exists(), "half a check is no figure"
    made, left = llm_server.calls, EvaluationScore.objects.filter(status="pending").count()
    assert left
    configure(agent=ada, changes={"daily_budget_usd": "9"})

    result = checked("--dimensions", "adherence")["dimensions"]["adherence"]

    assert llm_server.calls == made + left, "what was judged is not asked again"
    assert result["auc"]["value"] == 1.0
    assert set(LLMCall.objects.values_list("agent__slug", flat=True)) == {"ada", "bob"}


def test_without_a_message_nothing_is_asked(llm_server: LLMServer) -> None:
    cast("ada", "bob")
    with pytest.raises(CommandError, match="no message of the agent in the window") as caught:
        command("--where", "build=1")

    assert (caught.value.returncode, llm_server.calls) == (2, 0)


# -- it is a test of the judge, and in no figure of the agent
def test_swapped_texts_are_in_no_figure_of_the_agent(llm_server: LLMServer) -> None:
    cast("ada", "bob")
    llm_server.respond = KNOWS
    checked("--dimensions", "adherence")

    assert EvaluationRun.objects.exclude(swap_test="").count() == 4
    assert not Evidence.objects.exists()
    assert not Baseline.objects.exists()
    for procedure in ("plumbline", "plumbline+swapped-texts"):
        with pytest.raises(ValueError, match=r"no scored judgement|allowed"):
            draw_label_set(name="no", judge="test-model", dimension="adherence", n=9, procedure=procedure)


@pytest.mark.parametrize("fields", [{"is_baseline": True}, {"simulated": True}, {"dimensions": ("fluency",)}])
def test_swapped_texts_are_no_speech_of_the_agent(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="swap"):
        RunSpec(agent=make_agent("eve"), **{"dimensions": ("adherence",), **fields}, swap_test="swapped-texts")


# -- beside the judge's scores
def shown(dimension: str) -> str:
    """What is shown of the judge's swap test."""
    (passport,) = passports("test-model", "plumbline", [dimension])
    row = passport.row("swap test")
    assert row is not None
    return row.text


def test_it_stands_beside_the_scores_of_that_judge(llm_server: LLMServer, root: Client) -> None:
    ada, _ = cast("ada", "bob")
    llm_server.respond = KNOWS
    (before,) = capture([RunSpec(agent=ada, dimensions=("adherence", "consistency"), is_baseline=True)])
    page = page_of(before.summary.run)
    assert "swap test not checked" in read(root, page)
    report = io.StringIO()
    command("--dimensions", "adherence")

    html = read(root, page)
    assert "swap test AUC 1.00 [" in html
    assert "swap test not checked" in html, "consistency"
    assert "swap test AUC 1.00 [" in read(root, page_of(Baseline.objects.filter(dimension="adherence").get()))
    call_command("evaluate", "--agents", "ada", "--dimensions", "adherence,consistency", stdout=report)
    words = " ".join(report.getvalue().split())
    assert "adherence not shown: no human labels yet; swap test AUC 1.00 [" in words
    assert "consistency not shown: no human labels yet; swap test not checked" in words


def test_it_stands_beside_every_verdict_with_the_agents_own_figure(llm_server: LLMServer, root: Client) -> None:
    ada, _ = cast("ada", "bob")
    llm_server.respond = KNOWS
    command("--dimensions", "adherence")
    capture([RunSpec(agent=ada, is_baseline=True, dimensions=("adherence",))])
    later = timezone.now() - timedelta(hours=1)
    talk(ada, [f"Something else, number {n}." for n in range(MESSAGES)], sent_at=later, tags={"build": "2"})
    capture([RunSpec(agent=ada, where={"build": "2"}, dimensions=("adherence",))])
    printed, document = io.StringIO(), io.StringIO()
    for out, option in ((printed, []), (document, ["--json"])):
        with pytest.raises(SystemExit):
            call_command("compare", "--agents", "ada", *option, stdout=out)
    compare_page = f"{reverse('admin:evaluation_evaluationrun_compare')}?agent=ada"
    pages = [compare_page, reverse("admin:evaluation_drift_overview"), page_of(ada), page_of(DriftAlert.objects.get())]

    assert all("swap test AUC 1.00 [" in plain(read(root, page)) for page in pages)
    assert "the agent alone 1.00" in plain(read(root, compare_page))
    assert "no human labels yet" in plain(read(root, compare_page))
    assert "the agent alone 1.00" in " ".join(printed.getvalue().split())
    (comparison,) = json.loads(document.getvalue())["comparisons"]
    rows = {row["name"]: row for row in comparison["dimensions"]["adherence"]["passport"]["rows"]}
    assert (rows["swap test"]["value"], rows["agreement"]["value"]) == (1.0, None)
    assert JUDGE_IS["not shown"] in Alert.objects.get().title


def test_messages_of_other_agents_without_a_time_can_be_swapped_in(llm_server: LLMServer) -> None:
    cast("ada")
    talk(make_agent("old", system_prompt="Old."), ["The old way."] * 12, channel=make_channel("x"), sent_at=None)
    llm_server.respond = KNOWS
    Message.objects.filter(agent__slug="ada").update(sent_at=MONDAY + timedelta(days=1))
    assert timezone.now() > MONDAY

    assert checked("--agents", "ada", "--dimensions", "adherence")["dimensions"]["adherence"]["auc"]["value"] == 1.0
