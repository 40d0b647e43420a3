"""Comparing two sides: deltas, intervals, verdicts, and what does not compare (AC-6.5.4, AC-6.5.8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluation.change.comparison import compare
from evaluation.change.measurements import NotComparable
from evaluation.statistics.bootstrap import bootstrap_difference
from tests.evaluation.comparison.sides import OFFLINE, adherence, of, only, side

HIGH, LOW = [8, 9, 8, 7, 9, 8, 8, 9, 7, 8], [3, 4, 2, 3, 5, 3, 4, 2, 3, 4]


def test_the_change_per_dimension_is_the_current_mean_less_the_baseline_ac_6_5_8() -> None:
    before = side(
        {
            "adherence": {"voice": of(HIGH), "mood": of([5] * 10, weight=3)},
            "fluency": {"varied": of([6], unit="repeat")},
        }
    )
    now = side(
        {
            "adherence": {"voice": of(LOW, first=11), "mood": of([5] * 10, first=11, weight=3)},
            "fluency": {"varied": of([8], unit="repeat")},
        }
    )

    found = compare(before, now)

    assert [(c.dimension, c.baseline, c.current, c.delta) for c in found.dimensions] == [
        ("adherence", 5.775, 4.575, -1.2),  # (8.1 + 3 · 5) / 4 and (3.3 + 3 · 5) / 4
        ("fluency", 6.0, 8.0, 2.0),
    ]
    assert [(c.proposition, c.delta) for c in found.propositions["adherence"]] == [("voice", -4.8), ("mood", 0.0)]


def test_the_interval_is_the_cluster_bootstrap_over_messages_ac_6_5_8() -> None:
    change = only(compare(adherence(HIGH), adherence(LOW, first=11)))

    expected = bootstrap_difference(of(HIGH), of(LOW, first=11))
    assert change.interval == expected.interval
    assert (change.verdict, change.worse) == ("drifted", True)
    assert (change.n, change.baseline_n, change.unit, change.paired) == (10, 10, "messages", False)
    assert change.smallest_detectable == pytest.approx(1.1, abs=0.15)


def test_getting_better_is_drift_too_but_not_worse() -> None:
    found = compare(adherence(LOW), adherence(HIGH, first=11))

    assert (only(found).verdict, only(found).worse, found.worse) == ("drifted", False, ())


def test_steady_takes_an_interval_within_the_margin() -> None:
    before, now = adherence(HIGH * 8), adherence(HIGH * 8, first=1000)

    assert only(compare(before, now)).verdict == "steady"
    narrow = only(compare(before, now, margin=0.1))
    assert (narrow.verdict, narrow.n_more) == ("cannot tell yet", None)
    assert "too small to decide by" in narrow.reason


def test_what_cannot_be_told_yet_says_how_many_messages_would() -> None:
    change = only(compare(adherence(HIGH * 5), adherence([8, 6, 7, 9, 7, 8], first=1000)))

    assert change.verdict == "cannot tell yet"
    assert change.n_more is not None
    assert f"{change.n_more} more messages" in change.reason


def test_one_message_gives_a_change_and_no_interval() -> None:
    change = only(compare(adherence(HIGH), adherence([4], first=99)))

    assert (change.delta, change.interval, change.verdict, change.p_value) == (-4.1, None, "cannot tell yet", None)
    assert change.interval_note == "fewer than 2 messages on a side: there is no interval"


def test_nothing_scored_is_no_zero() -> None:
    empty = side({"adherence": {"voice": ()}})

    for before, now, where in ((empty, adherence(HIGH), "in the baseline"), (adherence(HIGH), empty, "now")):
        change = only(compare(before, now))
        assert (change.delta, change.interval, change.verdict) == (None, None, "cannot tell yet")
        assert change.reason == f"nothing was scored {where}"


def test_an_interval_of_scores_does_not_leave_what_is_possible() -> None:
    change = only(compare(adherence([9] * 8), adherence([0] * 8, first=99)))

    assert change.interval is not None
    assert (change.delta, change.interval.low) == (-9.0, -9.0)


@pytest.mark.parametrize("margin", [0.0, -1.0, float("nan")])
def test_a_margin_out_of_range_is_refused(margin: float) -> None:
    with pytest.raises(ValueError, match="margin is"):
        compare(adherence(HIGH), adherence(LOW, first=11), margin=margin)


# -- what does not compare
def test_another_judge_does_not_compare_and_both_are_named() -> None:
    with pytest.raises(
        NotComparable, match=r"by claude-haiku-5-5, now by offline:lexical-1 \(heuristic\); .*measure both with one"
    ):
        compare(adherence(HIGH, name="the baseline"), adherence(LOW, judge=OFFLINE, name="now"))


def test_another_procedure_does_not_compare_and_both_are_named() -> None:
    with pytest.raises(NotComparable, match=r"as plumbline, now as plumbline\+hard; .*in the same way"):
        compare(adherence(HIGH), adherence(LOW, procedure="plumbline+hard", name="now"))


def test_played_speech_does_not_compare_with_real_speech() -> None:
    with pytest.raises(NotComparable, match=r"plumbline\+simulated"):
        compare(adherence(HIGH), adherence(LOW, procedure="plumbline+simulated", simulated=True))


def test_two_agents_do_not_compare() -> None:
    with pytest.raises(NotComparable, match="is of ada, now of bob"):
        compare(adherence(HIGH), adherence(LOW, target="bob", name="now"))


# -- other propositions
def test_only_propositions_that_are_the_same_on_both_sides_are_compared() -> None:
    before = side({"adherence": {"voice": of(HIGH), "mood": of([9] * 10), "gone": of([0] * 10)}})
    now = side(
        {"adherence": {"voice": of(HIGH, first=11), "mood": of([1] * 10, first=11), "new": of([0] * 10, first=11)}},
        digests={"adherence": {"voice": "same", "mood": "reworded", "new": "same"}},
    )

    found = compare(before, now)

    assert found.changed == ("adherence/mood",)
    assert (found.only_baseline, found.only_current) == (("adherence/gone",), ("adherence/new",))
    assert [c.proposition for c in found.propositions["adherence"]] == ["voice"]
    assert (only(found).baseline, only(found).current, only(found).delta) == (8.1, 8.1, 0.0)
    assert any("not the same proposition any more, so not compared: adherence/mood" in note for note in found.notes)


def test_a_proposition_scored_on_one_side_only_does_not_move_the_dimension() -> None:
    before = side({"adherence": {"voice": of(HIGH), "mood": of([1] * 10)}})
    now = side({"adherence": {"voice": of(HIGH, first=11), "mood": ()}})

    found = compare(before, now)

    assert (only(found).delta, found.one_sided) == (0.0, ("adherence/mood",))
    assert [(c.proposition, c.delta) for c in found.propositions["adherence"]] == [("voice", 0.0), ("mood", None)]


def test_no_proposition_in_common_gives_no_change() -> None:
    before, now = side({"adherence": {"old": of(HIGH)}}), side({"adherence": {"new": of(LOW, first=11)}})

    change = only(compare(before, now))

    assert (change.delta, change.reason) == (None, "no proposition was scored on both sides")


def test_dimensions_of_one_side_are_named() -> None:
    fluency = {"fluency": {"varied": of([5], unit="repeat")}}
    found = compare(side({"adherence": {"voice": of(HIGH)}, **fluency}), adherence(LOW, first=11))

    assert ([c.dimension for c in found.dimensions], found.only_baseline) == (["adherence"], ("fluency",))


def test_a_persona_edited_since_makes_the_comparison_stale() -> None:
    before, now = adherence(HIGH, persona_digest="a"), adherence(HIGH, persona_digest="b", first=11)

    found = compare(before, now)

    assert found.stale
    assert any("persona was edited" in note for note in found.notes)
    assert not compare(before, replace(now, persona_digest="a")).stale
    assert not compare(before, replace(now, persona_digest="")).stale, "not known is not edited"
