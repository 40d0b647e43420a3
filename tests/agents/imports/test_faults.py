"""An import outlives workers that die, people who cancel, and permissions that go: nothing is lost, doubled or half done."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agents.imports.choices import Choices, NewAgent
from agents.imports.control import agree, cancel, check_again, try_again
from agents.models import Agent, Import, Message
from agents.transcripts.store import write_batch
from tests.agents.imports.handing_in import MAY_SAY, file, handed_in, lines, somebody, work
from tests.console import staff
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db

TALK = lines(("Ada", "No."), ("Pat", "Is the ferry late?"), ("Ada", "Twenty minutes."))


def said(channel: str = "talk") -> list[tuple[str, str]]:
    rows = Message.objects.filter(channel__slug=channel).order_by("position")
    return [(row.author_name, row.text) for row in rows]


def test_rights_that_were_taken_away_meanwhile_count() -> None:
    user = staff(*MAY_SAY)
    job = handed_in(file(TALK), user=user)
    agree(job, without_agents=True)
    user.user_permissions.clear()

    assert work()

    job.refresh_from_db()
    assert (job.status, said()) == ("failed", [])
    assert "a permission was taken away" in job.error


def test_a_closed_account_imports_nothing() -> None:
    user = somebody()
    job = handed_in(file(TALK), user=user)
    agree(job, without_agents=True)
    user.is_active = False
    user.save()

    assert work()

    job.refresh_from_db()
    assert "has no account here any more" in job.error
    assert said() == []


def test_a_worker_that_dies_half_way_loses_nothing_and_the_count_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.transcripts.importer.BATCH", 2)
    job = handed_in(file(lines(*((f"s{n}", "Hello.") for n in range(5)))))
    agree(job, without_agents=True)
    written: list[int] = []

    def dying(batch: Any, **more: Any) -> Any:
        if written:
            raise KeyboardInterrupt
        written.append(len(batch))
        return write_batch(batch, **more)

    with monkeypatch.context() as patch:
        patch.setattr("agents.transcripts.importer.write_batch", dying)
        with pytest.raises(KeyboardInterrupt):
            work()
    job.refresh_from_db()
    assert (job.status, job.stored, len(said())) == ("pending", 2, 2)

    assert work()

    job.refresh_from_db()
    assert (job.is_done, job.stored, len(said())) == (True, 5, 5)


def test_what_is_cancelled_while_it_is_imported_stores_nothing_more_and_can_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agents.transcripts.importer.BATCH", 2)
    job = handed_in(file(lines(*((f"s{n}", "Hello.") for n in range(6)))))
    agree(job, without_agents=True)

    def cancelling(batch: Any, **more: Any) -> Any:
        result = write_batch(batch, **more)
        if Message.objects.count() == 2:
            cancel(Import.objects.get(pk=job.pk))
        return result

    with monkeypatch.context() as patch:
        patch.setattr("agents.transcripts.importer.write_batch", cancelling)
        assert work()
    job.refresh_from_db()
    assert (job.status, job.stored, len(said())) == ("cancelled", 2, 2)
    assert not work()

    try_again(job)
    assert work()
    job.refresh_from_db()
    assert (job.is_done, job.stored, len(said())) == (True, 6, 6)


def test_a_crash_is_errored_and_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    job = handed_in(file(TALK))
    agree(job, without_agents=True)
    with monkeypatch.context() as patch:
        patch.setattr("agents.imports.work.write_into", lambda *_args, **_more: 1 / 0)
        assert work()
    job.refresh_from_db()
    assert (job.status, job.error) == ("errored", "ZeroDivisionError: division by zero")

    try_again(job)
    assert work()
    assert len(said()) == 3


def test_a_lost_import_is_taken_up_by_the_next_worker() -> None:
    job = handed_in(file(TALK))
    agree(job, without_agents=True)
    Import.objects.update(
        status="running", lease_owner="elsewhere:1:x", lease_expires_at=timezone.now() - timedelta(minutes=1)
    )

    assert work()
    assert len(said()) == 3


def test_an_agent_somebody_made_meanwhile_is_not_given_a_strangers_words() -> None:
    job = handed_in(file(lines(("Guide", "Two."))))
    check_again(job, Choices(made={"Guide": NewAgent("guide", "Guide", "You are the guide.")}))
    agree(job)
    make_agent("guide")

    assert work()

    job.refresh_from_db()
    assert "made by somebody else" in job.error
    assert said() == []


def test_no_agent_is_left_behind_by_an_import_that_was_refused() -> None:
    user = somebody()
    make_channel("talk")
    job = handed_in(file(lines(("Guide", "Two."), ("Ada", "No."))), user=user)
    check_again(job, Choices(made={"Guide": NewAgent("guide", "Guide", "You are the guide.")}))
    agree(job)
    make_agent("ada")  # who would have to join the channel
    user.user_permissions.remove(*user.user_permissions.filter(codename="add_channelmember"))

    assert work()

    job.refresh_from_db()
    assert job.status == "failed"
    assert not Agent.objects.filter(slug="guide").exists()
