"""What rounds come to: pure functions over answers, without tables or models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agents.debates.answers import Answer
from agents.debates.measures import (
    Criteria,
    Groupthink,
    Quartiles,
    Round,
    changes,
    check_exit,
    groupthink,
    mean_similarity,
    offline_consensus,
    similarity,
    statistics,
    vote,
)
from tests.agents.debates.minds_changed import DEBATES

# Positions of four content words each. BIRCH and ASPEN share three of the four, their similarity is 3/4; the others share none.
BIRCH, ASPEN = "tulip maple cedar birch", "tulip maple cedar aspen"
POSITIONS = {"a": BIRCH, "A": ASPEN, "b": "copper cobalt nickel silver", "c": "violin trumpet cello organ", "": ""}
STANCES = {"y": "yes", "n": "no", "o": "neutral", "-": None}


def answer(seat: int, stance: str | None = None, confidence: float | None = None, position: str = "") -> Answer:
    return Answer.model_validate({"seat": seat, "stance": stance, "confidence": confidence, "position": position})


def played(text: str) -> Round:
    """A round in short: one word per seat, "y.9a" = yes, confidence 0.9, position a; "-" has no stance, "?" no confidence, "x" failed."""
    answers = []
    for seat, word in enumerate(text.split(), 1):
        if word == "x":
            continue
        number = word[1:].rstrip("aAbc")
        confidence = None if number in ("", "?") else float(number)
        answers.append(answer(seat, STANCES[word[0]], confidence, POSITIONS[word[1 + len(number) :]]))
    return answers


# -- statistics
def test_statistics_count_every_stance_and_the_confidences_that_were_given() -> None:
    result = statistics(played("y.2a y.4b n.6c o.8a -?b"))
    assert (result.answers, result.stances) == (5, {"yes": 2, "no": 1, "neutral": 1})
    assert result.confidence == Quartiles(n=4, min=0.2, q1=0.35, median=0.5, q3=0.65, max=0.8, mean=0.5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("y?a", None),
        ("y0.0a", Quartiles(n=1, min=0, q1=0, median=0, q3=0, max=0, mean=0)),
        ("y0.0a n1.0b", Quartiles(n=2, min=0, q1=0.25, median=0.5, q3=0.75, max=1, mean=0.5)),
    ],
)
def test_a_confidence_of_zero_counts_and_a_missing_one_does_not(text: str, expected: Quartiles | None) -> None:
    assert statistics(played(text)).confidence == expected


# -- similarity
@pytest.mark.parametrize(
    ("a", "b", "low", "high"),
    [
        (BIRCH, BIRCH, 1, 1),
        (BIRCH, ASPEN, 0.75, 0.75),
        (BIRCH, POSITIONS["b"], 0, 0),
        ("", "", 1, 1),
        ("", "paper", 0, 0),
        ("👍", "👎", 0, 0),
        ("Ban private cars from the old town.", "Private cars should be banned from the old town.", 1, 1),
        ("We should open on Sundays.", "We should not open on Sundays.", 0, 0.5),
        ("We cannot open on Sundays.", "We should not open on Sundays.", 0.6, 1),
        ("Raise the audit budget by 20 percent.", "Raise the audit budget by 50 percent.", 0, 0.5),
        ("我们应该买打印机", "我们应该买打印机。", 1, 1),
    ],
)
def test_positions_are_alike_by_their_content_words(a: str, b: str, low: float, high: float) -> None:
    assert low <= similarity(a, b) <= high
    assert similarity(a, b) == similarity(b, a)


def test_two_answers_have_a_mean_similarity_and_one_has_none() -> None:
    assert mean_similarity(played("y.9a")) is None
    assert mean_similarity(played("y.9a y.9A n.9b")) == pytest.approx(0.25)


# -- the vote
@pytest.mark.parametrize(
    ("text", "winner"),
    [
        ("", None),
        ("-.9a -.9b", None),
        ("y.1a", "yes"),
        ("y.1a n.9b", None),
        ("y.1a n.9b o.9c", None),
        ("y.1a y.1b n.9b o.9c", "yes"),
        ("o.1a o.1b n.9b", "neutral"),
    ],
)
def test_the_most_frequent_stance_wins_and_a_tie_has_no_winner(text: str, winner: str | None) -> None:
    assert vote(played(text)).winner == winner


# -- changes and conformity
def test_copying_the_majority_is_conformity_and_a_new_argument_is_not() -> None:
    share: dict[str, float] = {}
    outcomes: dict[str, list[object]] = {}
    for how in ("copied", "argued"):
        conform = towards = 0
        for debate in DEBATES:
            before = seated([(text, "yes") for text in debate.yes] + [(text, "no") for text in debate.no])
            last = debate.yes + (debate.copied if how == "copied" else debate.argued)
            after = seated([(text, "yes") for text in last])
            result = changes(before, after, [debate.question, debate.seats, *debate.yes, *debate.no])
            conform += sum(move.conform for move in result.moves)
            towards += result.to_majority
            ends = check_exit([before, after], [None, offline_consensus(after).agreement], Criteria())
            outcomes.setdefault(how, []).append((statistics(after), result.stances_changed, ends))
            assert ends.reason == "consensus"
        share[how] = conform / towards
    assert share["copied"] >= 0.9
    assert share["argued"] <= 0.1
    assert outcomes["copied"] == outcomes["argued"]


def seated(said: Sequence[tuple[str, str]]) -> Round:
    return [answer(seat, stance, 0.9, text) for seat, (text, stance) in enumerate(said, 1)]


def test_changes_name_who_moved_and_whether_to_or_from_the_majority() -> None:
    before = played("y.9a y.9a y.9a n.9b o.9c")
    after = played("y.9a n.9b y.9a y.9a n.9b")
    result = changes(before, after, [BIRCH, POSITIONS["b"]])
    assert [(m.seat, m.before, m.after, m.to_majority, m.from_majority) for m in result.moves] == [
        (2, "yes", "no", False, True),
        (4, "no", "yes", True, False),
        (5, "neutral", "no", False, False),
    ]
    assert (result.stances_changed, result.to_majority, result.from_majority, result.conformity) == (3, 1, 1, 1.0)


@pytest.mark.parametrize(
    ("before", "after", "changed", "conformity"),
    [
        ("", "", 0, None),
        ("y.9a y.9a", "y.9a y.9a", 0, None),  # nobody changed
        ("y.9a y.9a n.9b", "y.9a n.9b n.9b", 1, None),  # away from the majority only
        ("y.9a n.9b", "y.9a y.9a", 1, None),  # a tie has no majority
        ("y.9a y.9a n.9b", "y.9a y.9a x", 0, None),  # a seat that failed did not change
        ("y.9a y.9a -.9b", "y.9a y.9a y.9b", 0, None),  # nor did one without a stance before
        ("y.9a y.9a n.9b", "y.9a y.9a y.9a", 1, 1.0),
        ("y.9a y.9a n.9b", "y.9a y.9a y.9c", 1, 0.0),  # with words that nobody had said
        ("y.9a y.9a n.9b n.9b y.9a", "y.9a y.9a y.9a y.9c y.9a", 2, 0.5),
    ],
)
def test_conformity_is_a_share_of_the_changes_towards_the_majority(
    before: str, after: str, changed: int, conformity: float | None
) -> None:
    result = changes(played(before), played(after), [BIRCH, POSITIONS["b"]])
    assert (result.stances_changed, result.conformity) == (changed, conformity)


def test_what_each_seat_could_read_may_differ() -> None:
    before, after = played("y.9a y.9a n.9b"), played("y.9a y.9a y.9c")
    assert changes(before, after, {3: [POSITIONS["c"]]}).conformity == 1.0
    assert changes(before, after, {1: [POSITIONS["c"]], 3: [BIRCH]}).conformity == 0.0


def test_one_new_sentence_among_many_repeated_ones_is_a_new_argument() -> None:
    repeated = "Children travel forty minutes by bus to learn to swim. The roof and the pumps are worn out. " * 5
    before = [answer(1, "yes"), answer(2, "yes"), answer(3, "no")]
    for added, conform in (("You have convinced me.", True), ("Firefighters need the basin as a reservoir.", False)):
        after = [Answer(seat=3, stance="yes", position="Yes.", reasoning=repeated + added)]
        assert changes(before, after, [repeated]).moves[0].conform is conform


# -- groupthink
@pytest.mark.parametrize(
    ("text", "agreement", "indicators"),
    [
        ("", 1.0, 0),
        ("y.9a", 1.0, 0),  # one answer is no group
        ("y.8a y.9b", None, 2),  # the mean is 0.85 exactly
        ("y.8a y.8b", None, 1),  # all at 0.8, but their mean below 0.85
        ("y.79a y.99b", None, 1),  # one below 0.8
        ("y.85a y.85b y.85c", None, 2),
        ("y.8a y.8b y.95c", None, 2),  # however it is summed
        ("y.9a n.9b", None, 1),
        ("y.9a n.9b", 0.9, 2),
        ("y.9a n.9b", 0.89, 1),
        ("y.4a y.4A", None, 1),  # one stance and positions alike by words are one sign, whatever the confidence
        ("y.1a y.1A", 0.2, 1),  # a judge, who read them, says they are not
        ("y.4a y.4b", 0.95, 1),
        ("y.9a y.9A", 0.95, 2),
        ("y?a y.9b", None, 1),  # of one confidence nothing is known
        ("-.9a -.9b", None, 1),
        ("-.9a -.9A", None, 2),
        ("y.1a -.1b", None, 0),  # one stance alone is no agreement
    ],
)
def test_two_indicators_are_groupthink(text: str, agreement: float | None, indicators: int) -> None:
    result = groupthink(played(text), agreement)
    assert len(result.indicators) == indicators, result.indicators
    assert result.detected is (indicators >= 2)
    assert bool(result.recommendation) is result.detected


# -- exits: specification 004 (2.3)


OFF: dict[str, Any] = {"consensus": None, "convergence_rounds": None, "confidence": None}
EXITS: list[tuple[str, list[str], list[float | None], dict[str, Any], str | None]] = [
    # what it is about, rounds, agreements, criteria, reason
    ("no round yet", [], [], {}, None),
    # consensus
    ("agreement 0.9 exactly", ["y.1a n.1b"], [0.9], {}, "consensus"),
    ("agreement just below 0.9", ["y.1a n.1b"], [math.nextafter(0.9, 0)], {}, None),
    ("agreement 0, and 0 is enough", ["y.1a n.1b"], [0.0], {"consensus": 0.0}, "consensus"),
    ("agreement unknown, though 0 is enough", ["y.1a n.1b"], [None], {"consensus": 0.0}, None),
    ("one answer with an agreement", ["y.1a"], [1.0], {}, None),
    ("one answer, the other failed", ["y.1a x"], [1.0], {}, None),
    ("consensus switched off", ["y.1a n.1b"], [1.0], {"consensus": None}, None),
    ("agreement of the round before", ["y.1a n.1b", "y.1b n.1a"], [1.0, 0.1], {}, None),
    ("consensus comes before confidence", ["y.9a y.9b"], [0.95], {}, "consensus"),
    ("consensus comes before convergence", ["y.1a y.1b", "y.1a y.1b"], [0.1, 0.9], {}, "consensus"),
    # convergence
    ("the same twice", ["y.1a n.1b", "y.1a n.1b"], [0.1, 0.1], {}, "convergence"),
    ("the same once", ["y.1a n.1b"], [0.1], {}, None),
    ("one seat changed its stance", ["y.1a n.1b", "y.1a y.1b"], [0.1, 0.1], {}, None),
    ("one seat changed its position", ["y.1a n.1b", "y.1a n.1c"], [0.1, 0.1], {}, None),
    ("similarity as asked exactly", ["-.1a -.1b", "-.1A -.1b"], [0.1, 0.1], {"convergence_similarity": 0.75}, "convergence"),
    ("similarity just below", ["-.1a -.1b", "-.1A -.1b"], [0.1, 0.1], {"convergence_similarity": 0.76}, None),
    ("a seat answered in the last round only", ["y.1a x", "y.1a n.1b"], [None, 0.1], {}, None),
    ("a seat failed in both rounds", ["y.1a n.1b x", "y.1a n.1b x"], [0.1, 0.1], {}, "convergence"),
    ("one answer twice", ["y.1a", "y.1a"], [None, None], {}, "convergence"),
    ("all failed twice", ["x x", "x x"], [None, None], {}, None),
    ("three rounds asked, two the same", ["y.1c n.1b", "y.1a n.1b", "y.1a n.1b"], [0.1] * 3, {"convergence_rounds": 3}, None),
    ("back and forth", ["y.1a n.1b", "n.1a y.1b", "y.1a n.1b"], [0.1] * 3, {}, None),
    ("convergence switched off", ["y.1a n.1b"] * 2, [0.1] * 2, {"convergence_rounds": None}, None),
    ("convergence comes before confidence", ["y.9a n.9b"] * 2, [0.1] * 2, {}, "convergence"),
    # confidence
    ("all at 0.85 exactly", ["y.85a n.85b"], [0.1], {}, "confidence"),
    ("one just below 0.85", ["y.85a n.84b"], [0.1], {}, None),
    ("one gave no confidence", ["y.9a n?b"], [0.1], {}, None),
    ("a seat failed, the others are confident", ["y.9a x n.9b"], [0.1], {}, "confidence"),
    ("confidence 0 is enough", ["y0.0a n0.0b"], [0.1], {"confidence": 0.0}, "confidence"),
    ("confidence switched off", ["y.9a n.9b"], [0.1], {"confidence": None}, None),
    ("confident before, not now", ["y.9a n.9b", "y.9b n.1a"], [0.1, 0.1], {}, None),
    # the maximum
    ("the last round", ["y.1a n.1b", "y.1b n.1c"], [0.1, 0.1], {"max_rounds": 2}, "max_rounds"),
    ("beyond the last, after extra rounds", ["y.1a n.1b", "y.1b n.1c", "y.1c n.1a"], [0.1] * 3, {"max_rounds": 2}, "max_rounds"),
    ("all failed in the last round", ["x x"], [None], {"max_rounds": 1}, "max_rounds"),
    ("everything switched off", ["y.9a y.9a"] * 4, [1.0] * 4, OFF, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rounds", "agreements", "asked", "reason"), [case[1:] for case in EXITS], ids=[case[0] for case in EXITS]
)
def test_a_debate_ends_by_the_first_criterion_that_holds(
    rounds: list[str], agreements: list[float | None], asked: dict[str, Any], reason: str | None
) -> None:
    result = check_exit([played(text) for text in rounds], agreements, Criteria(**asked))

    assert (result.ends, result.reason) == (reason is not None, reason)
    assert bool(result.details) is (reason is not None)


@pytest.mark.parametrize("detected", [False, True])
@pytest.mark.parametrize(("extra", "extra_played"), [(0, 0), (1, 0), (1, 1), (2, 1)])
def test_groupthink_puts_an_exit_off_for_extra_rounds(detected: bool, extra: int, extra_played: int) -> None:
    found = Groupthink(detected=detected, indicators=[], recommendation="")
    result = check_exit(
        [played("y.1a n.1b")],
        [0.9],
        Criteria(),
        groupthink=found,
        extra_rounds=extra,
        extra_played=extra_played,
    )

    is_put_off = detected and extra > extra_played
    assert (result.ends, result.reason) == ((False, None) if is_put_off else (True, "consensus"))
    assert (f"extra round {extra_played + 1} of {extra}" in result.details) is is_put_off
    assert ("after 1 extra round" in result.details) is (extra_played == 1 and not is_put_off)


def test_a_seat_answers_once_in_a_round() -> None:
    twice = [answer(3, "yes"), answer(3, "no")]
    for call in (
        lambda: changes(twice, [], []),
        lambda: changes([], twice, []),
        lambda: check_exit([twice], [None], Criteria()),
        lambda: offline_consensus(twice),
    ):
        with pytest.raises(ValueError, match="seat 3 answers twice in one round"):
            call()


@pytest.mark.parametrize(
    "asked",
    [
        {"consensus": 1.01},
        {"consensus": float("nan")},
        {"convergence_similarity": None},
        {"convergence_rounds": 1},
        {"max_rounds": 0},
        {"threshold": 0.9},
    ],
)
def test_criteria_out_of_range_are_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Criteria(**asked)


# -- consensus without a model
@pytest.mark.parametrize(
    ("text", "agreement", "clusters"),
    [
        ("", None, []),
        ("y.9a", None, [[1]]),
        ("y.9a y.9b", 1.0, [[1, 2]]),
        ("y.9a n.9a", 0.0, [[1], [2]]),
        ("y.9a n.9a o.9a", 0.0, [[1], [2], [3]]),
        ("n.9a y.9b y.9c", 0.3333, [[2, 3], [1]]),
        ("-.9a -.9b", 0.0, [[1], [2]]),
        ("-.9a -.9b -.9A", 0.25, [[1, 3], [2]]),
        ("x y.9a x y.9a", 1.0, [[2, 4]]),
    ],
)
def test_offline_consensus_goes_by_stance_and_then_by_words(
    text: str, agreement: float | None, clusters: list[list[int]]
) -> None:
    result = offline_consensus(played(text))
    assert result.agreement == agreement
    assert [cluster.seats for cluster in result.clusters] == clusters
    assert (result.judge, result.heuristic) == ("offline", True)
    assert bool(result.reason) is (agreement is None)


# -- any rounds
seats = st.integers(1, 6)
answers_ = st.builds(
    answer,
    seat=seats,
    stance=st.sampled_from(["yes", "no", "neutral", None]),
    confidence=st.sampled_from([None, 0.0, 0.5, 0.8, 0.85, 0.9, 1.0]),
    position=st.sampled_from(list(POSITIONS.values())),
)
rounds_ = st.lists(answers_, max_size=6, unique_by=lambda one: one.seat)
agreements_ = st.sampled_from([None, 0.0, 0.5, 0.9, 1.0])


@given(before=rounds_, after=rounds_, agreement=agreements_, random=st.randoms(use_true_random=False))
def test_the_order_of_the_seats_does_not_matter(
    before: list[Answer], after: list[Answer], agreement: float | None, random: Any
) -> None:
    shuffled = [random.sample(one, len(one)) for one in (before, after)]
    seen = [BIRCH]

    def all_of(first: list[Answer], last: list[Answer]) -> list[Any]:
        return [
            statistics(last),
            mean_similarity(last),
            vote(last),
            changes(first, last, seen),
            groupthink(last, agreement),
            offline_consensus(last),
            check_exit([first, last], [None, agreement], Criteria()),
        ]

    assert all_of(*shuffled) == all_of(before, after)
