"""Requests that are understood and cannot be done as things stand: 409."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rest_framework.exceptions import APIException

from evaluation.proposition_files import PropositionError


class Conflict(APIException):
    """What is there does not allow it; the detail says what is there."""

    status_code = 409
    default_code = "conflict"


@contextmanager
def reading_propositions() -> Iterator[None]:
    """Proposition files that cannot be used are a 409 that says what to mend where."""
    try:
        yield
    except PropositionError as error:
        raise Conflict(f"proposition files cannot be used: {error}") from None
