"""Debates that are cancelled: while they wait, while they are queued, and at every moment while they are played."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from agents.debates.debate import add_message, ask_rounds, cancel, play, work_one
from agents.debates.models import Debate
from agents.debates.report import as_markdown, report
from agents.debates.starting import DebateRefused, start_debate
from agents.kit.models import owner_name
from agents.models import Message, Run
from tests.agents.debates.seats import TOPIC, debated, played, seated
from tests.factories import say


# -- one that nobody plays
@pytest.mark.django_db
@pytest.mark.parametrize("status", ["waiting", "errored"])
def test_one_that_nobody_plays_ends_at_once_and_cannot_go_on(status: str) -> None:
    debate = played(start_debate(topic=TOPIC, mode="adversarial", agents=seated(2), consensus=None, confidence=None), 1)
    Debate.objects.update(status=status)

    assert cancel(debate).status == "cancelled"
    ended = debate.finished_at

    assert ended is not None
    assert not work_one(owner=owner_name())
    assert play(debate, owner=owner_name()).rounds.count() == 2, "the poll and a round: nothing more is played"
    with pytest.raises(DebateRefused, match=r"has ended .cancelled."):
        ask_rounds(debate, 1)
    with pytest.raises(DebateRefused, match="is cancelled"):
        add_message(debate, text="Hello?", outsider="Pat")
    assert cancel(debate).finished_at == ended, "a second time changes nothing"
    shown = report(debate)
    assert [one.status for one in shown.agent_responses] == ["answered"] * 4, "what was said is reported"
    assert "2 seats, 1 round, cancelled." in as_markdown(shown)


@pytest.mark.django_db
def test_its_agents_are_free_for_another_debate() -> None:
    agents = seated(2)
    cancel(ask_rounds(start_debate(topic=TOPIC, mode="delphi", agents=agents), None))

    assert start_debate(topic=TOPIC, mode="delphi", agents=agents).status == "waiting"


@pytest.mark.django_db
def test_one_that_has_ended_stays_as_it_is_and_says_so() -> None:
    debate = debated(2, rounds=1)

    with pytest.raises(DebateRefused, match=r"has ended .completed.; allowed: one that has not"):
        cancel(debate)

    assert Debate.objects.get().status == "completed"


@pytest.mark.django_db
def test_turns_of_a_killed_player_are_cancelled_and_their_answers_reported() -> None:
    """Seat 1 has spoken, seat 2 is in its turn, seat 3 waits; none of it was stored with the debate."""
    debate = start_debate(topic=TOPIC, mode="delphi", agents=seated(3), poll=False)
    Debate.objects.update(status="running", lease_owner="gone:1:x", rounds_asked=1)
    runs = []
    for seat, status in zip(debate.seats.select_related("agent"), ("completed", "running", "pending"), strict=True):
        debate.turns.create(round=1, seat=seat)
        key = f"debate:{debate.pk}:1:{seat.number}"
        runs.append(
            Run.objects.create(agent=seat.agent, channel=debate.channel, status=status, idempotency_key=key, attempt=0)
        )
    message = say(debate.channel, runs[0].agent, "I have spoken.")
    Message.objects.update(run=runs[0])

    cancel(debate)

    shown = report(debate).agent_responses
    assert [(one.status, one.message, one.error) for one in shown] == [
        ("answered", message.pk, ""),
        ("failed", None, "the debate was cancelled"),
        ("failed", None, "cancelled on request"),
    ]
    asked = list(Run.objects.order_by("pk").values_list("status", "cancel_requested"))
    assert asked == [("completed", False), ("running", True), ("cancelled", True)]


# -- one that is being played
class At:
    """Acts before the nth statement that is outside of a transaction and begins with `prefix`, as another process could."""

    def __init__(self, acts: dict[int, Callable[[], Any]], *, prefix: str = "") -> None:
        self.acts, self.prefix, self.seen = acts, prefix, 0

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not connection.in_atomic_block and sql.startswith(self.prefix) and sql != "BEGIN IMMEDIATE":
            self.seen += 1
            if act := self.acts.pop(self.seen, None):
                act()
        return execute(sql, params, many, context)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_cancelled_at_any_moment_no_turn_begins_and_no_answer_is_lost(settings: Settings) -> None:
    settings.WORKER_THREADS = 1
    agents = seated(2)
    moment, statuses = 0, Counter[str]()
    begun: list[set[int]] = []
    while not statuses["completed"]:
        moment += 2
        debate = start_debate(topic=TOPIC, mode="adversarial", agents=agents, rounds=1, poll=False, judge=False)
        ask_rounds(debate, None)
        runs = Run.objects.filter(channel=debate.channel)

        def cancel_now(debate: Debate = debate, runs: Any = runs) -> None:
            with suppress(DebateRefused):  # it has just ended
                cancel(Debate.objects.get(pk=debate.pk))
                begun.append({run.pk for run in runs.all() if run.attempt})

        begun.clear()
        with connection.execute_wrapper(At({moment: cancel_now})):
            play(debate, owner=owner_name())

        debate.refresh_from_db()
        statuses[debate.status] += 1
        if begun:
            assert debate.status == "cancelled", moment
            assert {run.pk for run in runs.all() if run.attempt} == begun[0], moment
        assert not [run for run in runs.all() if run.status in Run.OPEN], moment
        responses = report(debate).agent_responses
        assert not [one for one in responses if one.status == "pending"], moment
        said = set(Message.objects.filter(channel=debate.channel).values_list("pk", flat=True))
        assert {one.message for one in responses if one.message} == said, moment
    assert statuses["cancelled"] > 20


@pytest.mark.django_db(transaction=True)
def test_an_answer_sent_by_another_worker_after_the_cancel_is_reported(
    settings: Settings,
) -> None:
    """The other worker was sending the message already."""
    settings.WORKER_THREADS = 1
    debate = start_debate(topic=TOPIC, mode="adversarial", agents=seated(2), poll=False)
    ada = debate.seats.get(number=1).agent
    run = Run.objects.create(agent=ada, channel=debate.channel, status="running", lease_owner="elsewhere:1:x",
                             lease_expires_at="2126-01-01T00:00Z", idempotency_key=f"debate:{debate.pk}:1:1")  # fmt: skip

    def send() -> None:
        Message.objects.filter(pk=say(debate.channel, ada, "My last word.").pk).update(run=run)
        Run.objects.filter(pk=run.pk).update(status="cancelled", error="cancelled on request")

    ask_rounds(debate, None)
    acts = {1: lambda: cancel(Debate.objects.get(pk=debate.pk)), 3: send}
    with connection.execute_wrapper(At(acts, prefix='UPDATE "debates" SET "lease_expires_at"')):  # while it waits
        play(debate, owner=owner_name())

    debate.refresh_from_db()
    assert debate.status == "cancelled"
    assert [(one.status, one.text) for one in report(debate).agent_responses] == [("answered", "My last word.")]
    assert list(Run.objects.all()) == [run], "seat 2 was not asked"
