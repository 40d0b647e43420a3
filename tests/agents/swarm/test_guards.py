"""The guards of a polish: what it may not change, what it may, and how sure that is on texts they were not written for."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.kit.text.edits import GUARDS
from agents.kit.text.reading import parse_text
from agents.swarm.guards import refusal
from tests.agents.swarm.edits import (
    HARMFUL,
    HARMLESS,
    edits_by_hand,
    example_messages,
    measure,
    rewritings,
)

REFUSED: list[tuple[str, str, str, str]] = [  # guard, what it names, draft, polish
    ("numbers", "3", "I put 2 eggs in.", "I put 3 eggs in."),
    ("numbers", "2", "Take two before lunch.", "Take some before lunch."),
    ("numbers", "5 gram", "Add 5 kg of flour.", "Add 5 g of flour."),
    ("numbers", "20 percent", "It is 15 % off.", "It is 20 percent off."),
    ("numbers", "7", "Version 3.11.2 needs it.", "Version 3.11.7 needs it."),
    ("numbers", "15:30", "Come at 3:30 pm.", "Come at 3:30 am."),
    ("numbers", "2 ordinal", "You came third.", "You came second."),
    ("dates", "4 may", "We meet on 3 May.", "We meet on May 4th."),
    ("dates", "monday", "It is due on Monday.", "It is due on Tuesday."),
    ("dates", "today", "I will call you today.", "I will call you."),
    ("names", "Oscar", "I gave it to Oscar.", "I gave it to Kevin."),
    ("names", "Berlin", "We moved the desk.", "We moved the desk to Berlin."),
    ("links", "example.com/a", "Read https://example.com/a first.", "Read it first."),
    ("links", "example.com/b", "Read https://example.com/a first.", "Read https://example.com/b first."),
    ("links", "kim@example.com", "Write to kim@example.com about it.", "Write to Kim about it."),
    ("code", "--force", "Run it with --force again.", "Run it again."),
    ("code", "`rm -r x`", "Type `rm x` here.", "Type `rm -r x` here."),
    ("code", "max_words", "Set max_words first.", "Set the limit first."),
    (
        "quotes",
        "as soon as you can",
        "She wrote \u201cas soon as you can\u201d to me.",
        "She wrote \u201cwhenever you like\u201d to me.",
    ),
    ("negations", "not", "I do not like soup.", "I do like soup."),
    ("negations", "without", "Eat it without salt.", "Eat it with salt."),
    ("negations", "no", "There's no cake left.", "There's cake left."),
    ("negations", "never", "He calls on time.", "He never calls on time."),
    ("numbers", "thousands", "Hundreds of people came.", "Thousands of people came."),
    ("numbers", "5 100", "Two hundred five came.", "Five hundred two came."),
    ("numbers", "50", "We lost two hundred and fifty people.", "We lost fifty and two hundred people."),
    ("numbers", "13:00", "Be there at the one pm slot.", "Be there at the one am slot."),
    ("numbers", "milligram", "Take the one mg tablet.", "Take the one tablet."),
    ("numbers", "dollar", "The fee is two and a half dollars.", "The fee is two and a half %."),
    ("numbers", "milligram", "Take two and a half mg daily.", "Take two and a half daily."),
    ("numbers", "am", "It starts at two and a half pm.", "It starts at two and a half am."),
    ("numbers", "0.5", "Half of it is gone.", "A quarter of it is gone."),
    ("modality", "may", "You must wash it.", "You may wash it."),
    ("limits", "at least", "At least 40 came.", "At most 40 came."),
    ("limits", "only", "Only the owner may open it.", "The owner may open it."),
    ("limits", "nearly", "Nearly all of them came.", "All of them came."),
    ("limits", "probably", "It will probably rain.", "It will rain."),
    ("limits", "about", "It takes about 3 hours.", "It takes 3 hours."),
    ("words", "clos", "The shop is open today.", "The shop is closed today."),
    ("words", "unsaf", "It is safe for children.", "It is unsafe for children."),
    ("words", "aft", "Take the pill before the meal.", "Take the pill after the meal."),
    ("words", "decreas", "Increase the dose slowly.", "Decrease the dose slowly."),
    ("questions", "", "Is it safe?", "It is safe."),
    ("questions", "", "It is safe.", "Is it safe?"),
    ("numbers", "-20", "It is 20 degrees outside.", "It is -20 degrees outside."),
    ("words", "refund", "The report is late.", "The report is late. You get a refund."),
    ("words", "elephants", "I like the soup and the bread here.", "Elephants dream about purple bicycles daily."),
    ("language", "Italian", "I do not know what it is, but it is here.", "Non so che cosa è, ma è qui con me."),
    ("words", "kaputt", "The machine is broken again.", "Die Maschine ist wieder kaputt."),
    ("words", "excludes", "It covers water damage.", "It excludes water damage."),
    ("words", "almonds", "Walnuts are bad for dogs.", "Almonds are bad for dogs."),
    ("words", "Impossible", "He agreed with it in the end.", "He agreed with it in the end. Impossible!"),
    ("words", "costs", "We deliver the big desk.", "We deliver the big desk, and it costs extra."),
    ("words", "off", "Turn it off first.", "Turn it on first."),
    ("words", "left", "Turn left at the church.", "Turn right at the church."),
    ("words", "same", "It has a different key.", "It has the same key."),
    ("words", "her", "Ask him about the desk.", "Ask her about the desk."),
    ("sentences", "Water", "Keep it in the sun. Water it every week.", "Keep it in the sun."),
    ("sentences", "true", "That is true. I like the soup.", "I like the soup."),
    ("sentences", "hot", "- Soup is hot.\n- Bread is fresh.", "- Bread is fresh."),
    ("form", "JSON", "All is well.", '{"text": "All is well."}'),
    ("form", "JSON", "All is well.", '{"text": "All is'),
    ("form", "fence", "All is well.", "```\nAll is well.\n```"),
    (
        "language",
        "para",
        "We can help you. I think the report is here.",
        "We can help you. I think the report está aquí para ti.",
    ),
]
ALLOWED: list[tuple[str, str]] = [
    ("I don't know; we can't go.", "I do not know; we cannot go."),
    ("It's late, so I'm leaving.", "It is late, so I am leaving."),
    ("Add two eggs and 2.0 kg of flour.", "Add 2 eggs and two kg of flour."),
    ("It costs $5, 15 % less, at 3:30 pm.", "It costs 5 dollars, 15 percent less, at 15:30."),
    ("Seven is my favourite number.", "Seven's my favourite number."),
    ("Doesn't it break?\u200b", "Does it\u00a0not break?"),
    ("We meet on 3 May 2026.", "We meet on May 3rd, 2026."),
    ("We meet on 2026-05-03.", "We meet on the third of May 2026."),
    ("It was 105 people, or 1,200 dollars.", "It was 105 people, or 1200 dollars."),
    ("When Jim arrives, Pam leaves.", "Pam leaves when Jim arrives."),
    ("Because it rained, Kevin ate two cookies.", "Kevin ate two cookies because it rained."),
    ("Well, I really just want the blue folder, you know.", "I want the blue folder."),
    ("  The   report is\nlate today. ", "The report is late today."),
    ("1. Wash it.\n2. Dry it.", "Wash it. Dry it."),
    ("See https://example.com/a, it says \"soon.\"", "It says \u201csoon\u201d, see https://example.com/a."),
    ("Run `make test` with --fast, then look at the summary of it.", "Run `make test` with --fast, then at the summary of it."),
    ("Kevin gave Oscar the keys and Kevin gave Oscar the car.", "Kevin gave Oscar the keys and the car."),
    ("Das ist nicht so gut, weil es zwei Tage dauert.", "Weil es 2 Tage dauert, ist das nicht so gut."),
    ("It takes about three hours.", "It takes about 3 hours."),
    ("It lasts 10-20 days.", "It'll last 10-20 days."),
    ("It is logged. Anything else?", "It is logged."),
    ("Great question! Eggs have protein. I hope this helps!", "Eggs have protein."),
    ("The soup is hot. Eat slowly, as the soup is hot.", "Eat slowly, as the soup is hot."),
    ("He sent two easy tests.", "Two tests were sent by him; they are easier."),
    ("今天很好。", "今天很好！"),
    ("I can't do it.", "I cannot do it."),
    ("The old lamp is broken. The most common reason is an old bulb.", "The old lamp is broken. The most common one is an old bulb."),
]  # fmt: skip


@pytest.mark.parametrize(("guard", "item", "draft", "polished"), REFUSED, ids=lambda value: str(value)[:32])
def test_a_polish_that_changes_what_is_said_is_refused_by_its_guard(
    guard: str, item: str, draft: str, polished: str
) -> None:
    difference = GUARDS[guard](parse_text(draft), parse_text(polished))

    assert difference.lost or difference.added
    if item:
        assert item.casefold() in " ".join((*difference.lost, *difference.added)).casefold()
    assert refusal(draft, polished)


@pytest.mark.parametrize(("draft", "polished"), ALLOWED, ids=lambda value: str(value)[:32])
def test_a_polish_that_changes_the_wording_alone_is_used(draft: str, polished: str) -> None:
    assert refusal(draft, polished) == ""


def test_most_free_rewritings_are_used() -> None:
    refused = [(polished, why) for draft, polished in rewritings() if (why := refusal(draft, polished))]

    assert len(refused) <= 0.4 * len(rewritings()), refused


def test_most_edits_by_hand_that_change_meaning_are_refused() -> None:
    changing = [refusal(draft, edited, message=message) for harm, message, draft, edited in edits_by_hand() if harm]

    assert sum(map(bool, changing)) >= 0.85 * len(changing)


@pytest.mark.slow
def test_edits_of_the_example_conversations_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    figures = measure(example_messages())

    with capsys.disabled():
        for kind in (*HARMFUL, *HARMLESS):
            print(f"\n  {kind}: {figures.share([kind]):.2%} of {figures.tried[kind]} refused", end="")  # noqa: T201
    assert all(figures.tried[kind] >= 100 for kind in HARMFUL)
    assert figures.share(HARMFUL) >= 0.99
    assert all(figures.share([kind]) >= 0.97 for kind in HARMFUL)
    assert figures.share(HARMLESS) <= 0.05
    assert all(figures.share([kind]) <= 0.05 for kind in HARMLESS)


def test_words_of_the_message_and_the_preferences_are_no_new_ones() -> None:
    draft, polished = "It has plenty.", "The lentil soup has plenty of protein."

    assert "words" in refusal(draft, polished)
    assert refusal(draft, polished, message="How much protein is in lentil soup?") == ""
    assert refusal(draft, polished, preferences="likes lentil soup, counts protein") == ""
    assert "numbers" in refusal("It has plenty.", "It has 30 g.", message="Does it have 30 g?")


def test_a_given_name_counts_at_a_sentences_start_and_in_small_letters() -> None:
    assert refusal(
        "Kevin laughed about it all day long.", "Oscar laughed about it all day long.", names=["Kevin", "Oscar Nunez"]
    )
    assert refusal(
        "ask kevin about it, he is at the desk", "ask oscar about it, he is at the desk", names=["Kevin", "Oscar"]
    )


def test_a_rule_that_the_draft_keeps_must_stay_kept() -> None:
    calm = lambda text: "!" not in text  # noqa: E731

    assert "rule" in refusal("The soup is hot.", "The soup is hot!", rules=[calm])
    assert refusal("The soup is hot!", "The soup is hot!!", rules=[calm]) == ""
    assert refusal("The soup is hot.", "The soup is hot.", rules=[calm]) == ""


def test_an_empty_polish_is_refused() -> None:
    assert refusal("The soup is hot.", " \n") == "The polish is empty."


def test_a_sentence_hidden_in_a_long_draft_is_seen() -> None:
    draft = " ".join(example_messages()[:40])

    assert "refund" in refusal(draft, draft.replace(". ", ". Everybody gets a refund. ", 1))


def test_a_number_may_be_said_twice_but_not_lost_once() -> None:
    assert refusal("Take 5 mg at night.", "Take 5 mg at night. That is 5 mg at night.") == ""
    assert "numbers" in refusal("Take 5 mg at night and 5 mg at noon.", "Take 5 mg at night and at noon.")


@given(st.text(max_size=400))
def test_any_text_may_stand_for_itself_with_other_spaces(text: str) -> None:
    assert refusal(text, f" {text} ") == "" or not text.strip()


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_two_texts_get_an_answer(draft: str, polished: str) -> None:
    assert isinstance(refusal(draft, polished), str)


def test_a_long_chain_of_hyphens_beside_code_takes_no_longer_than_it_is_long() -> None:
    chain = "a-" * 25_000
    started = time.thread_time()
    refusal(f"Run `it`. {chain}", f"Run `it`. {chain}a")

    assert time.thread_time() - started < 5


@pytest.mark.parametrize(
    "unit",
    [
        "Kevin ate 2 eggs and ",
        "not ",
        "3 ",
        '"',
        "`",
        "/",
        "Kevin ",
        "a_",
        "1,",
        "{",
        "Kevin, Oscar, ",
        "May 3 ",
        "n't ",
        "hundred and ",
        "(\n",
        "\n",
    ],
)
def test_the_time_grows_no_faster_than_the_text(unit: str) -> None:
    """A text of 40,000 characters takes seconds where something grows with the square."""
    draft = unit * (40_000 // len(unit))
    started = time.thread_time()
    refusal(draft, f"{draft} indeed no")

    assert time.thread_time() - started < 5
