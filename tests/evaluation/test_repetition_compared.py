"""Offline fluency: scored only where words are repeated, and compared by an exact statistic whose interval is over the messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.models import Agent
from evaluation.change.change import ChangeResult
from evaluation.change.comparison import compare
from evaluation.change.measurement_files import measurements_of_file
from evaluation.change.measurements import measurement_of
from evaluation.change.models import Baseline
from evaluation.models import EvaluationRun
from tests.evaluation.measuring import evaluate_agent
from tests.evaluation.test_fluency import COPIED, VARIED
from tests.factories import make_agent, make_channel, talk

pytestmark = pytest.mark.django_db
THINGS = "stamps coins keys forms pens cups labels tins mugs lamps hats bolts nails cards ropes".split()  # noqa: SIM905
FRESH = [f"{thing.capitalize()} {n * 37}: {thing[::-1]}{n} {n * n}x {thing}{n}." for n, thing in enumerate(THINGS)]
SAME_THOUGHT = [
    "We ought to start the meeting later.",
    "Mornings are too early for this get-together.",
    "Could everybody gather after lunch instead?",
    "Let us not assemble before noon.",
    "A gathering at eight suits nobody.",
]


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.PROPOSITION_DIRS = "offline:lexical-1", []


def two_builds(before: list[str], now: list[str]) -> Agent:
    ada, office = make_agent("ada"), make_channel()
    talk(ada, before, channel=office, tags={"build": "40"})
    talk(ada, now, channel=office, tags={"build": "41"})
    return ada


def fluency(agent: Agent, build: str) -> EvaluationRun:
    return evaluate_agent(agent=agent, dimensions=("fluency",), where={"build": build}).run


def change(before: list[str], now: list[str]) -> ChangeResult:
    ada = two_builds(before, now)
    (found,) = compare(*(measurement_of(fluency(ada, build)) for build in ("40", "41"))).dimensions
    return found


def test_a_planted_fall_is_sure_by_the_messages_alone() -> None:
    found = change(VARIED, COPIED)

    assert found.verdict == "drifted"
    assert found.interval is not None
    assert found.interval.high < -5
    assert (found.baseline_n, found.n, found.unit) == (6, 6, "messages")


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (FRESH, FRESH[:5]),
        (SAME_THOUGHT, VARIED),
        (
            [f"{text} See you there, all." for text in FRESH[:6]],
            [f"{t} See you there, all." for t in FRESH],
        ),
    ],
)
def test_windows_that_repeat_alike_do_not_differ_however_long_they_are(before: list[str], now: list[str]) -> None:
    assert change(before, now).verdict not in ("drifted", "improved")


def test_the_fall_shows_against_an_unscored_baseline_and_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ada = two_builds(VARIED, COPIED)
    file = tmp_path / "baseline.json"
    asked = ("--agents", "ada", "--dimensions", "fluency", "--where", "build=40", "--no-simulate")

    call_command("capture_baseline", *asked, "--out", str(file))

    assert list(Baseline.objects.values_list("dimension", "score")) == [("fluency", None)]
    for how in ((), ("--baseline", str(file))):
        capsys.readouterr()
        with pytest.raises(CommandError):
            call_command(
                "evaluate", "--agents", "ada", "--dimensions", "fluency", "--where", "build=41", "--json", *how
            )
        document = json.loads(capsys.readouterr().out)
        assert document["summary"]["verdict"] == "regression", how
        assert {entry["dimension"] for entry in document["regressions"]} == {"fluency"}
    stored = measurements_of_file(file)["ada"].dimensions["fluency"].propositions["fluency-no-formulas"]
    assert [row.value for row in stored.observations] == [
        row.value
        for row in measurement_of(EvaluationRun.objects.filter(agent=ada).earliest("pk"))
        .dimensions["fluency"]
        .propositions["fluency-no-formulas"]
        .observations
    ]
