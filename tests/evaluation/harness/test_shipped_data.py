"""The shipped data, build 40 against build 41, with the offline judge: planted drift fails the build, and nobody else is accused."""

from __future__ import annotations

import io

import pytest
from django.core.management import call_command
from pytest_django import Settings

from agents.seed import loader
from tests.evaluation.harness.building import report

pytestmark = pytest.mark.django_db
LOSE_THEIR_VOICE = {"michael", "dwight", "angela", "stanley", "kevin"}
ASKED = ("--dimensions", "adherence,fluency", "--samples", "100")


@pytest.fixture(autouse=True)
def _seeded(settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.PROPOSITION_DIRS = "offline:lexical-1", []
    loader.seed()
    call_command("capture_baseline", "--no-play", "--json", "--where", "build=40", *ASKED, stdout=io.StringIO())


def test_build_41_fails_for_those_who_lose_their_voice_and_for_nobody_else() -> None:
    found = report("--where", "build=41", *ASKED, "--threshold", "fluency=5")

    assert found["summary"]["verdict"] == "regression"
    assert {entry["agent"] for entry in found["regressions"]} == LOSE_THEIR_VOICE
    assert {entry["agent"] for entry in found["below_threshold"]} == {"jim"}, "who repeats himself"
    for entry in found["regressions"]:
        claim = entry["proposition"] or entry["fell_most"][0]["proposition"]
        assert claim.startswith(entry["agent"])
        assert entry["interval"][1] < 0, "what is called a regression is sure"
        assert entry["worst_message"]["text"]
        assert entry["worst_message"]["position"] is not None
    assert found["summary"]["heuristic"] is True


def test_build_40_against_itself_passes() -> None:
    found = report("--where", "build=40", *ASKED)

    assert (found["regressions"], found["summary"]["exit_code"]) == ([], 0)
