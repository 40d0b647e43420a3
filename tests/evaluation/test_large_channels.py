"""A conversation of 20,000 messages: every dimension has its result, and no more is in memory than for a short one."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel, Message
from evaluation.models import IdeaPart
from evaluation.runs.ideas import distinct_ideas
from evaluation.windows import parse_window
from tests.evaluation.measuring import evaluate_agent, evaluate_channel
from tests.factories import MONDAY, make_agent, make_channel

pytestmark = pytest.mark.django_db

MANY = 20_000
ALLOWED = 30_000  # kB above what the process held before; as objects the messages would take some 40 MB
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident(name: str) -> int:
    """Memory of this process in kB: ``VmRSS`` now, ``VmHWM`` at its peak since that was reset."""
    found = re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text())
    assert found is not None
    return int(found[1])


@pytest.fixture
def long_channel() -> tuple[Agent, Channel]:
    ada, bea, channel = make_agent("ada"), make_agent("bea"), make_channel()
    for start in range(1, MANY + 1, 5_000):
        Message.objects.bulk_create(
            Message(
                channel=channel,
                agent=(ada, bea)[n % 2],
                position=n,
                text="Idea: a roof garden." if n % 8_000 == 1 else f"Message {n}: the drawer was counted again.",
                sent_at=MONDAY + timedelta(minutes=n),
            )
            for n in range(start, start + 5_000)
        )
    return ada, channel


@pytest.mark.slow
@pytest.mark.skipif(not RESET.exists(), reason="peaks of memory can be reset on Linux only")
def test_twenty_thousand_messages_have_their_results_in_little_memory(
    settings: Settings, long_channel: tuple[Agent, Channel]
) -> None:
    settings.JUDGE_MODEL, settings.PROPOSITION_DIRS = "offline:lexical-1", []
    ada, channel = long_channel

    evaluate_agent(agent=ada, dimensions=("fluency",), window=parse_window("last:3"))  # loads what is loaded once
    RESET.write_text("5")
    before = resident("VmRSS")

    own = evaluate_agent(agent=ada, dimensions=("adherence", "consistency", "fluency"))
    room = evaluate_channel(channel=channel)

    assert own.run.sample_size == 20 + 10, "messages drawn for adherence, and pairs for self-consistency"
    assert own.dimensions["adherence"].unscored + own.dimensions["adherence"].scored > 0
    assert own.dimensions["consistency"].scored == 10
    assert own.dimensions["fluency"].scored == 2
    assert room.dimensions["convergence"].scored == 1
    assert room.run.figures["convergence"]["agents"]["ada"]["messages"] == 100, "of the 200 that are shown"
    (idea,) = distinct_ideas(room.run)
    assert (room.dimensions["ideas_quantity"].count, idea.positions) == (1, (1, 8_001, 16_001))
    assert IdeaPart.objects.count() > 30
    assert resident("VmHWM") - before < ALLOWED
