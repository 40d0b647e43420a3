"""The advice of a proposition goes back to the agent when its draft scores below the threshold, and only then (AC-6.0.14)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django import Settings

from tests.correction.gating import gated, judge, send, team_file
from tests.llm_server import LLMServer

ADVICE = "Say it in half the words."


@pytest.mark.django_db
@pytest.mark.parametrize(("score", "told"), [(3, True), (8, False)])
def test_advice_is_given_back_only_below_the_threshold_ac_6_0_14(
    llm_server: LLMServer, settings: Settings, tmp_path: Path, score: int, told: bool
) -> None:
    fields = f"recommendations_for_improvement: {ADVICE}\n    rule: {{max_words: {3 if told else 30}}}"
    team_file(settings, tmp_path, "adherence/ada.yaml", fields)
    llm_server.respond = judge({"adherence": score})

    result = send(*gated("adherence"), "I have counted the drawers again, twice.")

    assert result.committed is not told
    assert (ADVICE in result.feedback) is told
