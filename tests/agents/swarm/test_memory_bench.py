"""The measurement of memory reads LoCoMo's form, and on its example memory holds more evidence than recent or random messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.bench.memory import EXAMPLE, LAST, OURS, RANDOM, measured


@pytest.mark.slow
def test_memory_holds_more_evidence_than_the_last_or_random_messages(db: None) -> None:
    result = measured(json.loads(EXAMPLE.read_text()))

    shares = {way: sum(answers) / len(answers) for way, answers in result.ways.items()}
    assert {len(answers) for answers in result.ways.values()} == {74}
    assert shares[OURS] > shares[LAST] + 0.1
    assert shares[OURS] > shares[RANDOM] + 0.1


def test_questions_without_known_evidence_are_left_out_and_counted(db: None) -> None:
    said: list[dict[str, Any]] = [
        {"speaker": ("Mia", "Tom")[n % 2], "dia_id": f"D1:{n}", "text": f"I saw bird {n}."} for n in range(1, 40)
    ]
    evidence = [["D1:3; D1:39"], ["D9:1"], [], ["D1:38"]]
    asked = [{"question": "Which bird?", "evidence": each} for each in evidence]

    result = measured([{"conversation": {"session_1": said}, "qa": asked}])

    assert result.unknown == 2
    assert len(result.ways[OURS]) == 2
    assert result.ways[LAST][1] == 1
