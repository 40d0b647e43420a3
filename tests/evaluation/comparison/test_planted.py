"""The shipped data, build 40 against build 41: those who drifted are found, nobody else is accused."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from agents.seed import loader
from tests.agents.test_seed import CAST
from tests.evaluation.comparison.test_compare_command import document
from tests.evaluation.test_planted_drift import LOSE_THEIR_VOICE

pytestmark = pytest.mark.django_db


def test_those_who_lose_their_voice_are_found_and_nobody_else_is_accused_ac_6_5_4(settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.PROPOSITION_DIRS = "offline:lexical-1", []
    loader.seed()

    code, found = document("--a", "build=40", "--b", "build=41")

    by_agent = {c["target"]: c for c in found["comparisons"]}
    assert set(by_agent) == set(CAST)
    assert {slug for slug, c in by_agent.items() if "adherence" in c["worse"]} == LOSE_THEIR_VOICE
    assert {slug for slug, c in by_agent.items() if c["worse"]} == LOSE_THEIR_VOICE, (
        "no proposition of the others either"
    )
    fluency = by_agent["jim"]["dimensions"]["fluency"]
    assert (fluency["delta"] <= -2, fluency["interval"], fluency["verdict"]) == (True, None, "cannot tell yet")
    assert code == 1
