"""Gate statistics read from sums are those of the logs, to the attempt, and stay when logs are pruned."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
import time_machine

from agents.models import Agent, Channel
from agents.ops.sums import prunable_before, roll_up, verify
from correction.gate import sessions
from correction.gate.statistics import GateStatistics, get_gate_statistics
from correction.gate.thresholds import mark_result, precision
from correction.models import AttemptHour, CorrectionLog, DimensionHour, GateDimensionResult, Outcome
from correction.rollup import GATE
from evaluation.scorers.windows import MessageWindow
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db

BEGIN = datetime(2026, 1, 31, 20, 0, tzinfo=UTC)
HOURS = 40
VERDICTS: list[float | str] = [
    *(8.0, 5.0, 2.0),
    *("timeout", "error", "unscored", "budget", "overload", "trivial"),
]
NOW = BEGIN + timedelta(hours=HOURS, minutes=5)


@pytest.fixture
def agents() -> list[Agent]:
    return [make_agent("ada"), make_agent("bob")]


@pytest.fixture
def logs(agents: list[Agent]) -> list[CorrectionLog]:
    """Attempts of every outcome, source, judge and place, some three an hour, with what is judged in them."""
    chance, made = Random(7), []
    places = [None, make_channel("office"), Channel.objects.create(slug="played", name="played", synthetic=True)]
    for n in range(HOURS * 2):
        session, source = uuid.uuid4(), chance.choice(["gate", "gate", "observe", "external"])
        fields: dict[str, Any] = {
            "session": session,
            "agent": chance.choice([*agents, None]),
            "channel": chance.choice(places),
            "source": source,
        }
        for attempt in range(1, chance.choice([1, 1, 3]) + 1):
            made.append(_attempt(chance, attempt, BEGIN + timedelta(minutes=30 * n + attempt), fields))
    return made


def _attempt(chance: Random, number: int, at: datetime, fields: dict[str, Any]) -> CorrectionLog:
    verdicts: dict[str, float | str] = {
        dimension: chance.choice(VERDICTS)
        for dimension in chance.sample(["adherence", "consistency", "fluency"], chance.choice([1, 2, 3]))
    }
    scores = [value for value in verdicts.values() if isinstance(value, float)]
    log = CorrectionLog.objects.create(
        attempt=number, outcome=chance.choice(Outcome.values), original_text="x", judged_text="x",
        score_sum=sum(scores) if scores else None, judge=chance.choice(["m1", "offline:lexical-1"]),
        committed=number == 1 and chance.random() < 0.7, **fields,
    )  # fmt: skip
    CorrectionLog.objects.filter(pk=log.pk).update(created_at=at)
    GateDimensionResult.objects.bulk_create(
        GateDimensionResult(
            log=log, dimension=dimension, threshold=5, passed=not (isinstance(value, float) and value < 5),
            status="scored" if isinstance(value, float) else str(value), score=value if isinstance(value, float) else None,
        )
        for dimension, value in verdicts.items()
    )  # fmt: skip
    return log


WINDOWS = [
    MessageWindow("", start=start, end=end)
    for start in (
        None,
        BEGIN + timedelta(minutes=7),
        BEGIN + timedelta(hours=4),
        BEGIN + timedelta(hours=30, minutes=31),
    )
    for end in (None, BEGIN + timedelta(hours=3, minutes=31), BEGIN + timedelta(hours=33, minutes=1, microseconds=5))
]


def everything(agents: Iterable[Agent | None], windows: Iterable[MessageWindow] = WINDOWS) -> list[GateStatistics]:
    return [
        get_gate_statistics(agent, window, synthetic=synthetic)
        for agent in agents
        for window in windows
        for synthetic in (False, True)
    ]


def same(found: list[GateStatistics], expected: list[GateStatistics]) -> bool:
    """Equal, means to nine decimals: a database may add scores in another order."""
    return [_rounded(one) for one in found] == [_rounded(one) for one in expected]


def _rounded(found: GateStatistics) -> str:
    return re.sub(r"\d+\.\d{9,}", lambda number: f"{float(number[0]):.9f}", repr(found))


@pytest.mark.parametrize("closed", [4, 29, HOURS + 1])
def test_statistics_are_the_same_however_much_is_summed_up(
    agents: list[Agent], logs: list[CorrectionLog], closed: int
) -> None:
    raw = everything([None, *agents])
    assert any(one.dimensions and one.observed.total and one.external.total for one in raw)

    roll_up(GATE, now=BEGIN + timedelta(hours=closed, minutes=10))

    assert AttemptHour.objects.exists()
    assert DimensionHour.objects.exists()
    assert same(everything([None, *agents]), raw)
    assert not verify(GATE).differences


@time_machine.travel(NOW, tick=False)
def test_statistics_stay_when_retention_deletes_the_logs(agents: list[Agent], logs: list[CorrectionLog]) -> None:
    whole = [MessageWindow(), MessageWindow("", start=BEGIN + timedelta(hours=5)), *_raw_edges()]
    raw = everything([None, *agents], whole)
    before = prunable_before(GATE, BEGIN + timedelta(hours=30))
    assert before == BEGIN + timedelta(hours=30)

    CorrectionLog.objects.filter(created_at__lt=before).delete()

    assert same(everything([None, *agents], whole), raw)
    assert verify(GATE).pruned > 25


def _raw_edges() -> list[MessageWindow]:
    return [MessageWindow("", start=BEGIN, end=BEGIN + timedelta(hours=33, minutes=31))]


def test_a_channel_s_logs_stay_what_they_were_when_it_is_deleted(
    agents: list[Agent], logs: list[CorrectionLog]
) -> None:
    roll_up(GATE, now=NOW + timedelta(days=2))
    played = get_gate_statistics(synthetic=True)

    Channel.objects.filter(synthetic=True).delete()

    assert same([get_gate_statistics(synthetic=True)], [played])


def test_a_session_that_ends_after_its_hour_was_summed_up_is_counted_with_its_end(agents: list[Agent]) -> None:
    ada, session = agents[0], uuid.uuid4()
    with time_machine.travel(BEGIN, tick=False):
        for number in (1, 2):
            log = CorrectionLog.objects.create(
                session=session, attempt=number, agent=ada, outcome="corrected", original_text="x", judged_text="x"
            )
            GateDimensionResult.objects.create(
                log=log, dimension="fluency", status="scored", score=number, threshold=5, passed=False
            )
    with time_machine.travel(BEGIN + timedelta(hours=2), tick=False):
        roll_up(GATE)
        assert get_gate_statistics(ada).forced_through_count == 0
        message = say(make_channel(), ada, "x")

        assert sessions.end(session=session, outcome=Outcome.FORCED_THROUGH)
        sessions.close(session=session, message=message, best=1)
    with time_machine.travel(BEGIN + timedelta(hours=3), tick=False):
        assert roll_up(GATE) == 1

    found = get_gate_statistics(ada)
    assert (found.forced_through_count, found.dimensions["fluency"].mean_committed) == (1, 1.0)


def test_marks_count_at_once_for_they_are_never_summed_up(agents: list[Agent], logs: list[CorrectionLog]) -> None:
    roll_up(GATE, now=NOW + timedelta(days=2))
    failed = GateDimensionResult.objects.filter(passed=False, log__channel__slug="office").first()
    assert failed is not None

    mark_result(result=failed, mark="right", user=None)

    assert [p.right for p in precision()] == [1]
