"""What an interval is over: messages, situations that were simulated, channels, repeats of a whole window, counts."""

from __future__ import annotations

import pytest

from evaluation.change.comparison import Change, compare
from evaluation.change.measurements import Measurement
from evaluation.statistics.bootstrap import bootstrap_difference
from tests.evaluation.comparison.sides import LLM, OFFLINE, adherence, of, only, side

HARD = [2, 4, 6, 8, 3, 5, 7, 9]  # situations differ more than builds do


def whole(scores: list[float], *, judge: str = LLM) -> Measurement:
    """A fluency judged of a whole window, once per score."""
    return side({"fluency": {"varied": of(scores, unit="repeat")}}, judge=judge)


def change_between(before: Measurement, now: Measurement) -> Change:
    return only(compare(before, now))


def test_the_same_situations_are_compared_one_by_one() -> None:
    before, now = adherence(HARD, unit="situation"), adherence([s - 1 for s in HARD], unit="situation")

    change = only(compare(before, now))

    assert (change.paired, change.n, change.unit) == (True, 8, "situations")
    assert change.verdict == "drifted"
    apart = adherence([s - 1 for s in HARD], unit="situation", first=100)
    assert only(compare(before, apart)).verdict == "cannot tell yet", "not the same situations: nothing to pair"


def test_situations_on_one_side_only_are_left_out_and_it_is_said() -> None:
    before, now = adherence(HARD, unit="situation"), adherence([9, *HARD], unit="situation", first=0)

    change = only(compare(before, now))

    assert (change.delta, change.n, change.paired) == (0.0, 8, True)
    assert change.interval_note == "situations on one side only, left out: 1"


def test_the_same_messages_judged_again_are_paired_and_it_is_said() -> None:
    change = only(compare(adherence(HARD * 4), adherence(HARD * 4)))

    assert (change.delta, change.paired, change.verdict) == (0.0, True, "steady")
    assert "nothing new was said" in change.interval_note


def test_messages_that_stand_on_both_sides_are_counted() -> None:
    change = only(compare(adherence(HARD), adherence(HARD, first=5)))

    assert (change.paired, change.interval_note.split(",")[0]) == (False, "messages that stand on both sides: 4")


def test_a_window_judged_once_has_a_change_and_no_interval() -> None:
    change = change_between(whole([9]), whole([2]))

    assert (change.delta, change.interval, change.verdict) == (-7.0, None, "cannot tell yet")
    assert "takes repeats (--repeats 3) on both sides" in change.reason


def test_repeats_of_a_whole_window_give_the_judges_noise_and_the_note_says_so() -> None:
    change = change_between(whole([8, 7, 8, 8]), whole([2, 3, 2, 2]))

    assert change.interval == bootstrap_difference(of([8, 7, 8, 8]), of([2, 3, 2, 2])).interval
    assert (change.verdict, change.unit, change.smallest_detectable) == ("drifted", "repeats", None)
    assert change.interval_note.startswith("of the judge's noise alone")


def test_a_small_difference_beyond_the_judges_noise_is_not_called_drift() -> None:
    change = change_between(whole([8] * 8), whole([7.4] * 8))

    assert change.interval is not None
    assert (change.interval.high < 0, change.verdict) == (True, "cannot tell yet")
    assert "not surely by more than 0.5" in change.reason


def test_the_judges_noise_alone_beside_a_score_without_judgements_is_no_drift_either() -> None:
    fixed = side({"fluency": {"varied": of([8])}}, observations={}, digests={})

    change = change_between(fixed, whole([7.4] * 8))

    assert change.interval is not None
    assert (change.interval.high < 0, change.verdict, change.n_more) == (True, "cannot tell yet", None)
    assert "of the judge's noise alone" in change.interval_note
    assert (change.sd, change.smallest_detectable) == (None, None), "nothing is known of messages"
    assert change_between(fixed, whole([2] * 8)).verdict == "drifted"


def test_the_sentence_names_what_is_counted() -> None:
    before = adherence(HARD, unit="situation")
    change = only(
        compare(before, adherence([s - d for s, d in zip(HARD, [0, 1, -1, 2] * 2, strict=True)], unit="situation"))
    )

    assert change.n_more is not None
    assert f"{change.n_more} more situations" in change.reason


def test_repeats_of_a_judge_that_always_says_the_same_tell_nothing() -> None:
    change = change_between(whole([8] * 5, judge=OFFLINE), whole([7] * 5, judge=OFFLINE))

    assert (change.interval, change.verdict) == (None, "cannot tell yet")
    assert "always says the same: an interval takes an LLM judge and --repeats 3" in change.reason


def test_channels_are_compared_one_by_one() -> None:
    before = side({"convergence": {"apart": of(HARD, unit="channel")}})
    now = side({"convergence": {"apart": of([s - 1 for s in HARD], unit="channel")}})

    change = only(compare(before, now))

    assert (change.unit, change.paired, change.verdict) == ("channels", True, "drifted")


def test_one_channel_before_and_several_now_have_no_interval() -> None:
    before = side({"convergence": {"apart": of([5, 6], unit="repeat")}})
    now = side({"convergence": {"apart": of(HARD, unit="channel")}})

    change = only(compare(before, now))

    assert (change.interval, change.verdict) == (None, "cannot tell yet")
    assert "channels" in change.reason


# -- counts
def ideas(counts: list[int], count: int) -> Measurement:
    return side(
        {"ideas_quantity": {"ideas": of(counts, unit="repeat")}},
        scores={"ideas_quantity": count},
        proposition_scores={"ideas_quantity": {"ideas": count}},
        counted=frozenset(["ideas_quantity"]),
    )


def test_a_count_has_a_change_and_no_verdict_without_repeats() -> None:
    change = change_between(ideas([12], 12), ideas([40], 40))

    assert (change.baseline, change.current, change.delta, change.counted) == (12, 40, 28, True)
    assert (change.interval, change.verdict, change.p_value) == (None, "cannot tell yet", None)


def test_repeats_of_a_count_give_it_a_verdict_and_fewer_ideas_are_not_worse() -> None:
    change = change_between(ideas([40, 41, 39], 40), ideas([12, 12, 13], 12))

    assert (change.delta, change.verdict, change.worse) == (-28, "drifted", False)
    assert change.interval is not None
    assert change.interval.high < -20, "not cut off at 9 points: a count has no upper end"


# -- a side without single judgements
def test_a_side_without_judgements_is_taken_as_exact_and_it_is_said() -> None:
    known = adherence([3, 4, 2, 3, 5, 3, 4, 2], first=11)
    fixed = side({"adherence": {"voice": of([8])}}, observations={}, digests={})

    change = only(found := compare(fixed, known))

    assert (change.delta, change.verdict, change.baseline_n) == (-4.75, "drifted", 0)
    assert change.interval_note == "the baseline holds no single judgements: its score is taken as exact"
    assert any("does not say how its propositions were worded" in note for note in found.notes)
    turned = only(compare(known, fixed))
    assert change.interval is not None
    assert turned.interval is not None
    assert (turned.interval.low, turned.interval.high) == pytest.approx((-change.interval.high, -change.interval.low))


def test_two_sides_without_judgements_give_a_change_alone() -> None:
    before, now = (side({"adherence": {"voice": of([s])}}, observations={}) for s in (8, 5))

    change = only(compare(before, now))

    assert (change.delta, change.interval, change.verdict) == (-3.0, None, "cannot tell yet")
