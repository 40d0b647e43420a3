"""The gate in numbers: a message counts once, however many drafts it took."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import hypothesis
import pytest
import time_machine
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from agents.kit.ops.sums import prunable_before, roll_up, sum_up
from agents.models import Agent, Channel
from correction.gate.sessions import end_session
from correction.gate.statistics import GATE, GateStatistics, get_gate_statistics
from correction.models import AttemptHour, CorrectionLog, DimensionHour, GateDimensionResult, GateSession, Outcome
from evaluation.windows import MessageWindow
from tests.correction.judged_drafts import add_attempt, make_log
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db


def attempt(agent: Agent | None, session: uuid.UUID, number: int, outcome: str, **fields: Any) -> CorrectionLog:
    dims: Mapping[str, float | str] = fields.pop("dims", {"adherence": 8.0})
    scored = [value for value in dims.values() if not isinstance(value, str)]
    log = add_attempt(
        session=session,
        attempt=number,
        agent=agent,
        outcome=outcome,
        score_sum=sum(scored) if scored else None,
        **{"judge": "test-model", **fields},
    )
    for dimension, value in dims.items():
        failed = not isinstance(value, str) and value < 5
        GateDimensionResult.objects.create(
            log=log,
            dimension=dimension,
            threshold=5,
            passed=not failed,
            status=value if isinstance(value, str) else "scored",
            score=None if isinstance(value, str) else value,
        )
    return log


def message(agent: Agent | None, *attempts: tuple[str, Mapping[str, float | str]], **fields: Any) -> None:
    """A session of these attempts; the last one is said unless it says otherwise."""
    session = uuid.uuid4()
    for number, (outcome, dims) in enumerate(attempts, 1):
        said = number == len(attempts) and outcome != "abandoned"
        attempt(agent, session, number, outcome, **{"dims": dims, "committed": said, **fields})


GOOD, BAD = {"adherence": 8.0}, {"adherence": 2.0}


def test_every_ending_is_counted_apart() -> None:
    agent = make_agent()
    message(agent, ("passed", GOOD))
    message(agent, ("corrected", BAD), ("corrected", BAD), ("forced_through", BAD))
    message(agent, ("corrected", BAD), ("abandoned", BAD))
    message(agent, ("timeout_passed", {"adherence": "timeout"}))
    message(agent, ("error_passed", {"adherence": 7.0, "fluency": "error"}))
    message(agent, ("overload_passed", {"adherence": "overload"}))
    message(agent, ("unscored_passed", {"adherence": "unscored"}))
    message(agent, ("budget_passed", {"adherence": "budget"}))
    got = get_gate_statistics(agent)
    assert (got.total_actions, got.forced_through_count, got.abandoned) == (8, 1, 1)
    assert (got.timeouts, got.errors, got.overloads, got.unscored, got.over_budget) == (1, 1, 1, 1, 1)
    # Judged first drafts: passed, the two sent back, and the one whose other dimension had an error.
    assert (got.judged_count, got.original_pass_count) == (4, 2)
    assert got.original_success_rate == 0.5, "of the four that were judged"
    assert got.regeneration_failure_rate == 1.0
    adherence, fluency = got.dimensions["adherence"], got.dimensions["fluency"]
    assert (adherence.checks, adherence.scored, adherence.failures, adherence.first_failures) == (11, 7, 5, 2)
    assert adherence.failure_rate == 5 / 7, "of the seven that were scored"
    assert adherence.unjudged == {"timeout": 1, "overload": 1, "unscored": 1, "budget": 1}
    assert (fluency.checks, fluency.scored, fluency.unjudged, fluency.mean_first) == (1, 0, {"error": 1}, None)
    assert fluency.failure_rate is None


def test_a_message_that_had_no_retry_is_no_failed_regeneration() -> None:
    agent = make_agent()
    message(agent, ("forced_through", BAD))  # max_correction_attempts is 0

    alone = get_gate_statistics(agent)
    message(agent, ("corrected", BAD), ("forced_through", BAD))
    message(agent, ("corrected", BAD), ("passed_after_retry", GOOD))
    got = get_gate_statistics(agent)

    assert (alone.forced_through_count, alone.regeneration_count, alone.regeneration_failure_rate) == (1, 0, None)
    assert (got.forced_through_count, got.regeneration_failure_rate) == (2, 0.5)


def test_means_of_first_drafts_and_of_what_was_said_stand_apart() -> None:
    agent = make_agent()
    message(agent, ("corrected", {"adherence": 2.0}), ("passed_after_retry", {"adherence": 7.0}))
    message(agent, ("passed", {"adherence": 8.0}))
    adherence = get_gate_statistics(agent).dimensions["adherence"]
    assert (adherence.mean_first, adherence.mean_committed) == (5.0, 7.5)


def test_scores_of_different_judges_share_no_mean() -> None:
    agent = make_agent()
    message(agent, ("passed", {"adherence": 9.0}), judge="offline:lexical-1")
    message(agent, ("passed", {"adherence": 5.0}))
    adherence = get_gate_statistics(agent).dimensions["adherence"]
    assert adherence.mean_first is None
    assert [(j.judge, j.heuristic, j.mean_first) for j in adherence.by_judge] == [
        ("offline:lexical-1", True, 9.0),
        ("test-model", False, 5.0),
    ]


def test_observed_messages_count_in_means_for_as_many_as_they_stand_for() -> None:
    agent = make_agent()
    message(agent, ("observed", GOOD), source="observe")
    GateSession.objects.update(inclusion_weight=3.0)
    message(agent, ("observed", BAD), source="observe")
    for summed in (False, True):
        if summed:
            CorrectionLog.objects.update(created_at=timezone.now() - timedelta(hours=3))
            roll_up(GATE)
        observed = get_gate_statistics(agent).observed
        adherence = observed.dimensions["adherence"]
        assert adherence.by_judge[0].mean == (3 * 8.0 + 2.0) / 4
        assert (observed.total, observed.passed, adherence.scored, adherence.failures) == (2, 1, 2, 1)


def test_observed_and_external_checks_stand_apart() -> None:
    agent = make_agent()
    message(agent, ("passed", GOOD))
    message(agent, ("observed", BAD), source="observe")
    message(agent, ("observed", {"adherence": 2.0, "fluency": 1.0}), source="observe")
    message(agent, ("observed", GOOD), source="observe")
    message(None, ("passed", GOOD), source="external")
    got = get_gate_statistics(agent)
    assert (got.total_actions, got.original_success_rate) == (1, 1.0)
    assert (got.observed.total, got.observed.passed) == (3, 1)
    assert got.observed.dimensions["adherence"].failures == 2
    assert got.external.total == 0
    assert get_gate_statistics().external.total == 1


def test_with_nothing_logged_there_are_no_rates(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(2):
        got = get_gate_statistics()
    assert (got.total_actions, got.original_success_rate, got.regeneration_failure_rate) == (0, None, None)


VERDICTS = st.dictionaries(
    st.sampled_from(["adherence", "fluency"]),
    st.one_of(st.integers(0, 9).map(float), st.sampled_from(["timeout", "error", "unscored"])),
    min_size=1,
)
ENDED = st.sampled_from(
    ["passed", "passed_after_retry", "forced_through", "timeout_passed", "error_passed", "abandoned"]
)
SESSIONS = st.lists(st.lists(st.tuples(ENDED, VERDICTS), min_size=1, max_size=3), max_size=4)


@hypothesis.settings(max_examples=10)
@given(SESSIONS)
def test_the_database_counts_what_counting_by_hand_gives(
    sessions: list[list[tuple[str, dict[str, float | str]]]],
) -> None:
    CorrectionLog.objects.all().delete()
    for session in sessions:
        message(None, *session)
    got, drafts = get_gate_statistics(), [draft for session in sessions for draft in session]
    firsts = [session[0] for session in sessions]
    judged = [f for f in firsts if f[0] == "passed" or any(isinstance(score, float) for score in f[1].values())]
    good = [f for f in judged if f[0] in ("passed", "timeout_passed", "error_passed")]
    assert (got.total_actions, got.regeneration_count) == (len(sessions), len(drafts) - len(sessions))
    assert (got.judged_count, got.original_pass_count) == (len(judged), len(good))
    counted = (got.forced_through_count, got.passed_after_retry_count, got.timeouts, got.errors, got.abandoned)
    words = ("forced_through", "passed_after_retry", "timeout_passed", "error_passed", "abandoned")
    assert counted == tuple(sum(outcome == word for outcome, _ in drafts) for word in words)
    for name in ("adherence", "fluency"):
        given_scores = [checks[name] for _, checks in drafts if isinstance(checks.get(name), float)]
        known = got.dimensions.get(name)
        assert (known.scored if known else 0) == len(given_scores)
        assert (known.failures if known else 0) == sum(float(score) < 5 for score in given_scores)
        if known and given_scores:
            assert known.by_judge[0].mean == pytest.approx(sum(map(float, given_scores)) / len(given_scores))


def test_each_window_has_the_counts_it_has_by_itself(django_assert_num_queries: Any) -> None:
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    recent, since = hour - timedelta(hours=24), hour - timedelta(days=7)
    ada = make_agent()
    played = make_channel("stage")
    played.synthetic = True
    played.save()
    for hours, outcome in (
        (1, "passed"),
        (2, "forced_through"),
        (23, "passed"),
        (30, "passed_after_retry"),
        (170, "passed"),
    ):
        for source, channel in (("gate", None), ("observe", None), ("gate", played)):
            log = make_log(ada, {"adherence": 2.0}, outcome=outcome, source=source, channel=channel, score_sum=2)
            CorrectionLog.objects.filter(pk=log.pk).update(created_at=hour - timedelta(hours=hours))

    for summed in (False, True):
        if summed:
            assert sum_up()
        windows = [MessageWindow(start=start) for start in (recent, since)]
        get_gate_statistics(window=windows[0])  # learns how far the sums reach
        with django_assert_num_queries(4):
            got = [get_gate_statistics(window=window) for window in windows]
        assert [one.total_actions for one in got] == [3, 4]


BEGIN = datetime(2026, 1, 31, 20, 0, tzinfo=UTC)
HOURS = 40
VERDICT_SUMS: list[float | str] = [*(8.0, 5.0, 2.0), *("timeout", "error", "unscored", "budget", "overload", "trivial")]
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
        dimension: chance.choice(VERDICT_SUMS)
        for dimension in chance.sample(["adherence", "consistency", "fluency"], chance.choice([1, 2, 3]))
    }
    scores = [value for value in verdicts.values() if isinstance(value, float)]
    log = add_attempt(
        attempt=number, outcome=chance.choice(Outcome.values),
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


def same(got: list[GateStatistics], expected: list[GateStatistics]) -> bool:
    """Equal, means to nine decimals: a database may add scores in another order."""
    return [_rounded(one) for one in got] == [_rounded(one) for one in expected]


def _rounded(got: GateStatistics) -> str:
    return re.sub(r"\d+\.\d{9,}", lambda number: f"{float(number[0]):.9f}", repr(got))


@pytest.mark.slow
def test_statistics_are_the_same_however_much_is_summed_up(agents: list[Agent], logs: list[CorrectionLog]) -> None:
    raw = everything([None, *agents])
    assert any(one.dimensions and one.observed.total and one.external.total for one in raw)

    for closed in (4, 29, HOURS + 1):
        roll_up(GATE, now=BEGIN + timedelta(hours=closed, minutes=10))

        assert AttemptHour.objects.exists()
        assert DimensionHour.objects.exists()
        assert same(everything([None, *agents]), raw)


@pytest.mark.slow
@time_machine.travel(NOW, tick=False)
def test_statistics_stay_when_retention_deletes_the_logs(agents: list[Agent], logs: list[CorrectionLog]) -> None:
    full = [MessageWindow(), MessageWindow("", start=BEGIN + timedelta(hours=5)), *_raw_edges()]
    raw = everything([None, *agents], full)
    before = prunable_before(GATE, BEGIN + timedelta(hours=30))
    assert before == BEGIN + timedelta(hours=30)

    CorrectionLog.objects.filter(created_at__lt=before).delete()

    assert same(everything([None, *agents], full), raw)


def _raw_edges() -> list[MessageWindow]:
    return [MessageWindow("", start=BEGIN, end=BEGIN + timedelta(hours=33, minutes=31))]


def test_a_session_that_ends_after_its_hour_was_summed_is_counted(agents: list[Agent]) -> None:
    ada, session = agents[0], uuid.uuid4()
    with time_machine.travel(BEGIN, tick=False):
        for number in (1, 2):
            log = add_attempt(session=session, attempt=number, agent=ada, outcome="corrected")
            GateDimensionResult.objects.create(
                log=log, dimension="fluency", status="scored", score=number, threshold=5, passed=False
            )
    with time_machine.travel(BEGIN + timedelta(hours=2), tick=False):
        roll_up(GATE)
        assert get_gate_statistics(ada).forced_through_count == 0
        message = say(make_channel(), ada, "x")

        assert end_session(log.session, outcome=Outcome.FORCED_THROUGH, message=message, sent=1)
    with time_machine.travel(BEGIN + timedelta(hours=3), tick=False):
        assert roll_up(GATE) == 1

    got = get_gate_statistics(ada)
    assert (got.forced_through_count, got.dimensions["fluency"].mean_committed) == (1, 1.0)
