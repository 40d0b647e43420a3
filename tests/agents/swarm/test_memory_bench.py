"""On the example of the bench, memory holds more evidence than recent or random messages."""

from __future__ import annotations

import json

import pytest

from tests.bench.memory import EXAMPLE, LAST, OURS, RANDOM, measured


@pytest.mark.slow
def test_memory_holds_more_evidence_than_the_last_or_random_messages(db: None) -> None:
    result = measured(json.loads(EXAMPLE.read_text()))

    shares = {way: sum(answers) / len(answers) for way, answers in result.ways.items()}
    assert {len(answers) for answers in result.ways.values()} == {74}
    assert shares[OURS] > shares[LAST] + 0.1
    assert shares[OURS] > shares[RANDOM] + 0.1
