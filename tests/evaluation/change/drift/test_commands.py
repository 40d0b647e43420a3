"""`manage.py schedule` and `drift` in a terminal."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from agents.models import Agent
from evaluation.models import EvaluationRun, EvaluationSchedule
from evaluation.runs import schedules
from evaluation.runs.schedules import default_window, first_time
from tests.evaluation.change.drift.scheduling import DAY, make_schedule, measured_day
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import OFFLINE
from tests.factories import MONDAY, make_agent, speaking

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def said(*arguments: str) -> Any:
    """What a command prints with --json: one object and nothing else."""
    return json.loads(run(*arguments, "--json"))


def refused(*arguments: str) -> str:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    assert caught.value.returncode in (2, 3)
    return str(caught.value)


@pytest.fixture
def ada(propositions: PropositionFolder) -> Agent:
    propositions.claims("adherence/_default.yaml", "voice")
    agent = speaking("ada", ["hello"])
    return agent


# -- schedule
def test_a_schedule_is_made_with_what_is_said_and_sensible_defaults(ada: Agent) -> None:
    made = said("schedule", "add", "nightly")["schedule"]

    assert (made["agents"], made["dimensions"], made["window"], made["every_minutes"]) == (None, None, "1d", 1440)
    assert (made["samples"], made["judge"], made["drift_limit"], made["is_active"]) == (20, None, 0.8, True)
    options = (
        "--agents",
        "ada",
        "--dimensions",
        "adherence,fluency",
        "--every",
        "6h",
        "--window",
        "3d",
        "--limit",
        "1.5",
    )
    tags = ("--where", "build=41", "--samples", "5", "--judge", "m", "--at", "03:30")
    asked = said("schedule", "add", "often", *options, *tags)
    often = asked["schedule"]
    assert (often["agents"], often["dimensions"], often["window"]) == (["ada"], ["adherence", "fluency"], "3d")
    assert (often["where"], often["samples"], often["judge"], often["drift_limit"]) == ({"build": "41"}, 5, "m", 1.5)
    assert "about one in 12" in asked["note"]
    assert EvaluationSchedule.objects.get(name="often").next_at > timezone.now()


def test_a_change_keeps_what_is_not_named(ada: Agent) -> None:
    run("schedule", "add", "nightly", "--agents", "ada", "--limit", "2", "--every", "12h")
    before = said("schedule", "list")["schedules"][0]

    after = said("schedule", "change", "nightly", "--samples", "7")["schedule"]

    assert after == {**before, "samples": 7}
    assert said("schedule", "change", "nightly", "--agents", "all", "--dimensions", "all")["schedule"]["agents"] is None


def test_background_is_given_in_a_file_to_all_that_a_schedule_measures(ada: Agent, tmp_path: Path) -> None:
    file = tmp_path / "background.yaml"
    file.write_text("season: winter\nsince: 2026-01-31\n")
    background = {"season": "winter", "since": "2026-01-31"}

    made = said("schedule", "add", "nightly", "--at", "03:00", f"--context={file}")["schedule"]
    run("schedule", "fire", "nightly")

    assert made["additional_context"] == background
    assert EvaluationRun.objects.get().additional_context == background
    assert said("schedule", "change", "nightly", "--samples=7")["schedule"]["additional_context"] == background
    assert said("schedule", "change", "nightly", "--context=")["schedule"]["additional_context"] == {}
    file.write_text("winter")
    assert "expected a mapping" in refused("schedule", "change", "nightly", f"--context={file}")


def test_pause_resume_fire_and_remove(ada: Agent) -> None:
    run("schedule", "add", "nightly", "--at", "03:00")

    assert said("schedule", "pause", "nightly")["schedule"]["is_active"] is False
    assert "paused" in run("schedule", "list")
    assert said("schedule", "resume", "nightly")["schedule"]["is_active"] is True
    fired = said("schedule", "fire", "nightly")
    assert [row["agent"] for row in fired["runs"]] == ["ada"]
    assert "1 evaluation queued" in run("schedule", "list")
    assert "Ada skipped: evaluation" in run("schedule", "fire", "nightly")
    assert said("schedule", "remove", "nightly")["removed"]["name"] == "nightly"
    assert EvaluationRun.objects.count() == 1, "what it measured stays"
    assert "No schedules yet" in run("schedule", "list")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "x", "--every", "daily"), "--every 'daily': allowed: minutes, hours, days or weeks"),
        (("add", "x", "--agents", "nobody"), "no agent 'nobody'; agents: ada"),
        (("add", "x", "--at", "25:00"), "--at '25:00': allowed: a time of day such as 03:30"),
        (("add", "x", "--where", "build"), "write tag=value"),
        (("add", "x", "--limit", "10"), "--limit: Ensure this value is less than or equal to 9"),
        (("add", "taken"), "There is a schedule of this name"),
        (("pause", "x"), "no schedule 'x'; schedules: taken"),
        (("add",), "name"),
    ],
)
def test_wrong_usage_names_what_is_allowed(ada: Agent, arguments: tuple[str, ...], message: str) -> None:
    make_schedule("taken")

    assert message in refused("schedule", *arguments)
    assert EvaluationSchedule.objects.count() == 1


@pytest.mark.parametrize(("minutes", "window"), [(5, "1h"), (90, "2h"), (1440, "1d"), (10080, "7d"), (1500, "25h")])
def test_a_window_is_by_default_as_long_as_the_time_between(minutes: int, window: str) -> None:
    assert default_window(minutes) == window


def test_a_time_of_day_is_the_next_one() -> None:
    now = MONDAY  # nine o'clock

    assert first_time("09:30", now=now) == now + timedelta(minutes=30)
    assert first_time("9:00", now=now) == now + DAY


# -- drift
def measured_days(agent: Agent) -> EvaluationSchedule:
    schedule = make_schedule("nightly", agent, due=MONDAY + 999 * DAY)
    for day in range(18):
        measured_day(schedule, agent, day, (7, 8, 7, 6 + day % 2) if day < 14 else (4, 5, 4, 3 + day % 2))
        measured_day(schedule, agent, day, (2, 2), judge=OFFLINE)
    while schedules.work_one(owner="test"):
        pass
    return schedule


def test_drift_shows_series_with_sparklines_falls_and_judges_apart(ada: Agent) -> None:
    measured_days(ada)

    shown = run("drift", "--agents", "ada")
    assert "Scores by claude-haiku-5-5, 0 to 9" in shown
    assert "Scores by offline:lexical-1 (heuristic), 0 to 9" in shown
    assert "▇▇▇▇" in shown
    assert "Ada adherence: fell from 7.2 to 4.2 since 17 Nov 2026" in shown
    assert max(map(len, (line.rstrip() for line in shown.splitlines() if "fell" not in line))) <= 80
    llm, offline = sorted(said("drift", "--agents", "ada", "--schedule", "nightly")["series"], key=lambda s: s["judge"])
    assert (len(llm["points"]), len(llm["drops"]), offline["drops"]) == (18, 1, [])
    assert llm["points"][0].keys() == {"evaluation_run", "time", "score", "error", "tested", "restarts"}
    assert llm["drops"][0]["before"] == pytest.approx(7.1, abs=0.2)
    none = said("drift", "--agents", "ada", "--dimension", "fluency")
    assert (none["series"], [row["agent"] for row in none["no_series"]]) == ([], ["ada"])


def test_drift_says_who_has_no_series(ada: Agent) -> None:
    measured_day(make_schedule("nightly", ada, due=MONDAY + 999 * DAY), ada, 0, (7, 8))
    schedules.work_one(owner="test")
    make_agent("kevin")

    assert "no series: kevin: measured by no schedule yet" in run("drift")
    assert "no series" not in run("drift", "--agents", "ada")
    assert said("drift")["no_series"] == [{"agent": "kevin", "reason": "measured by no schedule yet"}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--agents", "nobody"), "no agent 'nobody'; agents: ada"),
        (("--dimension", "charm"), "--dimension 'charm': allowed: adherence"),
        (("--schedule", "x"), "no schedule 'x'; schedules: none yet"),
    ],
)
def test_drift_refuses_what_is_not_there(ada: Agent, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused("drift", *arguments)


def test_drift_without_series_says_how_to_get_some(ada: Agent) -> None:
    assert "schedule add nightly" in run("drift")
    assert said("drift") == {"series": [], "no_series": [{"agent": "ada", "reason": "measured by no schedule yet"}]}
