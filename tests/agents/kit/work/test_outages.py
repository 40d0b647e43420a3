"""A database that is away for a moment costs nobody his work."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from django.db import DatabaseError, InternalError, OperationalError, ProgrammingError, connection

from agents.kit.models import owner_name
from agents.kit.running import is_outage, is_unavailable, patient, retry_on_outage
from agents.models import ChannelMember, Run
from agents.turn import orchestrator
from agents.turn.send_message import start_turn
from tests.factories import make_agent, make_channel

LOCKED = OperationalError("database is locked")


def failing(times: int, error: Exception = LOCKED) -> tuple[Callable[[], str], list[int]]:
    tries: list[int] = []

    def action() -> str:
        tries.append(1)
        if len(tries) <= times:
            raise error
        return "done"

    return action, tries


@pytest.mark.django_db(transaction=True)
def test_who_is_not_patient_tries_once_more() -> None:
    action, tries = failing(1)
    assert (retry_on_outage(action), len(tries)) == ("done", 2)

    action, tries = failing(2)
    with pytest.raises(OperationalError, match="locked"):
        retry_on_outage(action)
    assert len(tries) == 2


@pytest.mark.django_db(transaction=True)
def test_who_is_patient_waits_so_long_and_no_longer() -> None:
    action, tries = failing(3)
    with patient(5):
        assert retry_on_outage(action) == "done"

    action, tries = failing(100)
    with patient(0.5), pytest.raises(OperationalError):
        retry_on_outage(action)
    assert 2 < len(tries) < 10


@pytest.mark.django_db(transaction=True)
def test_a_defect_is_no_outage() -> None:
    kind = OperationalError if connection.vendor == "sqlite" else ProgrammingError
    action, tries = failing(1, kind("no such table: nowhere"))

    with patient(5), pytest.raises(kind, match="no such table"):
        retry_on_outage(action)

    assert len(tries) == 1
    assert is_outage(LOCKED)
    assert not is_outage(ValueError("database is locked"))


@pytest.mark.parametrize(
    ("kind", "cause", "outage"),
    [
        (InternalError, psycopg.errors.ReadOnlySqlTransaction, True),
        (OperationalError, psycopg.errors.DiskFull, True),
        (OperationalError, psycopg.errors.AdminShutdown, True),
        (DatabaseError, psycopg.errors.CannotConnectNow, True),
        (InternalError, psycopg.errors.InFailedSqlTransaction, False),
        (ProgrammingError, psycopg.errors.UndefinedTable, False),
        (RuntimeError, psycopg.errors.DiskFull, False),
        (InternalError, ValueError, False),
    ],
)
def test_what_postgresql_says_decides_and_not_its_class_in_django(
    kind: type[Exception], cause: type[Exception], outage: bool
) -> None:
    error = kind("it is so")
    error.__cause__ = cause()

    assert (is_outage(error), is_unavailable(error)) == (outage, outage)


@pytest.mark.django_db
def test_inside_a_transaction_nothing_is_tried_again() -> None:
    action, tries = failing(1)

    with patient(5), pytest.raises(OperationalError):
        retry_on_outage(action)

    assert len(tries) == 1


@pytest.mark.django_db
def test_a_turn_that_met_an_outage_waits_for_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, channel = make_agent("ada"), make_channel("office")
    ChannelMember.objects.create(channel=channel, agent=agent)
    run = start_turn(agent=agent, channel=channel)

    def away(session: object) -> None:
        raise LOCKED

    monkeypatch.setattr(orchestrator, "_exchange_until_end", away)
    with pytest.raises(OperationalError):
        orchestrator.work_one(owner=owner_name())

    run.refresh_from_db()
    assert (run.status, run.lease_owner) == (Run.Status.PENDING, "")
