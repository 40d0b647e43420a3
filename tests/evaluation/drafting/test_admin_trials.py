"""A proposition is tried on ten messages in the console: what it costs is said before, what it scored after."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from agents.admin.transcript import transcript_url
from agents.models import LLMCall, ModelPrice
from evaluation.propositions.files import DEFAULT
from tests.console import HOSTILE, plain, read
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drafting.editing import ada, change, url_of
from tests.evaluation.drafting.proposing import make_ada
from tests.evaluation.judging import entry
from tests.factories import MONDAY, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def test_trying_says_before_what_it_costs_and_after_what_it_scored(root: Client, team: PropositionFolder) -> None:
    talk(make_ada("bob", display_name="Bob"), ["not hers"])
    team.write("adherence/ada.yaml", "propositions:\n- {id: brief, claim: c, rule: {max_words: 2}}\n")
    before = read(root, url_of("try", name="brief"))
    assert "has said nothing yet" in plain(before)
    [message, *_] = talk(ada(), ["Hello there.", f"Far too many words {HOSTILE}"])
    before = plain(read(root, url_of("try", name="brief")))
    assert "2 messages of Ada Lund , no call: exact rules and preconditions cost nothing." in before

    html = root.post(url_of("try", name="brief")).content.decode()
    text = plain(html)
    assert "2 scored" in text
    assert "no call was made, it cost nothing" in text
    assert "Hello there." in text
    assert text.index("Far too many") < text.index("Hello there."), "the lowest score first"
    assert transcript_url(message) in html
    assert "<script>alert" not in html


def test_what_is_typed_is_tried_and_not_saved(root: Client, team: PropositionFolder) -> None:
    talk(ada(), ["Hello there.", "One two three."])
    html = change(root, url_of("new"), "_try", claim="{{agent_name}} is brief", max_words="2")

    assert "2 scored" in plain(html)
    assert 'value="2"' in html
    assert not list(team.path.rglob("*.yaml"))
    assert not LogEntry.objects.exists()


def test_a_judge_that_is_asked_has_its_calls_in_the_ledger(root: Client, team: PropositionFolder) -> None:
    talk(ada(), ["to be fair, no.", "Never."])
    team.write("adherence/ada.yaml", "propositions:\n- {id: fair, claim: c, cues: {supports: [to be fair]}}\n")
    assert "2 calls of heuristic" in plain(read(root, url_of("try", name="fair")))
    assert not LLMCall.objects.exists(), "looking costs nothing"
    text = plain(root.post(url_of("try", name="fair")).content.decode())

    assert "1 scored, 1 unscored" in text
    assert "2 calls" in text
    assert set(LLMCall.objects.values_list("purpose", flat=True)) == {"try"}


def test_what_is_asked_of_everybody_is_tried_on_a_chosen_agent(root: Client, team: PropositionFolder) -> None:
    talk(ada(), ["Hello there."])
    team.write("adherence/_default.yaml", "propositions:\n- {id: brief, claim: c, rule: {max_words: 2}}\n")
    url = url_of("try", DEFAULT, "brief")

    assert "On messages of" in plain(read(root, url))
    assert "1 message of Ada Lund" in plain(read(root, f"{url}&agent=ada"))
    assert "1 scored" in plain(root.post(f"{url}&agent=ada").content.decode())


def test_a_paid_judge_is_estimated_before_and_accounted_for_after(
    root: Client, team: PropositionFolder, llm_server: LLMServer
) -> None:
    talk(ada(), [f"line {n}" for n in range(30)])
    team.write("adherence/ada.yaml", "propositions:\n- {id: dry, claim: '{{agent_name}} is dry'}\n")
    prices = {"input_usd": 1, "output_usd": 5, "cache_write_usd": 0, "cache_read_usd": 0}
    ModelPrice.objects.create(model="test-model", effective_from=MONDAY.date(), **prices)
    before = plain(read(root, url_of("try", name="dry")))
    assert "10 messages of Ada Lund , 10 calls of test-model , about" in before
    assert "tokens in and 1,600 out, $0." in before
    assert llm_server.calls == 0
    llm_server.respond = lambda body: {"json": entry(3, reasoning=f"Not dry at all. {HOSTILE}")}
    html = root.post(url_of("try", name="dry")).content.decode()

    assert llm_server.calls == 10
    assert "10 calls, 1,000 tokens in, 100 out, $0.0015" in plain(html)
    assert "Not dry at all." in html
    assert "Every message scores 3: this does not tell messages apart." in plain(html)
    assert "<script>alert" not in html


def test_a_judge_that_does_not_answer_is_a_reason_and_no_score(
    root: Client, team: PropositionFolder, llm_server: LLMServer
) -> None:
    talk(ada(), ["one", "two"])
    team.write("adherence/ada.yaml", "propositions:\n- {id: dry, claim: '{{agent_name}} is dry'}\n")
    llm_server.respond = lambda body: {"status": 500}
    text = plain(root.post(url_of("try", name="dry")).content.decode())

    assert "2 unscored" in text
    assert "Nothing could be scored:" in text
