"""Comparison of two samples of judgements."""

from __future__ import annotations

from typing import Any

import pytest
from scipy.stats import fisher_exact

from evaluation.change.comparison import Comparison, compare
from evaluation.change.measured import MeasuredDimension, MeasuredProposition
from evaluation.change.measurements import Measurement, NotComparable
from evaluation.runs.shares import Share
from evaluation.statistics.bootstrap import bootstrap_difference
from tests.evaluation.change.samples import LLM, OFFLINE, adherence, measurement, of, only

HIGH, LOW = [8, 9, 8, 7, 9, 8, 8, 9, 7, 8], [3, 4, 2, 3, 5, 3, 4, 2, 3, 4]
HARD = [2, 4, 6, 8, 3, 5, 7, 9]  # situations differ more than builds do
EASIER = [s - 1 for s in HARD]


def window(scores: list[float], *, judge: str = LLM) -> Measurement:
    """A fluency judged of a whole window, once per score."""
    return measurement({"fluency": {"varied": of(scores, unit="repeat")}}, judge=judge)


def channels(scores: list[int], unit: str = "channel") -> Measurement:
    return measurement({"convergence": {"apart": of(scores, unit=unit)}})


def ideas(counts: list[int], count: int) -> Measurement:
    one = MeasuredProposition(score=count, observations=of(counts, unit="repeat"))
    return measurement(dimensions={"ideas_quantity": MeasuredDimension(score=count, propositions={"ideas": one})})


def situations(scores: list[int], first: int = 1) -> Measurement:
    return adherence(scores, unit="situation", first=first)


def offline(scores: list[float]) -> Measurement:
    return window(scores, judge=OFFLINE)


EMPTY = measurement({"adherence": {"voice": ()}})


@pytest.mark.parametrize(
    ("before", "now", "delta", "verdict", "has_interval", "fields", "said"),
    [
        (adherence(HIGH), adherence(LOW, first=11), -4.8, "drifted", True, {"unit": "messages", "paired": False}, ""),
        (adherence(LOW), adherence(HIGH, first=11), 4.8, "improved", True, {"worse": False}, ""),
        (adherence(HIGH * 8), adherence(HIGH * 8, first=1000), 0, "steady", True, {"n": 80, "baseline_n": 80}, ""),
        (adherence([9] * 8), adherence([0] * 8, first=99), -9, "drifted", True, {}, ""),
        (
            *(adherence(HIGH), adherence([4], first=99), -4.1, "possibly drifted", False, {"p_value": None}),
            "fewer than 2 messages in one of the two: there is no interval",
        ),
        (EMPTY, adherence(HIGH), None, "not enough data", False, {}, "nothing was scored in the baseline"),
        (adherence(HIGH), EMPTY, None, "not enough data", False, {}, "nothing was scored now"),
        (EMPTY, EMPTY, None, "not enough data", False, {}, "nothing was scored both in the baseline and now"),
        # The same situations, messages or channels are compared one by one.
        (situations(HARD), situations(EASIER), -1, "drifted", True, {"paired": True, "n": 8, "unit": "situations"}, ""),
        (situations(HARD), situations(EASIER, 100), -1, "possibly drifted", True, {"paired": False}, ""),
        (
            *(situations(HARD), situations([9, *HARD], 0), 0, "steady", True, {"paired": True, "n": 8}),
            "situations in one of the two only, left out: 1",
        ),
        (adherence(HARD * 4), adherence(HARD * 4), 0, "steady", True, {"paired": True}, "nothing new was said"),
        (adherence(HARD), adherence(HARD, first=5), 0, "not enough data", True, {"paired": False}, "in both: 4,"),
        (channels(HARD), channels(EASIER), -1, "drifted", True, {"paired": True, "unit": "channels"}, ""),
        (channels([5, 6], "repeat"), channels(HARD), 0, "not enough data", False, {}, "channels"),
        # A window judged as a whole has its repeats: they show the judge's noise alone.
        (window([9]), window([2]), -7, "possibly drifted", False, {}, "takes repeats (--repeats 3) for both"),
        (
            *(window([8, 7, 8, 8]), window([2, 3, 2, 2]), -5.5, "drifted", True),
            *({"unit": "repeats", "smallest_detectable": None}, "of the judge's noise alone"),
        ),
        (
            *(window([8] * 8), window([7.4] * 8), -0.6, "possibly drifted", True, {"n_more": None}),
            "not significantly by more than 0.5",
        ),
        (
            *(offline([8] * 5), offline([7] * 5), -1, "possibly drifted", False, {}),
            "always says the same: an interval takes an LLM judge and --repeats 3",
        ),
        # Counts have a change; fewer ideas are not worse.
        (ideas([12], 12), ideas([40], 40), 28, "not enough data", False, {"counted": True, "p_value": None}, ""),
        (ideas([], 12), ideas([40], 40), 28, "not enough data", False, {}, "no single judgements"),
        (ideas([40, 41, 39], 40), ideas([12, 12, 13], 12), -28, "drifted", True, {"worse": False}, ""),
    ],
)  # fmt: skip
def test_what_two_samples_say(
    before: Measurement,
    now: Measurement,
    delta: float | None,
    verdict: str,
    has_interval: bool,
    fields: dict[str, Any],
    said: str,
) -> None:
    change = only(compare(before, now))

    assert change.delta == (None if delta is None else pytest.approx(delta, abs=0.11))
    assert (change.verdict, change.interval is not None) == (verdict, has_interval)
    assert {name: getattr(change, name) for name in fields} == fields
    assert said in f"{change.reason}; {change.interval_note}"
    if change.interval is not None:
        assert change.counted or (change.interval.low >= -9 and change.interval.high <= 9)
        assert change.interval.low <= (change.delta or 0) <= change.interval.high


def test_a_dimension_is_the_mean_weighted_by_proposition_ac_6_5_8() -> None:
    before = measurement({"adherence": {"voice": of(HIGH), "mood": of([5] * 10, weight=3)}})
    now = measurement({"adherence": {"voice": of(LOW, first=11), "mood": of([5] * 10, first=11, weight=3)}})

    found = compare(before, now)

    change = only(found)
    assert (change.baseline, change.candidate, change.delta) == (5.775, 4.575, -1.2)  # (8.1 + 3 · 5) / 4 …
    assert [(c.proposition, c.delta) for c in found.propositions["adherence"]] == [("voice", -4.8), ("mood", 0.0)]


def test_the_interval_is_the_cluster_bootstrap_over_messages_ac_6_5_8() -> None:
    change = only(compare(adherence(HIGH), adherence(LOW, first=11)))

    assert change.interval == bootstrap_difference(of(HIGH), of(LOW, first=11)).interval
    assert change.smallest_detectable == pytest.approx(1.1, abs=0.15)


def test_what_is_not_decided_says_what_would() -> None:
    change = only(compare(adherence(HIGH * 5), adherence([8, 6, 7, 9, 7, 8], first=1000)))
    assert f"{change.n_more} more messages" in change.reason

    noisy = situations([s - d for s, d in zip(HARD, [0, 1, -1, 2] * 2, strict=True)])
    change = only(compare(situations(HARD), noisy))
    assert f"{change.n_more} more situations" in change.reason

    narrow = only(compare(adherence(HIGH * 8), adherence(HIGH * 8, first=1000), margin=0.1))
    assert (narrow.verdict, narrow.n_more) == ("not enough data", None)
    assert "too small to decide by" in narrow.reason


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"judge": OFFLINE}, r"by claude-haiku-5-5, now by offline:lexical-1 \(heuristic\); .*measure both with one"),
        ({"procedure": "plumbline+hard"}, r"as plumbline, now as plumbline\+hard; .*in the same way"),
        ({"target": "bob"}, "is of ada, now of bob"),
    ],
)
def test_what_was_judged_otherwise_does_not_compare_and_both_are_named(other: dict[str, Any], said: str) -> None:
    with pytest.raises(NotComparable, match=said):
        compare(adherence(HIGH, name="the baseline"), adherence(LOW, name="now", **other))


# -- other propositions
def test_only_propositions_that_are_the_same_in_both_are_compared() -> None:
    before = measurement(
        {
            "adherence": {"voice": of(HIGH), "mood": of([9] * 10), "gone": of([0] * 10), "lost": of([1] * 10)},
            "fluency": {"varied": of([5], unit="repeat")},
        }
    )
    now = measurement(
        {
            "adherence": {
                **{"voice": of(HIGH, first=11), "mood": of([1] * 10, first=11)},
                **{"new": of([0] * 10, first=11), "lost": ()},
            }
        },
        digests={"mood": "reworded"},
    )

    found = compare(before, now)

    assert (found.changed, found.scored_in_one) == (("adherence/mood",), ("adherence/lost",))
    assert (found.only_baseline, found.only_candidate) == (("fluency", "adherence/gone"), ("adherence/new",))
    assert [(c.proposition, c.delta) for c in found.propositions["adherence"]] == [("voice", 0.0), ("lost", None)]
    assert (only(found).baseline, only(found).candidate, only(found).delta) == (8.1, 8.1, 0.0)
    assert any("not the same proposition any more, so not compared: adherence/mood" in note for note in found.notes)


def test_no_proposition_in_common_gives_no_change() -> None:
    before, now = measurement({"adherence": {"old": of(HIGH)}}), measurement({"adherence": {"new": of(LOW, first=11)}})

    change = only(compare(before, now))

    assert (change.delta, change.reason) == (None, "no proposition was scored in both")


@pytest.mark.django_db
def test_a_persona_edited_since_makes_the_comparison_stale() -> None:
    before, now = adherence(HIGH, persona_digest="a"), adherence(HIGH, persona_digest="b", first=11)

    found = compare(before, now)

    assert found.stale
    assert any("persona was edited" in note for note in found.notes)
    assert not compare(before, now.model_copy(update={"persona_digest": "a"})).stale
    assert not compare(before, now.model_copy(update={"persona_digest": ""})).stale, "not known is not edited"


def test_propositions_of_unknown_wording_are_compared_with_a_note() -> None:
    before = measurement({"adherence": {"voice": of(HIGH)}}, digests={"voice": ""})

    found = compare(before, adherence(LOW, first=11))

    assert only(found).verdict == "drifted"
    assert [before.name in note for note in found.notes] == [True]


# -- what is compared by hits
def cued(scores: list[int], messages: int, *, judge: str = OFFLINE, **others: MeasuredProposition) -> Measurement:
    """An anti-pattern with cues in so many messages: those without a cue are unscored."""
    stock = _by_message(scores, messages)
    dimension = MeasuredDimension(
        score=stock.score, propositions={"stock": stock, **others}, messages=messages, unscored=messages - len(scores)
    )
    return measurement(judge=judge, dimensions={"adherence": dimension})


def _by_message(scores: list[int], messages: int) -> MeasuredProposition:
    rows = of(scores, first=messages * 100)
    mean = sum(scores) / len(scores) if scores else None
    return MeasuredProposition(score=mean, observations=rows, share=Share(len(scores), messages), by_message=True)


def stock_of(comparison: Comparison) -> Any:
    return next(row for row in comparison.changes_of("adherence") if row.proposition == "stock")


@pytest.mark.parametrize(
    ("before", "now", "verdict", "shown"),
    [
        (cued([], 28), cued([1] * 7, 24), "drifted", "worse"),
        (cued([1] * 2, 28), cued([1] * 12, 24), "drifted", "worse"),  # the scores are the same
        (cued([1] * 14, 28), cued([], 24), "improved", "better"),
        (cued([], 28), cued([1] * 2, 24), "possibly drifted", "more hits, not significant"),
        (cued([1], 28), cued([], 24), "not enough data", "no more hits"),
        (cued([], 400), cued([1], 401), "steady", "more hits, not significant"),
    ],
)
def test_hits_of_cues_are_compared_as_shares_of_the_messages(
    before: Measurement, now: Measurement, verdict: str, shown: str
) -> None:
    found = compare(before, now)

    row, (said,) = stock_of(found), [one for one in found.shown if one.proposition]
    tables = [of.dimensions["adherence"].propositions["stock"].share for of in (before, now)]
    p = fisher_exact([[share.scored, share.asked - share.scored] for share in tables if share]).pvalue
    assert (row.verdict, said.verdict, row.p_adjusted) == (verdict, shown, pytest.approx(p))
    assert row.worse is (verdict == "drifted")
    assert f"hits against it in {tables[1]} messages now, {tables[0]} in the baseline" in said.figures
    assert found.lost == (), "fewer hits are no loss of data"


def test_hits_are_in_one_family_with_the_other_propositions() -> None:
    steady = MeasuredProposition(score=8.1, observations=of(HIGH), share=Share(10, 10), by_message=True)

    alone = stock_of(compare(cued([], 28), cued([1] * 6, 24)))
    beside = stock_of(compare(cued([], 28, brief=steady), cued([1] * 6, 24, brief=steady)))

    assert (alone.verdict, beside.verdict) == ("drifted", "drifted")
    assert beside.p_adjusted == pytest.approx(2 * alone.p_adjusted)


def test_scores_both_ways_and_scores_of_models_are_compared() -> None:
    both_ways = compare(cued([1, 8, 8, 1], 28), cued([1, 1, 8, 1], 24))
    by_a_model = compare(cued([], 28, judge=LLM), cued([1] * 7, 24, judge=LLM))

    assert (stock_of(both_ways).hits, stock_of(both_ways).delta) == (None, -1.75)
    assert stock_of(by_a_model).hits is None
    assert [(one.dimension, one.verdict) for one in by_a_model.shown] == [("adherence", "scored only now")]
    assert "45 of 52 messages unscored" in by_a_model.missing["adherence"]


def test_a_tiny_p_in_json_is_not_zero() -> None:
    row = stock_of(compare(cued([], 400), cued([1] * 200, 400)))

    assert 0 < row.p_adjusted < 1e-6
    assert row.model_dump()["p"] == pytest.approx(row.p_adjusted, rel=0.005)


def test_the_score_of_hits_alone_is_not_called_steady() -> None:
    """It is 1, however many hits there are."""
    found = compare(cued([1] * 40, 60), cued([1] * 60, 60))

    assert (only(found).baseline, only(found).candidate, only(found).verdict) == (1.0, 1.0, "not enough data")
    assert stock_of(found).verdict == "drifted"


@pytest.mark.parametrize("hits", [0, 5])
def test_a_lost_score_says_that_its_figures_leave_hits_out(hits: int) -> None:
    """The table counts them."""
    before, now = (
        cued(
            [1] * hits,
            24,
            greets=MeasuredProposition(score=8.0, observations=of([8] * n), share=Share(n, 24), by_message=True),
        )
        for n in (24, 2)
    )

    (found,) = (one for one in compare(before, now).lost if not one.proposition)

    assert (found.before, found.now) == ((Share(24, 24), Share(2, 24)) if hits else (Share(24, 48), Share(2, 48)))
    assert ("without what is compared by hits" in str(found)) is bool(hits)


def test_lost_supporting_cues_are_a_loss_of_data() -> None:
    found = compare(cued([8] * 20 + [1], 28), cued([], 24))

    assert stock_of(found).hits is None
    assert [(one.proposition, one.now) for one in found.lost] == [("", Share(0, 24)), ("stock", Share(0, 24))]
    assert (only(found).candidate, only(found).verdict) == (None, "not enough data")
