"""Interventions and their log over the API."""

from __future__ import annotations

from typing import Any

import pytest

from agents.models import Agent, Run
from correction.interventions.models import Intervention, InterventionLog
from tests.api_client import Program, listed, program, queries
from tests.console import superuser
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db

LOGS, ROWS = "/api/evaluations/intervention-logs/", "/api/evaluations/interventions/"


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def looked_at(agent: Agent | None, name: str = "variety", *, fired: bool = False, **fields: Any) -> InterventionLog:
    return InterventionLog.objects.create(agent=agent, name=name, fired=fired, **fields)


def written(slug: str = "ships", **fields: Any) -> Intervention:
    return Intervention.objects.create(slug=slug, textual_claim="They talk of ships.", nudge="Stop it.", **fields)


def test_the_log_says_what_fired_and_each_entry_why(client: Program, ada: Agent) -> None:
    run = Run.objects.create(agent=ada)
    said = [{"kind": "textual", "text": "They talk of ships.", "held": True, "reasoning": "they do"}]
    row = looked_at(
        ada, "ships", fired=True, intervention=written(), channel=make_channel("office"), run=run,
        preconditions=said, nudge="Stop it.", why="all preconditions hold", judge="m",
    )  # fmt: skip

    brief = client.get(LOGS).json()["results"][0]
    full = client.get(brief["url"]).json()

    assert {name: brief[name] for name in ("id", "name", "intervention", "agent", "channel", "fired", "why", "run")} == {
        "id": row.pk, "name": "ships", "intervention": "ships", "agent": "ada", "channel": "office", "fired": True,
        "why": "all preconditions hold", "run": run.pk,
    }  # fmt: skip
    assert not {"nudge", "preconditions"} & brief.keys()
    assert full == {**brief, "preconditions": said, "nudge": "Stop it.", "calls_url": full["calls_url"]}
    for link in ("intervention_url", "run_url", "calls_url"):
        assert client.get(full[link]).status_code == 200
    assert client.get(f"{LOGS}{row.pk + 1}/").status_code == 404
    assert client.get(f"{LOGS}{10**30}/").status_code == 404


def test_lists_cost_the_same_queries_for_one_row_and_for_thirty(client: Program, ada: Agent) -> None:
    looked_at(ada, "ships", intervention=written())
    few = (queries(client, LOGS), queries(client, ROWS))
    for n in range(29):
        other = make_agent(f"a{n}")
        row = written(f"i{n}")
        row.agents.add(other)
        looked_at(other, row.slug, intervention=row, channel=make_channel(f"c{n}"))

    assert (queries(client, LOGS), queries(client, ROWS)) == few == (2, 4)  # with token; of rows also count and agents


def test_interventions_are_listed_with_whom_they_are_for(client: Program, ada: Agent) -> None:
    everybodys, hers = written("all", is_enabled=True), written("hers", proposition_threshold=4)
    hers.agents.add(ada)
    written("his").agents.add(make_agent("bob"))

    shown = client.get(client.get(ROWS).json()["results"][1]["url"]).json()

    assert (shown["slug"], shown["agents"], shown["proposition_threshold"]) == ("hers", ["ada"], 4.0)
    assert client.get(shown["logs_url"]).json()["results"] == []
    assert listed(client, ROWS, "slug") == ["all", "hers", "his"]
    assert listed(client, f"{ROWS}?agent=ada", "slug") == ["all", "hers"]
    assert listed(client, f"{ROWS}?is_enabled=true", "slug") == [everybodys.slug]
    assert listed(client, f"{ROWS}?search=HERS&ordering=-updated_at", "slug") == ["hers"]
    assert "built-in ones" in client.get(f"{ROWS}variety/").json()["detail"]
