"""``manage.py try_proposition FILE:ID``: scores, reasons and cost on a few messages, without an evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.kit.models import LLMCall, ModelPrice
from agents.models import Agent
from evaluation.drafting.trying import Trial, try_proposition
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.propositions.rules import Rule
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drafting.proposing import document, run
from tests.evaluation.judging import claim, entry, tail_of
from tests.factories import MONDAY, make_agent, talk
from tests.llm_server import LLMServer

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("propositions")]


@pytest.fixture
def speaker() -> Agent:
    agent = make_agent("ada")
    talk(agent, [f"line {n}" for n in range(30)])
    return agent


@pytest.fixture
def file(propositions: PropositionFolder) -> Path:
    return propositions.write(
        "adherence/ada.suggestions.yaml",
        """
        propositions:
          - {id: dry, claim: "{{agent_name}} is dry", active: false, source: "a dry clerk"}
          - {id: short, claim: "{{agent_name}} is short", rule: {max_words: 3}}
          - {id: asked, claim: "{{agent_name}} answers", precondition: asks_something}
          - {id: gone, claim: "{{agent_name}} is loud", active: false, rejected: true}
        """,
    )


def by_line(body: dict[str, Any]) -> dict[str, Any]:
    """Lines with a 2 in them score 3, others 8."""
    line = tail_of(body).split("line ")[1].split()[0]
    return {"json": entry(3 if "2" in line else 8, reasoning=f"Reads like {line}.")}


def test_a_draft_is_judged_on_ten_messages_and_only_calls_are_stored(
    llm_server: LLMServer, speaker: Agent, file: Path
) -> None:
    llm_server.respond = by_line
    code, out = run("try_proposition", f"{file}:dry")

    assert code == 0
    assert "dry (not active) on 10 messages of ada, judged by test-model" in out
    assert out.count("Reads like") == 10
    assert "“line " in out
    assert "10 scored." in out
    assert "10 calls, 1,000 tokens in, 100 out, cost unpriced. No evaluation was stored." in out
    assert llm_server.calls == 10
    assert not EvaluationRun.objects.exists()
    assert not EvaluationScore.objects.exists()
    assert set(LLMCall.objects.values_list("purpose", "agent_id", "dimension")) == {("try", speaker.pk, "adherence")}


def test_mean_spread_and_cost_are_of_what_was_scored(llm_server: LLMServer, speaker: Agent, file: Path) -> None:
    prices = {"input_usd": 1, "output_usd": 5, "cache_write_usd": 1, "cache_read_usd": 1}
    ModelPrice.objects.create(model="test-model", effective_from=MONDAY.date(), **prices)
    llm_server.reply(json=entry(9))
    llm_server.reply(json=entry(3))
    llm_server.reply(json=entry(6))
    llm_server.reply(json=entry(9, evidence="absent"))
    llm_server.reply(status=401)
    result = document("try_proposition", f"{file}:dry", "--n", "5")

    assert (result["mean"], result["spread"], result["noise"]) == (6.0, 3.0, None)
    assert (result["scored"], result["trivial"], result["unscored"]) == (3, 1, 1)
    assert result["calls"] == 5
    assert result["cost_usd"] == pytest.approx(4 * (100 * 1 + 10 * 5) / 1e6)
    failed = [m for m in result["messages"] if m["score"] is None]
    assert {m["judgements"][0]["status"] for m in failed} == {"trivial", "unscored"}


def test_repeats_show_the_noise_of_the_judge(llm_server: LLMServer, speaker: Agent, file: Path) -> None:
    values = iter([4, 6] * 3)
    llm_server.respond = lambda body: {"json": entry(next(values))}
    result = document("try_proposition", f"{file}:dry", "--n", "3", "--repeats", "2")

    assert llm_server.calls == 6
    assert [len(m["judgements"]) for m in result["messages"]] == [2, 2, 2]
    assert result["scored"] == 6
    assert result["noise"] > 0


def test_the_same_seed_draws_the_same_messages(llm_server: LLMServer, speaker: Agent, file: Path) -> None:
    llm_server.always(json=entry(5))
    one, two, three = (
        [m["message"] for m in document("try_proposition", f"{file}:dry", "--seed", seed)["messages"]]
        for seed in ("1", "1", "2")
    )

    assert one == two != three
    assert one == sorted(one)


def test_a_rule_is_checked_without_any_call(llm_server: LLMServer, speaker: Agent, file: Path) -> None:
    code, out = run("try_proposition", f"{file}:short", "--repeats", "3")

    assert code == 0
    assert "judged by rule" in out
    assert f"“{speaker.display_name} is short”" in out
    assert "Mean 9.0 of 9, spread between messages 0.0; 10 scored." in out
    assert "No call was made, it cost nothing." in out
    assert "Every message scores 9: this does not tell good from bad messages." in out
    assert llm_server.calls == 0


def test_a_judge_that_is_down_gives_no_number_and_ends_with_2(
    llm_server: LLMServer, speaker: Agent, file: Path
) -> None:
    llm_server.always(status=400)
    code, out = run("try_proposition", f"{file}:dry", "--n", "3")

    assert code == 2
    assert "Mean – of 9; 3 unscored." in out
    assert "Nothing could be scored: rejected" in out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nowhere.yaml:x",), "nowhere.yaml: cannot be read"),
        (("{file}:nothing",), "has no proposition 'nothing'; it has: short, asked, dry, gone"),
        (("{file}:dry", "--agent", "ada,ada2"), "name exactly one agent"),
        (("{file}:dry", "--n", "0"), "n 0: 1 to 1000"),
        (("{default}:x",), "speaks of every agent: name one with --agent"),
        (("{fluency}:y", "--agent", "ada"), "y is of fluency, judged over a window; allowed: adherence"),
        (("{action}:z", "--agent", "ada"), "z speaks of a draft ({{action}})"),
    ],
)
def test_wrong_usage_is_refused(
    propositions: PropositionFolder, speaker: Agent, file: Path, args: tuple[str, ...], said: str
) -> None:
    make_agent("ada2")
    paths = {
        "file": file,
        "default": propositions.claims("adherence/_default.yaml", "x"),
        "fluency": propositions.claims("fluency/_default.yaml", "y"),
        "action": propositions.write(
            "adherence/_default.action.yaml", "level: action\npropositions: [{id: z, claim: 'is {{action}}'}]"
        ),
    }
    code, out = run("try_proposition", *(part.format(**paths) for part in args))

    assert (code in (2, 3), said in out) == (True, True), out


# -- what the figures are made of
def tried(speaker: Agent, rule: Rule, n: int = 10) -> Trial:
    return try_proposition(proposition=claim(rule=rule), agent=speaker, n=n)


def test_hints_are_about_what_tells_nothing_apart(speaker: Agent) -> None:
    assert tried(speaker, Rule(max_words=9)).hint.startswith("Every message scores 9")
    assert tried(speaker, Rule(max_words=1)).hint.startswith("Every message scores 0")
    assert tried(speaker, Rule(not_matches="2")).hint == ""
    assert tried(speaker, Rule(max_words=9), n=4).hint == "", "four messages say nothing"


def test_hostile_messages_and_markup_are_shown_as_they_are(llm_server: LLMServer, file: Path) -> None:
    talk(make_agent("ada"), ["[red]boo[/red] \x1b[31m \u202eabc"])
    llm_server.always(json=entry(7, reasoning="[/bold] \x1b[0m"))
    code, out = run("try_proposition", f"{file}:dry")

    assert code == 0
    assert "[red]boo[/red] <U+001B>[31m <U+202E>abc" in out
    assert "[/bold] <U+001B>[0m" in out
    assert json.loads(run("try_proposition", f"{file}:dry", "--json")[1])["messages"][0]["text"].startswith("[red]")
