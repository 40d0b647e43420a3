"""How often a steady judge raises a false alarm, and how soon a changed one is noticed: 30 simulated judgements, day by day."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from evaluation.change.sentinel import Frozen, is_change, judge_change
from evaluation.statistics.difference import MARGIN

DAY = timedelta(days=1)
MESSAGES_OF_ITEMS = (*range(20), *range(10))  # as they are drawn: 20 messages, ten of them with a second judgement
MUCH_NOISE, SOME_NOISE = 1.0, 0.5  # standard deviation of one answer, in points
OF_CALL = 0.5  # share of its variance that the answers of one call have in common


class Judge:
    """A noisy judge of 30 frozen judgements."""

    def __init__(self, seed: int, noise: float) -> None:
        self._noise = noise
        self._rng = np.random.default_rng(seed)
        self._worth = self._rng.integers(1, 9, 20)
        first_answers = self.answers()
        self.items = {}
        for number, message in enumerate(MESSAGES_OF_ITEMS):
            self.items[str(number)] = Frozen(
                agent=1, message=message, dimension="adherence", proposition="p", reference=first_answers[str(number)]
            )

    def answers(self, shift: int = 0) -> dict[str, int]:
        of_call = self._rng.normal(0, self._noise * OF_CALL**0.5, 20)
        scores = {}
        for number, message in enumerate(MESSAGES_OF_ITEMS):
            noise = of_call[message] + self._rng.normal(0, self._noise * (1 - OF_CALL) ** 0.5)
            scores[str(number)] = int(np.clip(round(self._worth[message] + shift + noise), 0, 9))
        return scores

    def first_alarm(self, days: int, shift: int = 0) -> int | None:
        """The first day on which it is called changed; None within so many days."""
        for day in range(days):
            answers = self.answers(shift)
            difference = sum(score - (self.items[key].reference or 0) for key, score in answers.items()) / len(answers)
            # Less than the margin is no change; the test, which takes longer, need not look at it.
            if abs(difference) >= MARGIN - 0.01 and is_change(judge_change(self.items, answers), every=DAY):
                return day
        return None


@pytest.mark.slow
def test_a_steady_noisy_judge_hardly_ever_raises_an_alarm() -> None:
    alarmed = [seed for seed in range(200) if Judge(seed, MUCH_NOISE).first_alarm(60) is not None]

    assert len(alarmed) <= 10


def test_a_point_more_is_noticed_within_days() -> None:
    alarmed = [seed for seed in range(20) if Judge(seed, SOME_NOISE).first_alarm(3, shift=1) is not None]

    assert len(alarmed) >= 19
