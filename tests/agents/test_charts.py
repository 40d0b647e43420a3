"""Charts drawn on the server: where values stand, what is a gap, and the same numbers as a table."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from agents.console.charts import (
    HEIGHT,
    MOST_ROWS,
    WIDTH,
    Bar,
    Line,
    Marker,
    Point,
    bars,
    line_chart,
    round_up,
    sparkline,
)
from tests.console import HOSTILE, plain
from tests.factories import MONDAY

DAY = timedelta(days=1)


def line(*values: float | None, name: str = "Ada", **fields: object) -> Line:
    points = [Point(at=MONDAY + day * DAY, value=value) for day, value in enumerate(values)]
    return Line(name=name, points=points, **fields)  # type: ignore[arg-type]


def dots(html: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r'class="pl-dot" d="M([\d.]+) ([\d.]+)h0"', html)]


def polylines(html: str) -> list[int]:
    """How many points each line on the chart has."""
    return [len(points.split()) for points in re.findall(r'polyline points="([^"]*)"', html)]


def rows(html: str) -> list[str]:
    body = html[html.index("<tbody>") : html.index("</tbody>")]
    return [plain(row) for row in body.split("<tr>")[1:]]


def test_the_highest_score_is_at_the_top_and_the_last_point_at_the_right() -> None:
    assert dots(line_chart([line(0, 9)], label="Scores")) == [(0.0, float(HEIGHT)), (float(WIDTH), 0.0)]


def test_what_was_not_measured_is_a_gap_and_said_in_the_table() -> None:
    html = line_chart([line(7, 6, None, 5, 4)], label="Scores")

    assert polylines(html) == [2, 2]
    assert len(dots(html)) == 4
    assert rows(html) == [
        "6 Nov 2026, 09:00 4.00",
        "5 Nov 2026, 09:00 5.00",
        "4 Nov 2026, 09:00 not measured",
        "3 Nov 2026, 09:00 6.00",
        "2 Nov 2026, 09:00 7.00",
    ]


def test_lines_share_the_rows_of_their_common_times_and_a_baseline_comes_first() -> None:
    html = line_chart([line(7, 6, level=8), line(3, name="Bob")], label="Scores", shown="{:.1f}".format)

    assert rows(html) == ["baseline 8.0 –", "3 Nov 2026, 09:00 6.0", "2 Nov 2026, 09:00 7.0 3.0"]
    assert '<path class="pl-level"' in html
    assert "baseline 8.0" in plain(html[: html.index('<svg viewBox="0 0 1000')])


def test_a_baseline_of_zero_is_drawn() -> None:
    assert f'class="pl-level" d="M0 {HEIGHT}.0h' in line_chart([line(7, level=0)], label="Scores")


def test_errors_are_bars_and_plus_minus() -> None:
    html = line_chart([Line(name="Ada", points=[Point(at=MONDAY, value=4.5, error=1.0)])], label="Scores")

    assert rows(html) == ["2 Nov 2026, 09:00 4.50 ± 1.00"]
    assert 'class="pl-error-bar" d="M500.0 77.8V122.2"' in html


def test_markers_outside_of_the_range_are_left_out() -> None:
    markers = [Marker(at=MONDAY + day * DAY, title=f"edit {day}", url=f"/{day}/") for day in (-1, 1, 9)]
    html = line_chart([line(7, 6, 5)], label="Scores", markers=markers)

    assert html.count('class="pl-marker ') == 1
    assert 'href="/1/"' in html
    assert "edit 9" not in html


def test_a_chart_with_links_is_a_group_and_one_without_an_image() -> None:
    """Inside of an image a reader finds no links."""
    with_links = line_chart([Line(name="Ada", points=[Point(at=MONDAY, value=4, url="/x/")])], label="Scores")

    assert 'role="group"' in with_links
    assert 'role="img"' in line_chart([line(7)], label="Scores")


def test_only_the_newest_rows_are_in_the_table() -> None:
    html = line_chart([line(*[5.0] * (MOST_ROWS + 3))], label="Scores")

    assert len(rows(html)) == MOST_ROWS
    assert "and 3 older ones" in html


def test_names_titles_and_labels_are_escaped() -> None:
    hostile = f"{HOSTILE}\u202e"
    html = line_chart([line(7, name=hostile)], label=hostile, markers=[Marker(at=MONDAY, title=hostile)])
    html += bars([Bar(label=hostile, values=[1])], label=hostile, series=[hostile])
    html += sparkline([1, 2], label=hostile)

    assert "<script>" not in html
    assert "\u202e" not in html


def test_a_chart_of_nothing_says_so_with_its_axes_alone() -> None:
    assert dots(line_chart([], label="Scores")) == []
    assert rows(bars([], label="Drafts")) == []
    assert "Ada: not measured" in sparkline([], label="Ada")


def test_bars_are_stacked_from_below_and_nothing_is_no_bar() -> None:
    html = bars(
        [Bar(label="4 to 5", values=[1, 3]), Bar(label="5 to 6", values=[0, 0])],
        label="Drafts",
        series=["gate", "observed"],
    )

    tall = [
        (float(y), float(height)) for y, height in re.findall(r'y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', html)
    ]
    assert tall == [(150.0, 50.0), (0.0, 150.0)]
    assert rows(html) == ["4 to 5 1 3", "5 to 6 0 0"]


def test_a_threshold_stands_where_it_is_on_the_axis() -> None:
    html = bars([Bar(label=str(n), values=[n]) for n in range(9)], label="Drafts", threshold=4.5)

    assert 'class="pl-threshold" x1="500.0" x2="500.0"' in html
    assert "threshold 4.5" in html


@pytest.mark.parametrize(
    ("highest", "top"), [(0, 2), (1, 2), (3, 4), (9, 10), (11, 20), (85, 100), (430, 600), (0.03, 0.04)]
)
def test_the_axis_ends_at_a_round_number(highest: float, top: float) -> None:
    assert round_up(highest) == pytest.approx(top)


def test_a_sparkline_says_its_values_and_leaves_gaps() -> None:
    html = sparkline([8.1, None, 3.2, 3.0], label="Ada, adherence")

    assert "<title>Ada, adherence: 8.1, not measured, 3.2, 3.0</title>" in html
    assert polylines(html) == [2]
