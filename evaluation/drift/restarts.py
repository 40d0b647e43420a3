"""Where a series starts anew, and why: which change of the persona it was, as far as its versions were kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from agents.persona import changes_between
from evaluation.drift.series import Series

MOST_RESTARTS = 3  # told of one series: the newest; each takes a few queries
OTHERWISE = "propositions, window or tags changed"
NOT_KEPT = "the persona changed; no version tells what changed"


@dataclass(frozen=True, slots=True)
class Restart:
    """A series that starts anew with the evaluation `run`."""

    run: int
    time: datetime
    because: str


def restarts_of(series: Series) -> tuple[Restart, ...]:
    """The newest restarts of a series, oldest first. What changed is not drift; what fell at the same moment shows in a comparison."""
    pairs = pairwise(series.evaluations)
    found = [(before, now) for before, now in pairs if now.restarts][-MOST_RESTARTS:]
    restarts = []
    for before, now in found:
        because = OTHERWISE
        if before.persona != now.persona:
            told = changes_between(series.agent.slug, before.persona, now.persona)
            because = "; ".join(map(str, told)) or NOT_KEPT
        restarts.append(Restart(now.run, now.time, because))
    return tuple(restarts)
