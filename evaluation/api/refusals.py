"""Proposition files that cannot be used: 409."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agents.api.problems import Conflict
from evaluation.propositions.files import PropositionError


@contextmanager
def reading_propositions() -> Iterator[None]:
    """Proposition files that cannot be used are a 409 that says what to mend where."""
    try:
        yield
    except PropositionError as error:
        raise Conflict(f"proposition files cannot be used: {error}") from None
