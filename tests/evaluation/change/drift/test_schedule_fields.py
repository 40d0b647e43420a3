"""What a schedule may be asked for, as people write it."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from evaluation.runs.schedules import every_name, overlap_note, parse_every
from tests.evaluation.change.drift.scheduling import make_schedule

pytestmark = pytest.mark.django_db


# -- as people write them
@pytest.mark.parametrize(("text", "minutes"), [("30m", 30), ("6h", 360), ("1d", 1440), ("2w", 20160), (" 5M ", 5)])
def test_how_often_is_read_and_written(text: str, minutes: int) -> None:
    assert parse_every(text) == minutes
    assert parse_every(every_name(minutes)) == minutes


@pytest.mark.parametrize("text", ["", "4m", "0d", "daily", "367d"])
def test_how_often_names_what_is_allowed(text: str) -> None:
    with pytest.raises(
        ValueError, match="allowed: minutes, hours, days or weeks such as 30m, 6h, 1d, 1w; from 5m to 366d"
    ):
        parse_every(text)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"window": "soon"}, "window 'soon' is not understood; allowed: all, last:N"),
        ({"dimensions": ["charm"]}, "dimensions charm: allowed: adherence"),
        ({"where": {"build": 41}}, "Tags are pairs of texts"),
        ({"every_minutes": 4}, "greater than or equal to 5"),
        ({"drift_limit": 0}, "greater than or equal to 0.1"),
        ({"drift_limit": 10}, "less than or equal to 9"),
    ],
)
def test_a_schedule_that_cannot_be_measured_is_refused_by_field(fields: dict[str, object], message: str) -> None:
    schedule = make_schedule()
    for name, value in fields.items():
        setattr(schedule, name, value)

    with pytest.raises(ValidationError) as caught:
        schedule.full_clean()

    assert list(caught.value.message_dict) == list(fields)
    assert message in str(caught.value)


def test_windows_that_overlap_say_how_rarely_drift_is_tested() -> None:
    assert overlap_note(make_schedule("a", window="24h")) == ""
    assert "about one in 7" in overlap_note(make_schedule("b", window="7d"))
    assert "drift is not tested" in overlap_note(make_schedule("c", window="last:50"))
