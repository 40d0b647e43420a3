"""Charts: what is drawn, what is a gap, and the same numbers as a table."""

from __future__ import annotations

from datetime import timedelta
from html import unescape
from typing import Any

from agents.kit.console.charts import MOST_ROWS, Line, Marker, Point, line_chart, steps
from tests.console import HOSTILE, drawn, plain
from tests.factories import MONDAY

DAY = timedelta(days=1)


def line(*values: float | None, name: str = "Ada", **fields: object) -> Line:
    points = [Point(at=MONDAY + day * DAY, value=value) for day, value in enumerate(values)]
    return Line(name=name, points=points, **fields)  # type: ignore[arg-type]


def values(html: str) -> list[list[Any]]:
    return [[point["y"] for point in dataset["data"]] for dataset in drawn(html)[0]["datasets"]]


def rows(html: str) -> list[str]:
    body = html[html.index("<tbody>") : html.index("</tbody>")]
    return [plain(row) for row in body.split("<tr>")[1:]]


def test_what_was_not_measured_is_a_gap_and_said_in_the_table() -> None:
    html = line_chart([line(7, 6, None, 5, 4)], label="Scores")

    assert values(html) == [[7, 6, None, 5, 4]]
    assert rows(html) == [
        "6 Nov 2026, 09:00 4.0",
        "5 Nov 2026, 09:00 5.0",
        "4 Nov 2026, 09:00 unscored",
        "3 Nov 2026, 09:00 6.0",
        "2 Nov 2026, 09:00 7.0",
    ]


def test_lines_share_rows_of_common_times_and_a_baseline_comes_first() -> None:
    html = line_chart([line(7, 6, level=0), line(3, name="Bob")], label="Scores")

    assert rows(html) == ["baseline 0.0 –", "3 Nov 2026, 09:00 6.0", "2 Nov 2026, 09:00 7.0 3.0"]
    assert values(html) == [[7, 6], [0, 0], [3]]
    assert "baseline 0.0" in plain(html[: html.index("<canvas")])


def test_markers_outside_of_the_range_are_left_out() -> None:
    markers = [Marker(at=MONDAY + day * DAY, title=f"edit {day}", url=f"/{day}/", kind="alert") for day in (-1, 1, 9)]
    html = line_chart([line(7, 6, 5)], label="Scores", markers=markers)

    assert len(drawn(html)[0]["markers"]) == 1
    assert 'href="/1/"' in html
    assert "edit 9" not in html


def test_only_the_newest_rows_are_in_the_table() -> None:
    html = line_chart([line(*[5.0] * (MOST_ROWS + 3))], label="Scores")

    assert len(rows(html)) == MOST_ROWS
    assert "and 3 older ones" in html


def test_names_titles_and_labels_are_escaped() -> None:
    hostile = f"{HOSTILE}\u202e"
    html = line_chart([line(7, name=hostile)], label=hostile, markers=[Marker(at=MONDAY, title=hostile, kind="alert")])

    assert "<script>" not in html
    assert "\u202e" not in unescape(html)


def test_steps_are_drawn_in_their_order_with_gaps_and_a_row_each() -> None:
    html = steps(
        {"Ada": [0.5, None, 0.75], HOSTILE: [1, 0, None]}, names=["poll", "round 1", "round 2"], label="Confidence"
    )

    assert values(html) == [[0.5, None, 0.75], [1, 0, None]]
    assert drawn(html)[0]["days"] == [[0, "poll"], [1, "round 1"], [2, "round 2"]]
    assert rows(html) == ["poll 0.50 1.00", "round 1 – 0.00", "round 2 0.75 –"]
    assert "<script>" not in html
