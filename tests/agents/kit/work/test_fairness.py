"""Whose work comes next: whoever was served longest ago, however much others have queued."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.kit.models import LastServed, owner_name
from agents.kit.models.lease import CANDIDATES
from agents.kit.work.queues import declared_queues, work_queues
from agents.models import Agent, Message, Run
from correction.models import ObservedMessage
from evaluation.models import EvaluationRun
from evaluation.runs.execute import work_one
from evaluation.runs.planning import create_run, make_plan
from evaluation.runs.spec import RunSpec
from tests.factories import make_agent, make_channel, say, talk

pytestmark = pytest.mark.django_db

LEASE = timedelta(minutes=5)


def queue_turns(agent: Agent, count: int) -> list[Run]:
    return Run.objects.bulk_create(Run(agent=agent) for _ in range(count))


def take_in_turn(count: int) -> list[str]:
    """Whose turns are taken, one after the other."""
    taken = []
    for _ in range(count):
        run = Run.acquire_next(owner="me", lease=LEASE)
        assert run is not None
        run.finish(owner="me", status="completed")
        taken.append(run.agent.slug)
    return taken


def test_one_agents_backlog_does_not_stand_before_anothers_single_turn() -> None:
    queue_turns(make_agent("busy"), 500)
    assert take_in_turn(3) == ["busy"] * 3
    queue_turns(make_agent("single"), 1)

    assert take_in_turn(3) == ["single", "busy", "busy"]


def test_evaluations_of_agents_and_channels_come_in_turn(settings: object) -> None:
    many, few = make_agent("many"), make_agent("few")
    talk(many, ["one", "two"])
    talk(few, ["three"])
    for seed in range(3):
        create_run(make_plan(RunSpec(agent=many, dimensions=("adherence",), seed=seed)))
    create_run(make_plan(RunSpec(agent=few, dimensions=("adherence",))))

    whose = [run.agent.slug for run in EvaluationRun.in_turn() if run.agent]

    assert whose[:3] == ["many", "few", "many"]


def test_an_agents_only_line_does_not_wait_for_all_lines_of_another() -> None:
    """However many wait: 2,000 are more than a look could have ranked."""
    busy, single = make_agent("busy"), make_agent("single")
    channel = make_channel()
    lines = Message.objects.bulk_create(
        Message(channel=channel, agent=busy, text="x", position=n) for n in range(1, 2_001)
    )
    channel.next_position = 2_001
    channel.save()
    last = say(channel, single, "x")
    ObservedMessage.objects.bulk_create(
        ObservedMessage(message=message, session=uuid.uuid4(), whose=message.agent_id or 0)
        for message in (*lines, last)
    )

    assert [row.message_id for row in ObservedMessage.in_turn()[:3]] == [lines[0].pk, last.pk, lines[1].pk]


def test_a_line_whose_agent_is_gone_is_not_forgotten() -> None:
    message = say(make_channel(), "a person", "x")
    waiting = ObservedMessage.objects.create(message=message, session=uuid.uuid4())

    assert ObservedMessage.in_turn() == [waiting]


def test_more_agents_than_a_look_finds_are_all_served_before_anybody_again() -> None:
    slugs = [f"agent-{n}" for n in range(CANDIDATES + 5)]
    for slug in slugs:
        queue_turns(make_agent(slug), 2)

    assert take_in_turn(2 * len(slugs)) == slugs * 2


def test_who_lost_a_race_for_an_evaluation_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    ada = make_agent("ada")
    talk(ada, ["one"])
    run = create_run(make_plan(RunSpec(agent=ada, dimensions=("adherence",))))
    seen = EvaluationRun.in_turn()
    assert run.acquire(owner="faster", lease=LEASE)
    monkeypatch.setattr(EvaluationRun, "in_turn", lambda: seen)

    assert not work_one(owner="slower")

    assert not LastServed.objects.exists()


def test_a_look_costs_the_same_whatever_waits() -> None:
    def queries(looks: int) -> int:
        with CaptureQueriesContext(connection) as seen:
            for _ in range(looks):
                assert Run.in_turn()
        return len(seen)

    queue_turns(make_agent("ada"), 2)
    few = queries(1)
    for slug in ("bob", "cy"):
        queue_turns(make_agent(slug), 50)

    assert queries(1) == few == 3


def test_lost_turns_come_before_all_others() -> None:
    """They hold their agent until they end."""
    queue_turns(make_agent("ada"), 2)
    lost = queue_turns(make_agent("bob"), 1)[0]
    assert lost.acquire(owner=owner_name().replace(":", "-elsewhere:", 1), lease=LEASE)
    lost.note_served()
    Run.objects.filter(pk=lost.pk).update(lease_expires_at=timezone.now() - LEASE)

    assert Run.in_turn()[0] == lost


def test_workers_look_at_queues_in_the_order_set_and_unnamed_ones_last(settings: Any) -> None:
    there = declared_queues()
    assert there.keys() <= set(settings.QUEUE_ORDER)
    assert list(work_queues()) == list(there) == [name for name in settings.QUEUE_ORDER if name in there]

    settings.QUEUE_ORDER = ["evaluations", "turns"]
    assert list(declared_queues())[:2] == ["evaluations", "turns"]
    assert declared_queues() == there
