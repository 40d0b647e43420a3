"""Baselines in the console: on the agents' pages, marked when stale, captured from the list."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from agents.models import Agent
from agents.personas.persona import TraitValue, save_persona
from evaluation.change.models import Baseline
from evaluation.change.stored import store_ended
from evaluation.models import EvaluationRun
from tests.console import list_of, read, tab_of
from tests.evaluation.judged import LLM, OFFLINE, cells, make_baseline, make_run, make_score
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db


def test_each_judge_has_its_own_line_and_a_changed_persona_is_marked(root: Client) -> None:
    agent = make_agent(traits=[TraitValue("dry")])
    make_baseline(agent, make_run(agent))
    make_baseline(agent, make_run(agent, judge=OFFLINE), score=3.5)
    fresh = read(root, list_of(Agent))
    save_persona(agent=agent, traits=[TraitValue("dry", strength=0.0)], note="edit")

    assert cells(fresh, "baseline_column") == [f"{LLM} adherence 7.2 → – heuristic lexical-1 adherence 3.5 → –"]
    assert fresh.count('class="pl-line"') == 2
    stale = cells(read(root, list_of(Agent)), "baseline_column")
    assert stale == [f"{LLM} adherence 7.2 → – stale heuristic lexical-1 adherence 3.5 → – stale"]
    assert "stale" in read(root, tab_of(agent, "history"))
    assert cells(read(root, list_of(Baseline)), "stale") == ["stale version 2, edit: dry 0.5 → 0"] * 2


def test_agents_are_listed_with_current_scores_beside_baselines_lowest_dimension_first(
    root: Client,
) -> None:
    ada = make_agent()
    dimensions = ["adherence", "fluency"]
    captured = make_run(ada, dimensions=dimensions, persona_digest="p")
    for name in dimensions:
        make_baseline(ada, captured, dimension=name, score=8)
        make_score(captured, 8, dimension=name, over_window=name == "adherence")
    now = make_run(ada, dimensions=dimensions, overall_score=4.6)
    make_score(now, 8, dimension="adherence", over_window=True)
    make_score(now, 1, dimension="fluency")
    for score in (9, 9):
        make_score(make_run(ada, hard=True), score)
    store_ended(now)

    assert cells(read(root, list_of(Agent)), "baseline_column") == ["fluency 8.0 → 1.0 adherence 8.0 → 8.0"]
    assert cells(read(root, list_of(EvaluationRun, f"?id__exact={now.pk}")), "overall")[0].startswith("4.6 fluency 1.0")


@pytest.fixture
def _one_proposition(settings: Settings, tmp_path: Path) -> None:
    """A team's own propositions, and none of ours."""
    (tmp_path / "adherence").mkdir()
    (tmp_path / "adherence" / "_default.yaml").write_text(
        "dimension: adherence\npropositions:\n  - id: short\n    claim: '{{agent_name}} is short'\n    rule: {max_words: 5}\n"
    )
    settings.PROPOSITIONS_DIR = tmp_path


@pytest.mark.usefixtures("_one_proposition")
def test_a_baseline_is_captured_from_the_list_of_agents(root: Client) -> None:
    ada, bob, _ = make_agent(), make_agent("bob"), make_agent("eve")
    for agent in (ada, bob):
        say(make_channel(agent.slug), agent, "Noted.")
    chosen = {"action": "capture_baseline", "confirmed": "1", "_selected_action": [str(ada.pk), str(bob.pk)]}
    answer = root.post(list_of(Agent), chosen, follow=True).content.decode()

    assert "2 baselines are queued" in answer
    runs = EvaluationRun.objects.order_by("pk")
    assert [(run.agent, run.status, run.is_baseline) for run in runs] == [
        (ada, "pending", True),
        (bob, "pending", True),
    ]


@pytest.mark.usefixtures("_one_proposition")
def test_the_list_of_agents_never_replaces_a_baseline_of_tagged_messages(root: Client) -> None:
    ada, bob = make_agent(), make_agent("bob")
    make_baseline(ada, make_run(ada, judge=OFFLINE, where={"build": "7"}))
    chosen = {"action": "capture_baseline", "confirmed": "1", "_selected_action": [str(ada.pk), str(bob.pk)]}

    answer = root.post(list_of(Agent), chosen, follow=True).content.decode()

    assert "build=7" in answer
    assert reverse("admin:evaluation_agent_capture", args=[ada.pk]) in answer
    assert list(EvaluationRun.objects.filter(status="pending").values_list("agent", flat=True)) == [bob.pk]
