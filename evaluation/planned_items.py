"""The judgements of a run as pending rows: what each dimension's scorer plans, as often as it is judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from evaluation.bulk import insert_values
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.propositions.schema import Proposition, fill
from evaluation.scorers import SCORERS
from evaluation.scorers.base import Item
from evaluation.targets import subject_of, variables_of


def insert_items(run: EvaluationRun, propositions: Mapping[str, Sequence[Proposition]]) -> None:
    """Store what is to be judged in a run, by its propositions per dimension; `sample_size` is then known."""
    subject = subject_of(run)
    variables = variables_of(subject)
    sampled: set[int] = set()
    for dimension in run.own_dimensions:
        items: Iterable[Item] = SCORERS[dimension].plan(subject, propositions[dimension])
        shared = {p.id: _columns(p, variables) for p in propositions[dimension]}
        found = repeated(items, run.repeats)
        while batch := list(islice(found, 500)):
            rows = ((i.message_id, i.compared_with_id, i.repeat, *shared[i.proposition.id]) for i in batch)
            insert_values(EvaluationScore(evaluation_run=run), _OF_AN_ITEM, rows)
            sampled.update(item.message_id for item in batch if item.message_id is not None)
    run.sample_size = len(sampled)
    run.save(update_fields=["sample_size"])


def repeated(items: Iterable[Item], repeats: int) -> Iterator[Item]:
    """Each item as often as it is judged: rules are exact, once says it all."""
    for item in items:
        yield item
        if item.proposition.rule is None:
            yield from (replace(item, repeat=number) for number in range(2, repeats + 1))


_OF_AN_ITEM = (
    *("message_id", "compared_with_id", "repeat"),
    *("dimension", "proposition_id", "claim", "weight", "inverted", "recommendations", "over_window"),
)


def _columns(proposition: Proposition, variables: dict[str, str]) -> tuple[Any, ...]:
    """What the judgements of a proposition have in common: the last columns of `_OF_AN_ITEM`."""
    unfilled = (
        "channel_name" in proposition.claim and "channel_name" not in variables
    )  # its channel is known when it is judged
    return (
        proposition.dimension,
        proposition.id,
        proposition.claim if unfilled else fill(proposition.claim, variables),
        proposition.weight,
        proposition.inverted,
        proposition.recommendations,
        proposition.over_window,
    )
