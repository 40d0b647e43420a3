"""Short ways to measure an agent and to look at what was stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from agents.models import Agent, Channel
from evaluation.models import CHANNEL_DIMENSIONS, EvaluationRun, EvaluationScore
from evaluation.propositions.files import default_dimensions
from evaluation.runs.control import queue_run
from evaluation.runs.execute import Captured, capture
from evaluation.runs.numbers import RunSummary
from evaluation.runs.spec import RunSpec
from tests.evaluation.conftest import PropositionFolder
from tests.factories import speaking


def spec(agent: Agent, **fields: Any) -> RunSpec:
    """A baseline of adherence alone."""
    return RunSpec(agent=agent, **{"dimensions": ("adherence",), "is_baseline": True, **fields})


def measured(agent: Agent, **fields: Any) -> Captured:
    return capture([spec(agent, **fields)])[0]


def statuses(run: EvaluationRun | None = None) -> Counter[str]:
    """How many judgements stand in which status."""
    rows = EvaluationScore.objects.all() if run is None else EvaluationScore.objects.filter(evaluation_run=run)
    return Counter(rows.values_list("status", flat=True))


def three_kinds(propositions: PropositionFolder) -> Agent:
    """An agent with one message, judged by a claim, an anti-pattern and a rule."""
    propositions.write(
        "adherence/_default.yaml",
        """
        propositions:
          - {id: voice, claim: voice, recommendations_for_improvement: "Sound like Ada."}
          - {id: flat, claim: flat, inverted: true}
          - {id: brief, claim: brief, rule: {max_words: 2}}
        """,
    )
    agent = speaking("ada", ["No."])
    return agent


def by_tag(run: EvaluationRun, key: str) -> dict[str, float]:
    """The run's adherence per value of a tag, weighted by proposition."""
    sums: dict[str, list[float]] = {}
    rows = run.scores.filter(dimension="adherence", status="scored", message__isnull=False)
    for tags, weight, score in rows.values_list("message__tags", "weight", "score"):
        entry = sums.setdefault(tags[key], [0.0, 0.0])
        entry[0] += weight * (score or 0)
        entry[1] += weight
    return {value: points / weights for value, (points, weights) in sums.items()}


def evaluate_agent(*, agent: Agent, **asked: Any) -> RunSummary:
    """Measure an agent now; `asked` is everything else a `RunSpec` says."""
    return capture([RunSpec(agent=agent, **asked)])[0].summary


def evaluate_channel(*, channel: Channel, **asked: Any) -> RunSummary:
    """Measure a conversation now: both of its dimensions, if nothing else is said."""
    return capture([RunSpec(channel=channel, **{"dimensions": CHANNEL_DIMENSIONS, **asked})])[0].summary


def queue_baseline(
    *, agents: Iterable[Agent], spec: RunSpec | None = None, simulate: bool = False
) -> list[EvaluationRun]:
    """Have a worker capture a baseline of each agent: of every dimension, if nothing else is said."""
    specs = (
        replace(spec or RunSpec(agent=a, dimensions=default_dimensions()), agent=a, is_baseline=True) for a in agents
    )
    return [queue_run(one, simulate=simulate)[0] for one in specs]
