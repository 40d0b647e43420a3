"""The sentinel: a judge that changed behind its name is one alert of the judge, and none of the agents it judges."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

from agents.alerts.models import Alert
from agents.kit.models import LLMCall, owner_name
from agents.kit.work.queues import work_queues
from agents.models import Agent, Message
from evaluation.change import sentinel
from evaluation.change.admin.sentinel import judge_markers
from evaluation.change.models import DriftAlert, JudgeSentinel, SentinelCheck
from evaluation.change.sentinel import accept, estimate_check, items_of
from evaluation.change.series import series_of
from evaluation.models import EvaluationRun, EvaluationSchedule
from tests.console import page_of, plain, read, signed_in, superuser, viewer
from tests.evaluation.change.drift.scheduling import DAY, make_schedule
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import claims_of, entry, tail_of
from tests.factories import MONDAY, make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
SCORES = (4, 5, 6, 7, 5, 3)  # what a day's messages are worth


@pytest.fixture
def nightly(propositions: PropositionFolder, settings: Settings) -> EvaluationSchedule:
    """A schedule of Ada by a judge at a server."""
    settings.LLM_MAX_CONCURRENCY = 2
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    ada = make_agent("ada")
    return make_schedule("nightly", ada, due=MONDAY + DAY)


def judge_that_adds(shift: int, *, model: str = "") -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A judge that gives a message what it is worth, and so much more."""

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        worth = int(re.findall(r"worth (\d)", tail_of(body))[0])
        found = {key: entry(worth + shift) for key in claims_of(body)}
        return {"json": found if len(found) > 1 else found["p1"], "model": model}

    return respond


def work_off() -> None:
    """Work until nothing is left, as a worker does."""
    owner = owner_name()
    while any(work_one(owner=owner) for work_one in work_queues().values()):
        pass


def day(number: int, time_machine: Any, *, scores: tuple[int, ...] = SCORES) -> None:
    """Ada speaks for a day, and the schedule is worked off at its end."""
    start = MONDAY + number * DAY
    channel = make_channel(f"day-{number}")
    texts = [f"{number}.{line} worth {score}" for line, score in enumerate(scores)]
    talk(Agent.objects.get(), texts, channel=channel, sent_at=start + timedelta(hours=1))
    time_machine.move_to(start + DAY + timedelta(minutes=1))
    work_off()


@pytest.mark.slow
@pytest.mark.parametrize("shift", [1, -1])
def test_a_changed_judge_is_one_alert_and_none_of_the_agent(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any, shift: int
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(10):
        day(number, time_machine)
    assert not Alert.objects.exists()

    llm_server.respond = judge_that_adds(shift)
    for number in range(10, 14):
        day(number, time_machine)

    alert = Alert.objects.get()
    assert (alert.kind, alert.times, alert.ended_at) == ("judge_changed", 1, None)
    assert not DriftAlert.objects.exists()
    check = SentinelCheck.objects.get(changed=True)
    assert check.result is not None
    assert (check.result.delta, check.result.n) == (shift, 18)

    assert accept(check.sentinel, user=None)
    for number in range(14, 16):
        day(number, time_machine)

    alert.refresh_from_db()
    assert alert.ended_at is not None
    assert (Alert.objects.count(), DriftAlert.objects.count()) == (1, 0)
    (series,) = series_of(Agent.objects.get())
    assert [n for n, point in enumerate(series.points) if point.restarts] == [10, 14]
    assert "the judge changed" in series.newest_restart


@pytest.mark.slow
def test_an_agent_that_fell_is_no_changed_judge(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(9):
        day(number, time_machine)
    for number in range(9, 13):
        day(number, time_machine, scores=tuple(score - 2 for score in SCORES))

    assert [alert.kind for alert in Alert.objects.all()] == ["drift"]


def test_a_sharp_fall_waits_until_the_judge_is_checked(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(3):
        day(number, time_machine, scores=(7, 8) * 6)
    llm_server.respond = judge_that_adds(-4)
    day(3, time_machine, scores=(7, 8) * 6)

    assert [alert.kind for alert in Alert.objects.all()] == ["judge_changed"]

    accept(JudgeSentinel.objects.get(), user=None)
    day(4, time_machine, scores=(7, 8) * 6)
    day(5, time_machine, scores=(4, 4) * 6)  # 0 by this judge, after 3 and 4

    assert [alert.kind for alert in Alert.objects.order_by("pk")] == ["judge_changed", "drift"]


def test_frozen_judgements_are_asked_in_few_calls_of_their_own(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(5):
        day(number, time_machine)
    watched = JudgeSentinel.objects.get()
    items = items_of(watched)
    messages = {item.message for item in items}

    assert len(items) == 30
    assert 15 < len(messages) <= 20
    assert {item.reference for item in items} == set(SCORES), "drawn over all scores"
    newest = watched.checks.all()[0]
    calls = LLMCall.objects.filter(work_id=newest.work_id)
    assert calls.filter(purpose="sentinel", agent=None).count() == calls.count() == len(messages)
    estimate = estimate_check(watched.judge, watched.procedure)
    assert estimate is not None
    assert estimate.calls == len(messages)


def test_what_was_edited_or_erased_is_replaced_and_starts_anew(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any, propositions: PropositionFolder
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(5):
        day(number, time_machine)
    before = items_of(JudgeSentinel.objects.get())
    Message.objects.get(pk=before[0].message).delete()
    edited = Message.objects.get(pk=before[1].message)
    edited.text += " after all"
    edited.save()
    propositions.write(
        "adherence/_default.yaml", "dimension: adherence\npropositions:\n  - {id: voice, claim: another}\n"
    )

    day(5, time_machine)
    items = items_of(JudgeSentinel.objects.get())

    assert {item.proposition for item in items} == {"voice"}
    assert not {item.digest for item in items} & {item.digest for item in before}
    assert before[0].message not in {item.message for item in items}
    assert not SentinelCheck.objects.filter(changed=True).exists()
    newest = SentinelCheck.objects.first()
    assert newest is not None
    assert (newest.status, newest.result) == ("completed", None), "no pair is left to compare"


def test_a_check_that_was_killed_asks_only_what_is_missing(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(3):
        day(number, time_machine)
    check = SentinelCheck.objects.create(
        sentinel=JudgeSentinel.objects.get(), every_minutes=1440, fired_at=MONDAY + 4 * DAY
    )
    stored = sentinel._store_answers
    told: list[int] = []

    def killed_at_the_third(*args: Any) -> None:
        if len(told) == 2:
            raise KeyboardInterrupt
        told.append(1)
        stored(*args)

    with monkeypatch.context() as patched:
        patched.setattr(sentinel, "_store_answers", killed_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            sentinel.work_one(owner=owner_name())
    check.refresh_from_db()
    known = dict(check.answers)
    assert known
    before = llm_server.calls
    assert sentinel.work_one(owner=owner_name())

    check.refresh_from_db()
    assert check.status == "completed"
    assert check.answers.items() >= known.items()
    asked = {key.partition("/")[0] for key in check.answers}
    kept = {key.partition("/")[0] for key in known}
    assert llm_server.calls - before == len(asked - kept)


def test_the_answers_of_a_worker_that_lost_its_lease_count_for_nothing(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(2):
        day(number, time_machine)
    check = SentinelCheck.objects.create(
        sentinel=JudgeSentinel.objects.get(), every_minutes=1440, fired_at=MONDAY + 4 * DAY
    )
    respond = judge_that_adds(0)

    def taken_over(body: dict[str, Any]) -> dict[str, Any]:
        return respond(body)

    assert check.acquire(owner="another", lease=timedelta(minutes=5))
    llm_server.respond = taken_over

    assert not sentinel.work_one(owner=owner_name())
    check.refresh_from_db()
    assert (check.lease_owner, check.answers) == ("another", {})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"status": 529}, "answered none"), ({"text": "no JSON"}, "were scored")],
)
def test_a_judge_that_does_not_answer_is_no_changed_judge(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any, fields: dict[str, Any], reason: str
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(3):
        day(number, time_machine)
    llm_server.respond = lambda body: fields
    SentinelCheck.objects.create(sentinel=JudgeSentinel.objects.get(), every_minutes=1440, fired_at=MONDAY + 4 * DAY)

    assert sentinel.work_one(owner=owner_name())

    newest = SentinelCheck.objects.first()
    assert newest is not None
    assert (newest.status, reason in newest.error) == ("failed", True), newest.error
    assert not Alert.objects.filter(kind="judge_changed").exists()


def test_an_offline_judge_needs_no_sentinel(nightly: EvaluationSchedule, time_machine: Any, settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    day(0, time_machine)

    assert not JudgeSentinel.objects.exists()
    assert EvaluationRun.objects.filter(schedule=nightly).count() == 1


def test_pages_say_that_alerts_are_held_back_until_somebody_accepts(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(3):
        day(number, time_machine)
    llm_server.respond = judge_that_adds(2, model="another")
    day(3, time_machine)
    watched = JudgeSentinel.objects.get()
    run = EvaluationRun.objects.filter(agent__isnull=False).order_by("-pk")[0]
    client = signed_in(superuser())

    for row in (run, run.agent, watched):
        assert "Alerts of agents are held back" in plain(read(client, page_of(row))), row
    page = plain(read(client, page_of(watched)))
    assert "answered as test-model before and as another now" in page
    assert "30 frozen judgements score +2.0 points" in page
    assert "Each check asks 18 calls, unpriced" in plain(read(client, page_of(nightly)))
    assert signed_in(viewer()).post(page_of(watched, "accept")).status_code == 403

    client.post(page_of(watched, "accept"))

    assert "No change found" in plain(read(client, page_of(watched)))
    assert Alert.objects.get().ended_at is not None
    charts = judge_markers([run.agent_id], MONDAY, MONDAY + 9 * DAY)
    assert {marker.kind for marker in charts} == {"judge"}
    assert len(charts) == 2, "that it answers as another model, and that its sentinel found a change"
