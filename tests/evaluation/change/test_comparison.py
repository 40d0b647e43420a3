"""Comparison of two samples of judgements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evaluation.change.change import Change
from evaluation.change.comparison import compare
from evaluation.change.measurements import Measured, MeasuredDimension, Measurement, NotComparable
from evaluation.statistics.bootstrap import bootstrap_difference
from tests.evaluation.change.samples import LLM, OFFLINE, adherence, measurement, of, only

HIGH, LOW = [8, 9, 8, 7, 9, 8, 8, 9, 7, 8], [3, 4, 2, 3, 5, 3, 4, 2, 3, 4]


def test_the_change_per_dimension_is_the_current_mean_less_the_baseline_ac_6_5_8() -> None:
    before = measurement(
        {
            "adherence": {"voice": of(HIGH), "mood": of([5] * 10, weight=3)},
            "fluency": {"varied": of([6], unit="repeat")},
        }
    )
    now = measurement(
        {
            "adherence": {"voice": of(LOW, first=11), "mood": of([5] * 10, first=11, weight=3)},
            "fluency": {"varied": of([8], unit="repeat")},
        }
    )

    found = compare(before, now)

    assert [(c.dimension, c.baseline, c.candidate, c.delta) for c in found.dimensions] == [
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


def test_getting_better_is_improved_and_not_worse() -> None:
    found = compare(adherence(LOW), adherence(HIGH, first=11))

    assert (only(found).verdict, only(found).worse, found.worse) == ("improved", False, ())


def test_steady_takes_an_interval_within_the_margin() -> None:
    before, now = adherence(HIGH * 8), adherence(HIGH * 8, first=1000)

    assert only(compare(before, now)).verdict == "steady"
    narrow = only(compare(before, now, margin=0.1))
    assert (narrow.verdict, narrow.n_more) == ("not enough data", None)
    assert "too small to decide by" in narrow.reason


def test_what_cannot_be_told_yet_says_how_many_messages_would() -> None:
    change = only(compare(adherence(HIGH * 5), adherence([8, 6, 7, 9, 7, 8], first=1000)))

    assert change.verdict == "possibly drifted"
    assert change.n_more is not None
    assert f"{change.n_more} more messages" in change.reason


def test_one_message_gives_a_change_and_no_interval() -> None:
    change = only(compare(adherence(HIGH), adherence([4], first=99)))

    assert (change.delta, change.interval, change.verdict, change.p_value) == (-4.1, None, "possibly drifted", None)
    assert change.interval_note == "fewer than 2 messages in one of the two: there is no interval"


def test_nothing_scored_is_no_zero() -> None:
    empty = measurement({"adherence": {"voice": ()}})

    for before, now, where in ((empty, adherence(HIGH), "in the baseline"), (adherence(HIGH), empty, "now")):
        change = only(compare(before, now))
        assert (change.delta, change.interval, change.verdict) == (None, None, "not enough data")
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
@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"judge": OFFLINE}, r"by claude-haiku-5-5, now by offline:lexical-1 \(heuristic\); .*measure both with one"),
        ({"procedure": "plumbline+hard"}, r"as plumbline, now as plumbline\+hard; .*in the same way"),
        ({"procedure": "plumbline+simulated"}, r"as plumbline, now as plumbline\+simulated"),
        ({"target": "bob"}, "is of ada, now of bob"),
    ],
)
def test_what_was_judged_otherwise_does_not_compare_and_both_are_named(other: dict[str, Any], said: str) -> None:
    with pytest.raises(NotComparable, match=said):
        compare(adherence(HIGH, name="the baseline"), adherence(LOW, name="now", **other))


# -- other propositions
def test_only_propositions_that_are_the_same_in_both_are_compared() -> None:
    before = measurement({"adherence": {"voice": of(HIGH), "mood": of([9] * 10), "gone": of([0] * 10)}})
    now = measurement(
        {"adherence": {"voice": of(HIGH, first=11), "mood": of([1] * 10, first=11), "new": of([0] * 10, first=11)}},
        digests={"mood": "reworded"},
    )

    found = compare(before, now)

    assert found.changed == ("adherence/mood",)
    assert (found.only_baseline, found.only_candidate) == (("adherence/gone",), ("adherence/new",))
    assert [c.proposition for c in found.propositions["adherence"]] == ["voice"]
    assert (only(found).baseline, only(found).candidate, only(found).delta) == (8.1, 8.1, 0.0)
    assert any("not the same proposition any more, so not compared: adherence/mood" in note for note in found.notes)


def test_a_proposition_scored_in_one_only_does_not_move_the_dimension() -> None:
    before = measurement({"adherence": {"voice": of(HIGH), "mood": of([1] * 10)}})
    now = measurement({"adherence": {"voice": of(HIGH, first=11), "mood": ()}})

    found = compare(before, now)

    assert (only(found).delta, found.scored_in_one) == (0.0, ("adherence/mood",))
    assert [(c.proposition, c.delta) for c in found.propositions["adherence"]] == [("voice", 0.0), ("mood", None)]


def test_no_proposition_in_common_gives_no_change() -> None:
    before, now = measurement({"adherence": {"old": of(HIGH)}}), measurement({"adherence": {"new": of(LOW, first=11)}})

    change = only(compare(before, now))

    assert (change.delta, change.reason) == (None, "no proposition was scored in both")


def test_dimensions_of_one_alone_are_named() -> None:
    fluency = {"fluency": {"varied": of([5], unit="repeat")}}
    found = compare(measurement({"adherence": {"voice": of(HIGH)}, **fluency}), adherence(LOW, first=11))

    assert ([c.dimension for c in found.dimensions], found.only_baseline) == (["adherence"], ("fluency",))


@pytest.mark.django_db
def test_a_persona_edited_since_makes_the_comparison_stale() -> None:
    before, now = adherence(HIGH, persona_digest="a"), adherence(HIGH, persona_digest="b", first=11)

    found = compare(before, now)

    assert found.stale
    assert any("persona was edited" in note for note in found.notes)
    assert not compare(before, replace(now, persona_digest="a")).stale
    assert not compare(before, replace(now, persona_digest="")).stale, "not known is not edited"


HARD = [2, 4, 6, 8, 3, 5, 7, 9]  # situations differ more than builds do


def window(scores: list[float], *, judge: str = LLM) -> Measurement:
    """A fluency judged of a whole window, once per score."""
    return measurement({"fluency": {"varied": of(scores, unit="repeat")}}, judge=judge)


def change_between(before: Measurement, now: Measurement) -> Change:
    return only(compare(before, now))


def test_the_same_situations_are_compared_one_by_one() -> None:
    before, now = adherence(HARD, unit="situation"), adherence([s - 1 for s in HARD], unit="situation")

    change = only(compare(before, now))

    assert (change.paired, change.n, change.unit) == (True, 8, "situations")
    assert change.verdict == "drifted"
    apart = adherence([s - 1 for s in HARD], unit="situation", first=100)
    assert only(compare(before, apart)).verdict == "possibly drifted", "not the same situations: nothing to pair"


def test_situations_in_one_only_are_left_out_and_it_is_said() -> None:
    before, now = adherence(HARD, unit="situation"), adherence([9, *HARD], unit="situation", first=0)

    change = only(compare(before, now))

    assert (change.delta, change.n, change.paired) == (0.0, 8, True)
    assert change.interval_note == "situations in one of the two only, left out: 1"


def test_the_same_messages_judged_again_are_paired_and_it_is_said() -> None:
    change = only(compare(adherence(HARD * 4), adherence(HARD * 4)))

    assert (change.delta, change.paired, change.verdict) == (0.0, True, "steady")
    assert "nothing new was said" in change.interval_note


def test_messages_that_are_in_both_are_counted() -> None:
    change = only(compare(adherence(HARD), adherence(HARD, first=5)))

    assert (change.paired, change.interval_note.split(",")[0]) == (False, "messages that are in both: 4")


def test_a_window_judged_once_has_a_change_and_no_interval() -> None:
    change = change_between(window([9]), window([2]))

    assert (change.delta, change.interval, change.verdict) == (-7.0, None, "possibly drifted")
    assert "takes repeats (--repeats 3) for both" in change.reason


def test_repeats_of_a_whole_window_give_the_judges_noise_and_the_note_says_so() -> None:
    change = change_between(window([8, 7, 8, 8]), window([2, 3, 2, 2]))

    assert change.interval == bootstrap_difference(of([8, 7, 8, 8]), of([2, 3, 2, 2])).interval
    assert (change.verdict, change.unit, change.smallest_detectable) == ("drifted", "repeats", None)
    assert change.interval_note.startswith("of the judge's noise alone")


def test_a_small_difference_beyond_the_judges_noise_is_not_called_drift() -> None:
    change = change_between(window([8] * 8), window([7.4] * 8))

    assert change.interval is not None
    assert (change.interval.high < 0, change.verdict) == (True, "possibly drifted")
    assert "not surely by more than 0.5" in change.reason


def test_the_judges_noise_alone_beside_a_score_without_judgements_is_no_drift_either() -> None:
    fixed = measurement({"fluency": {"varied": of([8])}}, exact=True)

    change = change_between(fixed, window([7.4] * 8))

    assert change.interval is not None
    assert (change.interval.high < 0, change.verdict, change.n_more) == (True, "possibly drifted", None)
    assert "of the judge's noise alone" in change.interval_note
    assert (change.sd, change.smallest_detectable) == (None, None), "nothing is known of messages"
    assert change_between(fixed, window([2] * 8)).verdict == "drifted"


def test_the_sentence_names_what_is_counted() -> None:
    before = adherence(HARD, unit="situation")
    change = only(
        compare(before, adherence([s - d for s, d in zip(HARD, [0, 1, -1, 2] * 2, strict=True)], unit="situation"))
    )

    assert change.n_more is not None
    assert f"{change.n_more} more situations" in change.reason


def test_repeats_of_a_judge_that_always_says_the_same_tell_nothing() -> None:
    change = change_between(window([8] * 5, judge=OFFLINE), window([7] * 5, judge=OFFLINE))

    assert (change.interval, change.verdict) == (None, "possibly drifted")
    assert "always says the same: an interval takes an LLM judge and --repeats 3" in change.reason


def test_channels_are_compared_one_by_one() -> None:
    before = measurement({"convergence": {"apart": of(HARD, unit="channel")}})
    now = measurement({"convergence": {"apart": of([s - 1 for s in HARD], unit="channel")}})

    change = only(compare(before, now))

    assert (change.unit, change.paired, change.verdict) == ("channels", True, "drifted")


def test_one_channel_before_and_several_now_have_no_interval() -> None:
    before = measurement({"convergence": {"apart": of([5, 6], unit="repeat")}})
    now = measurement({"convergence": {"apart": of(HARD, unit="channel")}})

    change = only(compare(before, now))

    assert (change.interval, change.verdict) == (None, "not enough data")
    assert "channels" in change.reason


# -- counts
def ideas(counts: list[int], count: int) -> Measurement:
    one = Measured(score=count, observations=of(counts, unit="repeat"))
    return measurement(dimensions={"ideas_quantity": MeasuredDimension(score=count, propositions={"ideas": one})})


def test_a_count_has_a_change_and_no_verdict_without_repeats() -> None:
    change = change_between(ideas([12], 12), ideas([40], 40))

    assert (change.baseline, change.candidate, change.delta, change.counted) == (12, 40, 28, True)
    assert (change.interval, change.verdict, change.p_value) == (None, "not enough data", None)


def test_repeats_of_a_count_give_it_a_verdict_and_fewer_ideas_are_not_worse() -> None:
    change = change_between(ideas([40, 41, 39], 40), ideas([12, 12, 13], 12))

    assert (change.delta, change.verdict, change.worse) == (-28, "drifted", False)
    assert change.interval is not None
    assert change.interval.high < -20, "not cut off at 9 points: a count has no upper end"


# -- one without single judgements
def test_one_without_judgements_is_taken_as_exact_and_it_is_said() -> None:
    known = adherence([3, 4, 2, 3, 5, 3, 4, 2], first=11)
    fixed = measurement({"adherence": {"voice": of([8])}}, exact=True)

    change = only(found := compare(fixed, known))

    assert (change.delta, change.verdict, change.baseline_n) == (-4.75, "drifted", 0)
    assert change.interval_note == "the baseline holds no single judgements: its score is taken as exact"
    assert any("does not say how its propositions were worded" in note for note in found.notes)
    turned = only(compare(known, fixed))
    assert change.interval is not None
    assert turned.interval is not None
    assert (turned.interval.low, turned.interval.high) == pytest.approx((-change.interval.high, -change.interval.low))


def test_two_without_judgements_give_a_change_alone() -> None:
    before, now = (measurement({"adherence": {"voice": of([s])}}, exact=True) for s in (8, 5))

    change = only(compare(before, now))

    assert (change.delta, change.interval, change.verdict) == (-3.0, None, "possibly drifted")
