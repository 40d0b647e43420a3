"""The sentinel: a judge that changed behind its name is one alert of the judge, and none of the agents it judges."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from agents.alerts.models import Alert
from agents.kit.models import LLMCall, owner_name
from agents.kit.work.queues import work_queues
from agents.models import Agent, Channel, Message
from evaluation.change import sentinel
from evaluation.change.admin.sentinel import judge_markers
from evaluation.change.evidence import judged_ways, stale_reasons
from evaluation.change.judge_changes import change_holding, judge_since, moments_of_change, same_judge
from evaluation.change.models import Baseline, DriftAlert, JudgeSentinel, SentinelCheck
from evaluation.change.overview import drift_overview
from evaluation.change.sentinel import accept, estimate_check, items_of
from evaluation.change.series import series_of
from evaluation.models import EvaluationRun, EvaluationSchedule
from evaluation.runs.planning import make_plan, new_run
from evaluation.runs.schedules import fire_if_due, fire_now
from evaluation.runs.spec import RunSpec
from evaluation.windows import parse_window
from tests.console import page_of, plain, read, signed_in, superuser, viewer
from tests.evaluation.change.drift.scheduling import DAY, make_schedule
from tests.evaluation.ci.building import report
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import make_run
from tests.evaluation.judging import claims_of, entry, prompt_of, tail_of
from tests.evaluation.measuring import evaluate_agent
from tests.factories import MONDAY, make_agent, make_channel, say, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
FOUND = "by its sentinel the judge changed between the two"
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


@contextmanager
def at_statement(number: int, part: str, act: Callable[[], object]) -> Iterator[None]:
    """Act right before the statement that is the `number`-th with this part."""
    seen: list[str] = []

    def execute_after(execute: Callable[..., Any], sql: str, *query: Any) -> Any:
        if part in sql:
            seen.append(sql)
            if len(seen) == number:
                act()
        return execute(sql, *query)

    with connection.execute_wrapper(execute_after):
        yield
    assert len(seen) >= number


STORES_ANSWERS = 'UPDATE "judge_sentinel_checks" SET "answers"'
EXTENDS_LEASE = 'UPDATE "judge_sentinel_checks" SET "lease_expires_at"'


def waiting_check(number: int) -> SentinelCheck:
    """A check of the only sentinel, asked for when that day began, that waits for a worker."""
    check: SentinelCheck = SentinelCheck.objects.create(
        sentinel=JudgeSentinel.objects.get(), every_minutes=1440, fired_at=MONDAY + number * DAY
    )
    return check


def kill_at_third_answer(check: SentinelCheck) -> dict[str, int | None]:
    """Have the worker of a check die when it stores the third answer; return the answers that are stored."""

    def die() -> None:
        raise KeyboardInterrupt

    with at_statement(3, STORES_ANSWERS, die), pytest.raises(KeyboardInterrupt):
        sentinel.work_one(owner=owner_name())
    check.refresh_from_db()
    assert check.answers
    return dict(check.answers)


def fence_code(body: dict[str, Any]) -> str:
    return str(re.findall(r"<<<PERSONA (\w+)>>>", prompt_of(body))[0])


def test_a_check_that_was_killed_asks_only_what_is_missing(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(3):
        day(number, time_machine)
    check = waiting_check(4)
    known = kill_at_third_answer(check)

    assert sentinel.work_one(owner=owner_name())

    check.refresh_from_db()
    assert check.status == "completed"
    assert check.answers.items() >= known.items()
    asked = {key.partition("/")[0] for key in check.answers}
    kept = {key.partition("/")[0] for key in known}
    # Each run fences its questions with a code of its own: a call of the killed worker that arrives late does not count.
    code = fence_code(llm_server.bodies[-1])
    assert [fence_code(body) for body in llm_server.bodies].count(code) == len(asked - kept)


def test_who_is_erased_during_a_check_takes_its_pairs_along(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(2):
        day(number, time_machine)
    for number in range(2):
        say(Channel.objects.get(slug=f"day-{number}"), "Greta", "I am Greta of Elm Street.")
    day(2, time_machine)
    check = waiting_check(4)
    kill_at_third_answer(check)
    before = items_of(check.sentinel)
    call_command("forget", "--outsider", "Greta", "--json", stdout=io.StringIO())

    assert sentinel.work_one(owner=owner_name())

    check.refresh_from_db()
    now = items_of(JudgeSentinel.objects.get())
    assert (check.status, check.changed) == ("completed", False)
    assert {item.key for item in before} - {item.key for item in now}, "judged amid what she said"
    assert check.pairs < len(before)
    assert "Greta" not in json.dumps([check.answers, check.change, check.sentinel.items])


def test_the_answers_of_a_worker_that_lost_its_lease_count_for_nothing(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(3):
        day(number, time_machine)
    check = waiting_check(4)
    llm_server.respond = judge_that_adds(1)

    def take_over() -> None:
        SentinelCheck.objects.filter(pk=check.pk).update(lease_owner="another", answers={})

    with at_statement(3, EXTENDS_LEASE, take_over):
        assert sentinel.work_one(owner=owner_name())

    check.refresh_from_db()
    assert (check.status, check.lease_owner, check.answers) == ("running", "another", {})
    assert not Alert.objects.exists()


def test_an_answer_about_a_message_that_was_edited_since_does_not_count(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(2):
        day(number, time_machine)
    check = waiting_check(3)
    known = kill_at_third_answer(check)
    edited = Message.objects.get(pk=next(iter(known)).partition("/")[0])
    edited.text = "worth 9"
    edited.save()

    assert sentinel.work_one(owner=owner_name())

    items = items_of(JudgeSentinel.objects.get())
    assert 9 in {item.reference for item in items if item.message == edited.pk}


def test_what_is_accepted_during_a_check_stays_accepted(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(3):
        day(number, time_machine)
    llm_server.respond = judge_that_adds(1)
    day(3, time_machine)
    check = waiting_check(5)

    with at_statement(3, STORES_ANSWERS, lambda: accept(JudgeSentinel.objects.get(), user=None)):
        assert sentinel.work_one(owner=owner_name())

    check.refresh_from_db()
    assert check.result is not None
    assert (check.result.delta, check.changed) == (0, False)
    assert Alert.objects.get().ended_at is not None


def test_two_schedules_that_fire_at_once_make_one_check(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    llm_server.respond = judge_that_adds(0)
    day(0, time_machine)
    time_machine.move_to(MONDAY + 2 * DAY + timedelta(minutes=1))

    others: list[SentinelCheck] = []
    with at_statement(1, 'INTO "judge_sentinel_checks"', lambda: others.append(waiting_check(2))):
        fire_if_due(EvaluationSchedule.objects.get())

    assert [SentinelCheck.objects.get(status="pending")] == others
    assert EvaluationRun.objects.filter(status="pending").exists()


def test_schedules_of_one_judge_share_one_look_a_period(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    llm_server.respond = judge_that_adds(0)
    for hour in range(1, 4):
        make_schedule(f"nightly {hour}", Agent.objects.get(), due=MONDAY + DAY + timedelta(hours=hour))
    for number in range(4):
        day(number, time_machine)
    before = SentinelCheck.objects.count()

    for hour in (1, 2, 3, 20):
        time_machine.move_to(MONDAY + 4 * DAY + timedelta(hours=hour, minutes=5))
        work_off()
    fire_now(nightly)
    work_off()

    assert SentinelCheck.objects.count() == before
    day(4, time_machine)
    assert SentinelCheck.objects.count() == before + 1


def test_a_new_schedule_waits_for_judgements_to_freeze(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    llm_server.respond = judge_that_adds(0)
    day(0, time_machine)

    check = SentinelCheck.objects.get()
    assert (check.status, bool(check.error), check.result) == ("completed", True, None)


def test_a_judge_that_goes_back_ends_the_alert_and_keeps_the_reference(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    high = (7, 8) * 6
    llm_server.respond = judge_that_adds(0)
    for number in range(2):
        day(number, time_machine, scores=high)
    reference = JudgeSentinel.objects.get().reference_at
    llm_server.respond = judge_that_adds(-2)
    day(2, time_machine, scores=high)
    assert Alert.objects.get().ended_at is None
    llm_server.respond = judge_that_adds(0)
    day(3, time_machine, scores=high)

    watched = JudgeSentinel.objects.get()
    assert Alert.objects.get().ended_at is not None
    assert watched.reference_at == reference
    assert not accept(watched, user=None), "nothing is open"
    first, changed, back = EvaluationRun.objects.filter(agent__isnull=False).order_by("pk")[1:4]
    assert same_judge([first, back])
    assert not same_judge([first, changed])

    day(4, time_machine, scores=(3, 4) * 6)
    assert DriftAlert.objects.exists(), "alerts of agents are not held back any more"


def test_compare_ci_and_overview_name_a_change_that_was_found(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    high = (7, 8) * 6
    llm_server.respond = judge_that_adds(0)
    day(0, time_machine, scores=high)
    call_command("capture_baseline", "--agents", "ada", "--dimensions", "adherence", stdout=io.StringIO())
    day(1, time_machine, scores=high)
    llm_server.respond = judge_that_adds(-2)
    day(2, time_machine, scores=high)
    assert stale_reasons(Baseline.objects.all()) == {}, "the judge may go back"
    out = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("compare", "--agents", "ada", "--dimensions", "adherence", "--json", stdout=out)
    (entry,) = report("--dimensions", "adherence")["runs"]
    (drift,) = drift_overview([Agent.objects.get()], judged_ways()[0]).drifts

    assert FOUND in out.getvalue()
    assert FOUND in " ".join(entry["baseline_notes"])
    assert (drift.state, FOUND in drift.judge_changed) == ("drifted", True)

    accept(JudgeSentinel.objects.get(), user=None)

    assert list(stale_reasons(Baseline.objects.all())) == [Baseline.objects.get().pk]


@pytest.mark.parametrize("is_checked", [False, True])
def test_an_evaluation_by_hand_alerts_with_or_after_the_check(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any, is_checked: bool
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(2):
        day(number, time_machine, scores=(7, 8) * 6)
    if is_checked:
        waiting_check(2)
    start = MONDAY + 2 * DAY + timedelta(hours=1)
    time_machine.move_to(start + timedelta(hours=1))
    talk(Agent.objects.get(), [f"{n} worth {n % 2 + 3}" for n in range(12)], sent_at=start, channel=make_channel("now"))

    evaluate_agent(agent=Agent.objects.get(), dimensions=("adherence",), window=parse_window("24h", now=timezone.now()))
    assert DriftAlert.objects.exists() != is_checked
    while sentinel.work_one(owner=owner_name()):
        pass

    assert DriftAlert.objects.count() == 1


def test_an_evaluation_counts_as_judged_when_it_ended(time_machine: Any) -> None:
    time_machine.move_to(MONDAY)
    run = make_run(make_agent(), status="running")
    watched = JudgeSentinel.objects.create(judge=run.judge, procedure=run.procedure, seed=1)
    check = watched.checks.create(
        every_minutes=1440, fired_at=MONDAY + timedelta(hours=1), status="completed", changed=True
    )
    assert (change_holding(run), judge_since(run, moments_of_change())) == (None, None)

    run.finished_at = MONDAY + timedelta(hours=20)

    assert (change_holding(run), judge_since(run, moments_of_change())) == (check, check.fired_at)


def test_charts_do_not_mix_procedures() -> None:
    ada = make_agent()
    for number in range(4):
        plan = make_plan(RunSpec(agent=ada, dimensions=("adherence",), double_check=bool(number % 2)))
        run = new_run(plan)
        run.status = "completed"
        run.save()

    now = timezone.now()
    assert judge_markers([ada.pk], now - DAY, now + DAY) == []


def test_only_the_pairs_that_were_compared_are_counted(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(3):
        day(number, time_machine)
    llm_server.respond = judge_that_adds(2)
    day(3, time_machine)

    check = SentinelCheck.objects.get(changed=True)
    assert len(check.answers) == 30, "six were asked for the first time"
    assert check.pairs == 24
    assert "24 frozen judgements" in sentinel.change_words(check)


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
    assert "24 frozen judgements score +2.0 points" in page
    assert "Each check makes 18 calls, unpriced" in plain(read(client, page_of(nightly)))
    assert page_of(watched, "accept") in read(client, page_of(watched))
    onlooker = signed_in(viewer())
    assert page_of(watched, "accept") not in read(onlooker, page_of(watched))
    assert onlooker.post(page_of(watched, "accept")).status_code == 403
    assert SentinelCheck.objects.filter(changed=True, ended_at=None).exists()

    client.post(page_of(watched, "accept"))

    assert "No change found" in plain(read(client, page_of(watched)))
    assert Alert.objects.get().ended_at is not None
    assert page_of(watched, "accept") not in read(client, page_of(watched)), "nothing is open"
    charts = judge_markers([run.agent_id], MONDAY, MONDAY + 9 * DAY)
    assert {marker.kind for marker in charts} == {"judge"}
    assert len(charts) == 2, "that it answers as another model, and that its sentinel found a change"
