"""*Evaluate now* and *Capture baseline*: what it takes, a click, and the evaluation's own page."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from agents.kit.models import LLMCall
from agents.models import Agent
from evaluation.models import EvaluationRun
from tests.console import confirm, page_of, plain, read
from tests.evaluation.judged import LLM, OFFLINE
from tests.factories import make_agent, talk

pytestmark = pytest.mark.django_db

PROPOSITIONS = """dimension: adherence
propositions:
  - id: voice
    claim: '{{agent_name}} is dry'
  - id: short
    claim: '{{agent_name}} is short'
    rule: {max_words: 5}
"""


USUAL = {
    **{"dimensions": ["adherence"], "samples": "5", "window": "all", "judge": OFFLINE},
    **{"repeats": "1", "seed": "0", "per_call": "10", "method": "plumbline", "history": "before"},
}


@pytest.fixture(autouse=True)
def _two_propositions(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "adherence").mkdir()
    (tmp_path / "adherence" / "_default.yaml").write_text(PROPOSITIONS)
    settings.PROPOSITIONS_DIR = tmp_path
    settings.TRAIT_PROPOSITIONS = False
    settings.JUDGE_MODEL = OFFLINE


@pytest.fixture
def ada() -> Agent:
    agent = make_agent()
    talk(agent, [f"Noted {number}." for number in range(12)])
    return agent


def ask(agent: Agent, what: str = "evaluate") -> str:
    return reverse(f"admin:evaluation_agent_{what}", args=[agent.pk])


def test_calls_tokens_and_dollars_stand_before_the_button(root: Client, ada: Agent, settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.ANTHROPIC_API_KEY = LLM, "key"
    text = plain(read(root, ask(ada)))

    assert "Judgements 24 12 without a call" in text
    assert "Calls of the judge 12" in text
    assert "Cost, estimated $0.0" in text
    assert not EvaluationRun.objects.exists()
    assert not LLMCall.objects.exists()


def test_choices_that_no_message_fits_are_said_before_the_button(root: Client, ada: Agent) -> None:
    said = "Nothing would be judged: no message fits these choices."
    assert said not in read(root, ask(ada))
    assert said in read(root, f"{ask(ada)}?tag=build%3D99")


def test_a_judge_without_a_key_is_estimated_and_cannot_be_asked(root: Client, ada: Agent, settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.ANTHROPIC_API_KEY = LLM, ""
    asked = {**USUAL, "judge": LLM}
    for what in ("evaluate", "capture"):
        text = plain(read(root, ask(ada, what)))
        assert "Calls of the judge 12" in text
        assert "no key is set" in text

        confirm(root, ask(ada, what), **asked)

    assert not EvaluationRun.objects.exists()


def test_a_click_queues_what_was_estimated_and_leads_to_its_progress(root: Client, ada: Agent) -> None:
    answer = confirm(root, ask(ada), **{**USUAL, "samples": "7"})
    run = EvaluationRun.objects.get()

    assert answer["Location"] == page_of(run)
    assert (run.agent, run.status, run.dimensions, run.samples, run.is_baseline) == (
        ada,
        "pending",
        ["adherence"],
        7,
        False,
    )
    page = read(root, answer["Location"])
    assert "data-live" in page
    assert f"Evaluation {run.pk} is queued" in page
    assert f"Under way already: evaluation {run.pk} ." in plain(read(root, ask(ada)))


def test_who_said_too_little_is_simulated_first_and_the_page_says_so(root: Client) -> None:
    bob = make_agent("bob", sample_lines=["Fine."])
    assert "a worker simulates conversations with it first" in read(root, ask(bob, "capture"))
    confirm(root, ask(bob, "capture"), **{**USUAL, "samples": "20"})

    assert EvaluationRun.objects.get().simulated


def test_an_actor_without_lines_is_not_simulated_and_the_page_says_so(root: Client) -> None:
    bob = make_agent("bob")
    html = read(root, ask(bob, "capture"))
    assert "a worker simulates" not in html
    assert "not simulated: no sample lines" in html
    confirm(root, ask(bob, "capture"), **{**USUAL, "samples": "20"})

    assert not EvaluationRun.objects.get().simulated


def test_a_proposition_file_that_cannot_be_used_is_named(root: Client, ada: Agent, tmp_path: Path) -> None:
    (tmp_path / "adherence" / "_default.yaml").write_text("dimension: adherence\npropositions: 7\n")

    assert "_default.yaml" in read(root, ask(ada))
