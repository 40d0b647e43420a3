"""Preconditions as a team would write them, right and wrong."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

from evaluation.propositions.preconditions import Target

_turns = cycle([True, False])


def office_is_open(target: Target, context: Mapping[str, object], variables: Mapping[str, str]) -> bool:
    return bool(context.get("open"))


def fails(target: Target, context: Mapping[str, object], variables: Mapping[str, str]) -> bool:
    raise KeyError("the till")


def quotes_bytes(target: Target, context: Mapping[str, object], variables: Mapping[str, str]) -> bool:
    raise ValueError("cannot read \x00 \ud800\nat the till")


async def later(target: Target, context: Mapping[str, object], variables: Mapping[str, str]) -> bool:
    return False


def every_other_time(target: Target, context: Mapping[str, object], variables: Mapping[str, str]) -> bool:
    return next(_turns)


def is_reply(target: Target, context: Mapping[str, object], variables: Mapping[str, str]) -> bool:
    return True


def one_argument(target: Target) -> bool:
    return True
