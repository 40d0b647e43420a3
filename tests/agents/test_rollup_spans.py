"""A window is divided into months, days, hours and raw edges, without gap or overlap."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.models import Span
from agents.rollups.spans import Cover, RawPiece, cover

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
SPANS = (Span.HOUR, Span.DAY, Span.MONTH)


@pytest.mark.parametrize("closed", [None, NOON])
def test_what_is_not_closed_is_read_from_raw_rows(closed: datetime | None) -> None:
    start = NOON + timedelta(minutes=1)

    assert cover(start, None, closed_before=closed, spans=SPANS) == Cover((), (RawPiece(start=start),))


MOMENTS = st.datetimes(datetime(2025, 12, 1), datetime(2026, 4, 1), timezones=st.just(UTC))


@given(
    st.none() | MOMENTS,
    st.none() | MOMENTS,
    MOMENTS,
    MOMENTS,
    st.sampled_from([(1, 2), (1, 2, 3), (1,)]),
    st.booleans(),
)
def test_every_moment_of_a_window_is_in_exactly_one_of_its_pieces(
    start: datetime | None, end: datetime | None, closed: datetime, moment: datetime, spans: tuple[int, ...], edge: bool
) -> None:
    closed = closed.replace(minute=0, second=0, microsecond=0)
    moment = moment.replace(minute=0, second=0, microsecond=0) if edge else moment

    made_of = cover(start, end, closed_before=closed, spans=spans)

    inside = (start is None or start <= moment) and (end is None or moment <= end)
    summed_in = [p for p in made_of.summed if (p.start is None or p.start <= moment) and moment < p.end]
    raw_in = [
        p
        for p in made_of.raw
        if (p.start is None or p.start <= moment)
        and (p.before is None or moment < p.before)
        and (p.until is None or moment <= p.until)
    ]
    assert len(summed_in) + len(raw_in) == inside
    assert all(piece.end <= closed for piece in made_of.summed)
