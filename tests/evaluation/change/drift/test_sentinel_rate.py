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
@pytest.mark.parametrize("noise", [SOME_NOISE, MUCH_NOISE])
def test_a_steady_judge_hardly_ever_raises_an_alarm(noise: float) -> None:
    alarmed = [seed for seed in range(200) if Judge(seed, noise).first_alarm(90) is not None]

    print(f"scatter {noise}: {len(alarmed)} of 200 steady judges raised an alarm in 90 days")  # noqa: T201
    assert len(alarmed) <= 10


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "on_first_day", "within_a_week"), [(SOME_NOISE, 90, 100), (MUCH_NOISE, 20, 65)])
def test_a_point_more_is_noticed_within_days(noise: float, on_first_day: int, within_a_week: int) -> None:
    days = [Judge(seed, noise).first_alarm(7, shift=1) for seed in range(100)]
    noticed = [day for day in days if day is not None]

    print(  # noqa: T201
        f"scatter {noise}: of 100 changed judges {noticed.count(0)} were noticed on the first day, {len(noticed)} within 7"
    )
    assert noticed.count(0) >= on_first_day
    assert len(noticed) >= within_a_week


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "least"), [(SOME_NOISE, 60), (MUCH_NOISE, 1)])
def test_a_judge_that_went_back_is_seldom_sure_where_it_scatters_much(noise: float, least: int) -> None:
    ended = 0
    for seed in range(100):
        judge = Judge(seed, noise)
        ended += judge_change(judge.items, judge.answers()).verdict == "steady"
        assert judge_change(judge.items, judge.answers(shift=1)).verdict != "steady"

    print(f"scatter {noise}: one check ended the change of {ended} of 100 judges that went back")  # noqa: T201
    assert ended >= least
