"""Beside a message: what the gate did to it, and the way to its session, where verdicts are marked."""

from __future__ import annotations

import uuid

import pytest
from django.test import Client

from agents.models import Message
from correction.models import CorrectionLog, GateDimensionResult
from tests.console import page_of, plain, queries, read, superuser
from tests.correction.judged_drafts import corrected, make_log
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db


def transcript(message: Message) -> str:
    assert message.channel is not None
    return page_of(message.channel, "transcript")


def test_notes_take_constant_queries(root: Client) -> None:
    ada, channel = make_agent(), make_channel()

    def add(number: int) -> None:
        for n in range(number):
            message, session = say(channel, ada, f"Noted {n}."), uuid.uuid4()
            make_log(ada, {"adherence": 2.0, "fluency": 7.0}, outcome="corrected", message=message, session=session)
            make_log(ada, {"adherence": 7.0}, message=message, session=session, attempt=2, committed=True)
        GateDimensionResult.objects.filter(passed=False).update(mark="right", marked_by=superuser(f"u{number}"))

    add(2)
    few = queries(root, page_of(channel, "transcript"))
    add(5)
    many = queries(root, page_of(channel, "transcript"))

    assert len(many) == len(few), "\n".join(many)


def test_a_session_shows_how_long_each_attempt_took(root: Client) -> None:
    log = CorrectionLog.objects.get(session__message=corrected(make_agent()), attempt=1)
    text = plain(read(root, page_of(log)).partition("pl-waterfall")[2].partition("</section>")[0])

    assert "How long it took attempt judging" in text
    assert text.index("Attempt 1 sent back") < text.index("consistency too late") < text.index("Attempt 2 forced")
    assert "Between the attempts the agent wrote its next draft." in text
