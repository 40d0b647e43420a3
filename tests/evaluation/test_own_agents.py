"""What is shipped for the example agents applies to these alone, never to a team's own agent of the same name."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from agents.models import Agent
from agents.personas.persona import upsert_agent
from agents.personas.reader import import_agents
from agents.seed import loader
from correction.interventions.nudges import NudgeType, load_nudges, nudge_text
from evaluation.runs.planning import make_plan
from evaluation.runs.spec import RunSpec
from tests.api_client import program
from tests.console import plain, read, superuser
from tests.correction.gating import configure, join, logs, send
from tests.correction.interventions.steering import context_of
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db
LAWYER = "You are Kelly, a terse tax lawyer. At most one sentence. No exclamation marks."
EXAMPLE = next(p for p in loader.personas() if p.slug == "kelly")


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"


def example_kelly() -> Agent:
    return upsert_agent(values=EXAMPLE, note=loader.NOTE, source="seed").agent


def by_import(tmp_path: Path, *, reset: bool = False) -> Agent:
    (tmp_path / "kelly.md").write_text(LAWYER)
    import_agents(path=tmp_path / "kelly.md", reset=reset)
    return Agent.objects.get(slug="kelly")


def in_place_of_the_example(tmp_path: Path) -> Agent:
    example_kelly()
    return by_import(tmp_path, reset=True)


def by_hand(tmp_path: Path) -> Agent:
    return make_agent("kelly", system_prompt=LAWYER)


@pytest.fixture
def own_kelly(tmp_path: Path) -> Agent:
    return in_place_of_the_example(tmp_path)


def asked_of(agent: Agent) -> set[str]:
    return {p.id for group in make_plan(RunSpec(agent=agent)).propositions.values() for p in group}


@pytest.mark.parametrize("made", [by_import, in_place_of_the_example, by_hand])
def test_an_agent_of_ones_own_is_asked_no_proposition_of_an_example(
    made: Callable[[Path], Agent], tmp_path: Path
) -> None:
    kelly = made(tmp_path)

    assert not kelly.seeded
    assert asked_of(kelly)
    assert not [i for i in asked_of(kelly) if i.startswith("kelly-")]


def test_its_drafts_are_not_sent_back_for_an_examples_manner(own_kelly: Agent) -> None:
    configure(own_kelly, "adherence")
    join(own_kelly)

    assert send(own_kelly, own_kelly.memberships.get().channel, "The filing is due on the third.").committed
    parts = [part for log in logs() for result in log.dimension_results.all() for part in result.parts]
    assert not [part for part in parts if part["id"].startswith("kelly-")]


def test_it_gets_the_nudges_for_every_agent(own_kelly: Agent) -> None:
    context = context_of(own_kelly, make_channel())

    assert {nudge_text(context, kind) for kind in NudgeType}.isdisjoint(load_nudges()["kelly"].values())


def test_the_console_and_the_api_show_what_is_asked_of_it(own_kelly: Agent, root: Client) -> None:
    page = read(root, reverse("admin:evaluation_proposition_change", args=["kelly"]))
    found = program(superuser("bot")).get(reverse("proposition-list"), {"agent": "kelly"}).json()

    assert "kelly-" not in plain(page)
    assert not [row for row in found["results"] if row["id"].startswith("kelly-")]


def test_its_teams_own_propositions_apply_by_its_name(own_kelly: Agent, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "team" / "adherence").mkdir(parents=True)
    (tmp_path / "team" / "adherence" / "kelly.yaml").write_text(
        "propositions:\n  - {id: kelly-terse, claim: '{{agent_name}} is terse', rule: {max_sentences: 1}}\n"
    )
    settings.PROPOSITION_DIRS = [tmp_path / "team"]

    assert {i for i in asked_of(own_kelly) if i.startswith("kelly-")} == {"kelly-terse"}


def test_an_example_keeps_its_propositions_and_nudges_also_after_an_edit() -> None:
    kelly = example_kelly()
    kelly.system_prompt += " You have a cat."
    kelly.save()
    loader.seed()
    kelly.refresh_from_db()

    assert kelly.seeded
    assert len([i for i in asked_of(kelly) if i.startswith("kelly-")]) >= 6
    assert (
        nudge_text(context_of(kelly, make_channel("x")), NudgeType.NEW_IDEAS)
        == load_nudges()["kelly"][NudgeType.NEW_IDEAS]
    )


def test_seeding_leaves_an_agent_of_ones_own_alone_unless_it_overwrites_it(tmp_path: Path) -> None:
    by_import(tmp_path)
    loader.seed()
    assert not Agent.objects.get(slug="kelly").seeded
    loader.seed(reset=True)
    assert Agent.objects.get(slug="kelly").seeded


def test_check_propositions_names_the_collision(own_kelly: Agent) -> None:
    out, err = StringIO(), StringIO()
    call_command("check_propositions", stdout=out, stderr=err)

    assert err.getvalue().count("is for the example agent kelly") >= 1
    assert "the agent kelly here is your own" in err.getvalue()


def test_an_agent_in_place_of_an_example_has_none_of_its_prompt(own_kelly: Agent) -> None:
    assert not own_kelly.memory_blocks.exists()
    assert (own_kelly.title, own_kelly.description, own_kelly.sample_lines) == ("", "", [])
