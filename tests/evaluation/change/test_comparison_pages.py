"""The console shows a measurement beside the baseline: on the run's page and on the agent's, never on lists."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from agents.models import Agent
from agents.persona import TraitValue, save_persona
from evaluation.admin import comparison
from evaluation.models import EvaluationRun
from tests.console import list_of, page_of, queries, read
from tests.evaluation.judged import make_baseline, make_run, make_score
from tests.factories import make_agent, make_channel, talk

pytestmark = pytest.mark.django_db


def judged(agent: Agent, score: int, *, messages: int = 8, **fields: Any) -> EvaluationRun:
    """A run that scored each of some new messages alike."""
    run = make_run(agent, **fields)
    channel = make_channel(f"{agent.slug}-{run.pk}")
    for message in talk(agent, [f"{run.pk} {n}" for n in range(messages)], channel=channel):
        make_score(run, score, message=message)
    return run


@pytest.fixture
def ada() -> Agent:
    """An agent with a baseline of 8 and a newer evaluation of 3."""
    agent = make_agent("ada")
    make_baseline(agent, judged(agent, 8))
    judged(agent, 3)
    return agent


def newest(agent: Agent) -> EvaluationRun:
    run: EvaluationRun = EvaluationRun.objects.filter(agent=agent).latest("pk")
    return run


def test_a_run_is_shown_beside_the_baseline(root: Client, ada: Agent) -> None:
    page = read(root, page_of(newest(ada)))

    assert "Compared with the baseline of " in page
    for text in ("−5.00", ">drifted</span>"):
        assert text in page, text
    assert re.search(r"−[5-9]\.\d to −[0-4]\.\d", page)


def test_the_agents_page_shows_the_newest_evaluation_beside_the_baseline(root: Client, ada: Agent) -> None:
    page = read(root, page_of(ada))

    assert f"evaluation {newest(ada).pk}" in page
    assert re.search(r"−[5-9]\.\d to −[0-4]\.\d", page)
    assert "a difference is not drift alone" not in page


def test_an_edited_persona_marks_the_comparison_stale(root: Client, ada: Agent) -> None:
    baseline = ada.baselines.get()
    baseline.evaluation_run.persona_digest = baseline.persona_digest
    baseline.evaluation_run.save()
    save_persona(agent=ada, traits=[TraitValue("loud")], note="edit")
    run = judged(ada, 3, persona_digest="of the new persona")

    for page in (page_of(run), page_of(ada)):
        assert "a difference is not drift alone" in read(root, page)


def test_nothing_is_compared_where_there_is_nothing_to_compare_with(root: Client, ada: Agent) -> None:
    baseline = ada.baselines.get().evaluation_run
    alone = judged(make_agent("bob"), 5)
    other = judged(ada, 3, judge="another-model")
    failed = judged(ada, 3, status="failed")

    for run in (baseline, alone, other, failed):
        assert "Compared with" not in read(root, page_of(run))


def test_too_many_judgements_are_left_to_the_command(root: Client, ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "MOST_JUDGEMENTS", 15)

    for page in (page_of(newest(ada)), page_of(ada)):
        assert "<code>manage.py compare --agents ada</code>" in read(root, page)


def test_the_pages_take_no_more_queries_for_more_judgements_and_lists_none(root: Client, ada: Agent) -> None:
    bob = make_agent("bob")
    make_baseline(bob, judged(bob, 8, messages=60))
    judged(bob, 3, messages=60)

    for few, many in ((newest(ada), newest(bob)), (ada, bob)):
        assert len(queries(root, page_of(few))) == len(queries(root, page_of(many)))
    for model in (Agent, EvaluationRun):
        assert not any("evaluation_scores" in sql and "AVG" in sql for sql in queries(root, list_of(model)))


def test_a_hostile_name_stays_text(root: Client) -> None:
    agent = make_agent("eve", display_name="<script>alert(1)</script>")
    make_baseline(agent, judged(agent, 8))
    run = judged(agent, 3)

    assert "<script>alert(1)" not in read(root, page_of(run))
