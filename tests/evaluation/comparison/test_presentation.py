"""What a terminal is told beside the numbers: what is sure, what is not, and what to do then."""

from __future__ import annotations

from io import StringIO

from evaluation.change.comparison import Comparison, compare
from evaluation.change.measurements import Measurement
from evaluation.change.tables import comparisons_table
from tests.evaluation.comparison.sides import LLM, OFFLINE, adherence, of, side

LARGE = "large, but with no interval neither sure nor in the exit code, so read what was said:"


def shown(*comparisons: Comparison) -> str:
    out = StringIO()
    comparisons_table(comparisons, out)
    return " ".join(out.getvalue().split())


def window(score: float, *, target: str = "ada", judge: str = OFFLINE) -> Measurement:
    """A fluency judged once, of the window as a whole."""
    return side({"fluency": {"varied": of([score], unit="repeat")}}, target=target, judge=judge)


def test_a_large_change_without_an_interval_is_not_lost_among_the_rows() -> None:
    calm = [compare(window(8, target=f"agent-{n}"), window(8.4, target=f"agent-{n}")) for n in range(3)]

    text = shown(*calm, compare(window(9), window(0)), compare(window(7, target="bob"), window(6, target="bob")))

    assert f"{LARGE} ada fluency 9.0 → 0.0, bob fluency 7.0 → 6.0." in text
    assert LARGE not in shown(*calm)


def test_many_of_them_are_counted() -> None:
    text = shown(*(compare(window(9, target=f"agent-{n:02}"), window(0, target=f"agent-{n:02}")) for n in range(12)))

    assert "agent-09 fluency 9.0 → 0.0 and 2 more." in text


def test_without_an_interval_it_is_said_how_to_get_one() -> None:
    assert "an interval takes an LLM judge and --repeats 3 on both sides" in shown(compare(window(9), window(0)))
    text = shown(compare(window(9, judge=LLM), window(0, judge=LLM)))
    assert "an interval takes repeats (--repeats 3) on both sides" in text


def test_a_baseline_that_is_too_small_leads_to_detect() -> None:
    text = shown(compare(adherence([8, 2, 9, 5]), adherence([8, 3, 9, 5, 7, 6, 8, 4], first=100)))

    assert "the baseline of 4 messages is too small to decide by: it takes a larger one" in text
    assert "--detect 0.5 says how many messages a baseline takes." in text
