"""A turn's time on one scale: what came when, what happened inside what, and what went wrong."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from agents.kit.console.panels import seconds_of
from agents.kit.models import LLMCall
from agents.models import Run, RunStep
from tests.console import HOSTILE, page_of, plain, read
from tests.factories import MONDAY, make_agent, make_channel

pytestmark = pytest.mark.django_db


def timed(**fields: Any) -> Run:
    """A turn of ten seconds: prepared in one, a model call of four, and a message judged for two and said."""
    trace = [
        {"stage": "repetition", "phase": "prepare", "status": "skipped", "ms": 0},
        {"stage": "interventions", "phase": "prepare", "status": "ran", "ms": 1000},
        {"stage": "gate", "phase": "finish", "status": "failed", "ms": 500},
    ]
    defaults = {
        "trace": trace,
        "status": "completed",
        "started_at": MONDAY,
        "finished_at": MONDAY + timedelta(seconds=10),
    }
    run: Run = Run.objects.create(agent=make_agent(), channel=make_channel(), **{**defaults, **fields})
    own = call(run, at=5, seconds=4, purpose="turn")
    step(run, 1, "model_call", at=5, seconds=4, detail={"status": "ok", "call": own.pk})
    stages = [{"stage": "gate", "phase": "review", "status": "ran", "ms": 2000}]
    step(run, 2, "tool_call", at=8, seconds=3, detail={"tool": "send_message", "committed": False, "stages": stages})
    call(run, at=7, seconds=2, purpose="gate", dimension="adherence", status="timeout")
    call(run, at=60, seconds=1, purpose="gate", dimension="fluency")  # observed afterwards
    return run


def step(run: Run, number: int, kind: str, *, at: float, seconds: float, detail: dict[str, Any]) -> None:
    made = RunStep.objects.create(run=run, number=number, kind=kind, detail=detail, duration_ms=int(seconds * 1000))
    RunStep.objects.filter(pk=made.pk).update(created_at=MONDAY + timedelta(seconds=at))


def call(run: Run, *, at: float, seconds: float, **fields: Any) -> LLMCall:
    defaults = {"role": "judge", "provider": "anthropic", "model": "m", "status": "ok"}
    made = LLMCall.objects.create(run=run, latency_ms=int(seconds * 1000), **{**defaults, **fields})
    LLMCall.objects.filter(pk=made.pk).update(created_at=MONDAY + timedelta(seconds=at))
    return made


def rows(html: str) -> list[tuple[str, float, float, str]]:
    """Of each row its words, and where its bar begins and ends, in shares of the whole, and its colour."""
    found = []
    table = html.partition("pl-waterfall")[2].partition("</table>")[0]
    for row in re.findall(r"<tr.*?</tr>", table, flags=re.S)[1:]:
        (_, before), (kind, width) = re.findall(r'pl-took-(\w+)"[^>]*style="width: ([\d.]+)%', row)
        start = round(float(before) / 100, 2)
        found.append((plain(row), start, round(start + float(width) / 100, 2), kind))
    return found


def test_each_step_stands_where_it_began_with_what_happened_in_it(root: Client) -> None:
    html = read(root, page_of(timed()))

    assert rows(html) == [
        ("interventions prepare 0 1.00 s", 0.0, 0.1, "stage"),
        ("1 model call 1.00 s 4.00 s", 0.1, 0.5, "model"),
        ("2 send_message sent back 5.00 s 3.00 s", 0.5, 0.8, "failed"),
        ("gate review 5.00 s 2.00 s", 0.5, 0.7, "stage"),
        ("gate adherence timeout 5.00 s 2.00 s", 0.5, 0.7, "failed"),
        ("gate finish failed 9.50 s 0.50 s", 0.95, 1.0, "failed"),
    ]
    assert 'href="#step-2"' in html
    assert 'id="step-2"' in html


def test_a_running_turn_says_so_and_a_waiting_one_has_no_waterfall(root: Client) -> None:
    going = timed(status="running", finished_at=None)
    waiting = Run.objects.create(agent=make_agent("bob"))

    assert "The turn goes on." in read(root, page_of(going))
    assert "Where the time went" not in read(root, page_of(waiting))


def test_what_does_not_fit_is_drawn_at_the_edge(root: Client) -> None:
    run = timed(finished_at=MONDAY + timedelta(seconds=1))
    step(run, 3, "tool_call", at=-5, seconds=1, detail={"tool": HOSTILE})
    html = read(root, page_of(run))

    assert all(0 <= start < end <= 1.0 for _, start, end, _ in rows(html))
    assert "<script>alert" not in html


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0"),
        (0.003, "3 ms"),
        (0.81, "0.81 s"),
        (125.7, "2 min 5 s"),
        (12.44, "12.4 s"),
    ],
)
def test_spans_are_said_as_people_read_them(seconds: float, said: str) -> None:
    assert seconds_of(seconds) == said
