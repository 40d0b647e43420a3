"""Hours, days and months of UTC, and how a stretch of time is made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from agents.models import Span

HOUR = timedelta(hours=1)


def floor(moment: datetime, span: int) -> datetime:
    """The beginning of the hour, day or month that `moment` is in."""
    begun = moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if span == Span.HOUR:
        return begun
    return begun.replace(hour=0) if span == Span.DAY else begun.replace(hour=0, day=1)


def after(start: datetime, span: int) -> datetime:
    """The end of the span that begins at `start`: the beginning of the next."""
    if span == Span.HOUR:
        return start + HOUR
    if span == Span.DAY:
        return start + timedelta(days=1)
    return (start.replace(day=1) + timedelta(days=32)).replace(day=1)


def ceiling(moment: datetime, span: int) -> datetime:
    """`moment` itself where a span begins with it, else the beginning of the next.

    Raises:
        OverflowError: There is no next: the calendar ends.
    """
    begun = floor(moment, span)
    return begun if begun == moment else after(begun, span)


@dataclass(frozen=True, slots=True)
class Piece:
    """Spans of one length in a row, from `start` (None: the beginning of all time) up to, not including, `end`."""

    span: int
    start: datetime | None
    end: datetime


@dataclass(frozen=True, slots=True)
class RawPiece:
    """A stretch whose raw rows are read: from `start` on, up to `before`, or to `until` and including it; None is without end."""

    start: datetime | None = None
    before: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Cover:
    """What a window is made of: whole spans that are summed up, and the rest, at its edges and after the last closed hour."""

    summed: tuple[Piece, ...]
    raw: tuple[RawPiece, ...]


def cover(
    start: datetime | None, end: datetime | None, *, closed_before: datetime | None, spans: Sequence[int]
) -> Cover:
    """Divide the window from `start` up to and including `end`; None is without end.

    Args:
        closed_before: Whole hours before this are summed up; None: nothing is.
        spans: Lengths there are sums of; hours among them.
    """
    whole = RawPiece(start=start, until=end)
    if closed_before is None or (start is not None and start >= closed_before):
        return Cover((), (whole,))
    first = None if start is None else ceiling(start, Span.HOUR)
    last = closed_before if end is None else min(closed_before, floor(end, Span.HOUR))
    if first is not None and first >= last:
        return Cover((), (whole,))
    edges = [RawPiece(start=last, until=end)]
    if start is not None and first is not None and start < first:
        edges.insert(0, RawPiece(start=start, before=first))
    return Cover(tuple(_split(first, last, sorted(spans, reverse=True))), tuple(edges))


def _split(start: datetime | None, end: datetime, spans: Sequence[int]) -> Iterator[Piece]:
    """The stretch in the longest spans that fit, and what is left before and after them in shorter ones."""
    span, shorter = spans[0], spans[1:]
    first = None if start is None else ceiling(start, span)
    last = floor(end, span)
    if first is not None and first >= last:
        if shorter and (start is None or start < end):
            yield from _split(start, end, shorter)
        return
    if start is not None and first is not None and start < first:
        yield from _split(start, first, shorter)
    yield Piece(span, first, last)
    if last < end:
        yield from _split(last, end, shorter)
