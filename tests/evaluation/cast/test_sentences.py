"""The sentence of a card says what moved, with its scores, and nothing that was not measured."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agents.models import Agent
from agents.persona import TraitValue, save_persona
from evaluation.change.overview_text import how_sure, sentence_of, short_name
from evaluation.models import Baseline
from tests.evaluation.cast.measured import capture, card_of, flattened, measure
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

STEADY = [7, 8, 7, 8, 7, 8, 7, 8]


@pytest.fixture
def ada() -> Agent:
    return make_agent()


def test_what_an_agent_was_known_for_and_lost_is_named_with_both_scores_and_the_build(ada: Agent) -> None:
    flattened(ada)
    card = card_of(ada)

    assert sentence_of(card) == "Stopped “dry wit”: 8.1 → 3.1 since build 41."
    assert card.state == "fell"
    assert card.claim == "the claim of ada-dry-wit"
    assert [move.proposition for move in card.moves] == ["ada-dry-wit", "default-voice"]
    assert card.told is not None
    assert how_sure(card.told).startswith("8 judgements then, 8 now; more than chance")


def test_its_quotes_are_the_best_message_then_and_the_worst_now(ada: Agent) -> None:
    flattened(ada)
    card = card_of(ada)

    assert card.then_quote is not None
    assert card.now_quote is not None
    assert (card.then_quote.score, card.then_quote.message.tags, card.then_quote.message.text) == (
        9,
        {"build": "40"},
        "Noted. 2",
    )
    assert (card.now_quote.score, card.now_quote.message.tags, card.now_quote.message.text) == (
        2,
        {"build": "41"},
        "Noted. 5",
    )


def test_without_a_tag_that_tells_now_from_then_it_counts_from_the_day_of_the_baseline(ada: Agent) -> None:
    capture(ada, {"dry": [8] * 6})
    measure(ada, {"dry": [5] * 6}, build="40")
    Baseline.objects.update(captured_at=datetime(2026, 11, 3, 12, tzinfo=UTC))

    assert sentence_of(card_of(ada)) == "Less “dry”: 8.0 → 5.0 since the baseline of 3 Nov 2026."


def test_a_fall_of_an_anti_pattern_says_that_it_crept_in(ada: Agent) -> None:
    capture(ada, {"default-generic-assistant": [9, 9, 8, 9, 9, 9]}, inverted=["default-generic-assistant"])
    measure(ada, {"default-generic-assistant": [2, 3, 2, 2, 2, 2]}, inverted=["default-generic-assistant"])

    assert sentence_of(card_of(ada)) == "Slipped into “generic assistant”: 8.8 → 2.2 since build 41."


def test_a_rule_that_is_kept_no_longer_is_broken_not_stopped(ada: Agent) -> None:
    capture(ada, {"ada-no-slang": [9, 9, 8, 9, 9, 9]})
    measure(ada, {"ada-no-slang": [2, 3, 2, 2, 2, 2]})

    assert sentence_of(card_of(ada)) == "Broke “no slang”: 8.8 → 2.2 since build 41."


def test_a_fall_that_chance_explains_is_only_perhaps_one(ada: Agent) -> None:
    capture(ada, {"dry": [9, 5, 8]})
    measure(ada, {"dry": [8, 4, 6]})
    card = card_of(ada)

    assert card.state == "maybe"
    assert sentence_of(card) == "Perhaps less “dry”: 7.3 → 6.0 since build 41."
    assert card.told is not None
    assert how_sure(card.told) == "3 judgements then, 3 now; too few to tell from chance"


def test_one_judgement_of_a_whole_window_is_never_sure(ada: Agent) -> None:
    for run, score in ((capture(ada, {}), 9), (measure(ada, {}), 0)):
        run.scores.create(dimension="adherence", proposition_id="varied", claim="varied", status="scored", score=score)
    card = card_of(ada)

    assert card.state == "maybe"
    assert sentence_of(card).startswith("Perhaps stopped “varied”: 9.0 → 0.0 since the baseline of")
    assert (card.then_quote, card.now_quote) == (None, None)


def test_an_agent_that_holds_says_by_how_little_it_moved(ada: Agent) -> None:
    capture(ada, {"dry": STEADY, "voice": STEADY})
    measure(ada, {"dry": [7, 8, 7, 8, 7, 8, 7, 7], "voice": STEADY})

    assert sentence_of(card_of(ada)).startswith("Holds: the largest fall is “dry”: 7.5 → 7.4 since the baseline of ")


def test_a_sure_rise_without_a_sure_fall_is_told(ada: Agent) -> None:
    capture(ada, {"dry": [3, 4, 3, 4, 3, 4], "voice": [8, 7, 8, 7, 8, 7]})
    measure(ada, {"dry": [8, 8, 9, 8, 8, 9], "voice": [8, 6, 8, 6, 8, 6]})
    card = card_of(ada)

    assert (card.state, sentence_of(card)) == ("rose", "More “dry”: 3.5 → 8.3 since build 41.")
    assert card.now_quote is not None
    assert card.now_quote.score == 9


def test_nothing_is_said_of_what_was_not_measured(ada: Agent) -> None:
    assert sentence_of(card_of(ada)) == "Not measured yet: there is no baseline."
    capture(ada, {"dry": STEADY})
    Baseline.objects.update(captured_at=datetime(2026, 11, 3, 12, tzinfo=UTC))

    assert sentence_of(card_of(ada)).startswith("Not measured since the baseline of 3 Nov 2026: no evaluation scored a")
    assert card_of(ada).dimensions == []


def test_unscored_and_trivial_judgements_are_in_no_mean(ada: Agent) -> None:
    capture(ada, {"dry": [8] * 4})
    run = measure(ada, {"dry": [8] * 4})
    for status, score in (("unscored", None), ("trivial", 9)):
        for _ in range(5):
            run.scores.create(dimension="adherence", proposition_id="dry", claim="dry", status=status, score=score)
    (move,) = card_of(ada).moves

    assert (move.now.mean, move.now.scored, move.now.unscored) == (8.0, 4, 5)


def test_what_could_only_be_scored_on_one_side_is_not_compared(ada: Agent) -> None:
    capture(ada, {"dry": STEADY})
    measure(ada, {"witty": STEADY})

    assert card_of(ada).state == "nothing in common"
    assert sentence_of(card_of(ada)).startswith("Measured, but nothing was scored both in the baseline of")


def test_a_claim_that_was_reworded_is_named_and_not_compared(ada: Agent) -> None:
    capture(ada, {"dry": [9] * 4, "voice": STEADY}, proposition_digests={"adherence": {"dry": "old", "voice": "same"}})
    measure(ada, {"dry": [1] * 4, "voice": STEADY}, proposition_digests={"adherence": {"dry": "new", "voice": "same"}})
    card = card_of(ada)

    assert card.changed == ["adherence/dry"]
    assert [move.proposition for move in card.moves] == ["voice"]
    assert card.state == "held"


def test_an_edit_of_the_persona_between_the_two_is_noticed(ada: Agent) -> None:
    capture(ada, {"dry": STEADY})
    save_persona(agent=ada, traits=[TraitValue("dry", strength=0.0)], note="edit")
    measure(ada, {"dry": [1] * 8})

    assert card_of(ada).sides.persona_edited


@pytest.mark.parametrize(
    ("proposition", "name"),
    [
        ("ada-no-lists", "no lists"),
        ("default-generic-assistant", "generic assistant"),
        ("trait-concise-replies", "concise replies"),
        ("trait-stolz-3f9a21", "stolz"),
        ("fluency-varied", "varied"),
        ("swears", "swears"),
        ("ada", "ada"),
        ("default-", "default"),
    ],
)
def test_a_claim_is_called_by_its_own_id_without_what_all_ids_begin_with(proposition: str, name: str) -> None:
    assert short_name(proposition, "ada", "fluency") == name
