"""A short digest per proposition: tells whether two runs asked the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evaluation.propositions import Proposition, propositions_digest

LENGTH = 12  # hex digits: two versions of one proposition are told apart, not millions of propositions


def digest_of_each(propositions: Mapping[str, Iterable[Proposition]]) -> dict[str, dict[str, str]]:
    """By dimension and id; equal when nothing that can change the proposition's score differs."""
    return {
        dimension: {p.id: propositions_digest([p])[:LENGTH] for p in group} for dimension, group in propositions.items()
    }
