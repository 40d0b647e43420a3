"""A turn as a timeline in a terminal."""

from __future__ import annotations

import re

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel
from agents.turn import timeline
from tests.agents.turn.playing import plays, take_turn
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
HERE = "tests.agents.turn.stages."


def test_the_timeline_tells_what_was_sent_back_why_and_what_was_said(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Hint", HERE + "Idle", HERE + "Strict"]
    llm_server.reply(text="Let me try.", tool_calls=[("send_message", {"channel": "office", "text": "a bad word"})])
    plays(llm_server, ("send_message", {"channel": "office", "text": "a good word"}), "done")

    run = take_turn(ada, office)
    lines = timeline.lines(run)
    result = "\n".join(re.sub(r"[0-9.]+ ms", "N ms", re.sub(r"^ +[0-9.]+ s", "0 s", line)).strip() for line in lines)

    assert (
        result
        == f"""Turn {run.pk}: Ada in #office
0 s  stages
· hint prepare ran, N ms, hints 1
0 s  model call  (N ms): test-model asks for send_message
Let me try.
0 s  send_message  (N ms): sent back (corrected)
a bad word
Feedback:
It holds the word bad.
· idle review skipped, N ms: off for this agent
· strict review ran, N ms
0 s  model call  (N ms): test-model asks for send_message
0 s  send_message  (N ms): said in office as message 1 (passed_after_retry)
a good word
· idle review skipped, N ms: off for this agent
· strict review ran, N ms
· strict committed ran, N ms
0 s  model call  (N ms): test-model asks for no tool
done
0 s  stages
· strict finish ran, N ms
Ended: completed, ended its turn
The agent's calls: 3, 300 tokens in, 30 out, unpriced"""
    )


def test_a_turn_that_failed_says_why(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    llm_server.always(status=400, message="no such model")

    shown = "\n".join(timeline.lines(take_turn(ada, office)))

    assert "gave no usable answer (rejected)" in shown
    assert "Ended: failed" in shown
