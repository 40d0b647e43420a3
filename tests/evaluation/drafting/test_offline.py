"""Rules read from a persona without a model: what is said outright, and nothing that is hedged or said of others."""

from __future__ import annotations

from typing import Any

import pytest

from agents.llm import Label
from evaluation.drafting.asking import draft_request
from evaluation.drafting.offline import draft
from evaluation.propositions.rules import Rule, check_rule


def rules(text: str, *, name: str = "Ada Lund", others: tuple[str, ...] = ("Bob Berg",)) -> dict[str, Any]:
    """The rules proposed for a persona, by id."""
    request = draft_request(
        name=name, persona=text, existing=(), others=others, most=8, label=Label(purpose="test"), model="", nonce="0"
    )
    return {found["id"]: found["rule"] for found in draft(request)["proposals"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No emoji.", {"no_emoji": True}),
        ("You do not use slang, emoji or softeners.", {"no_emoji": True}),
        ("She never uses exclamation marks.", {"not_matches": "!"}),
        ("Correct grammar, no slang, no exclamation points.", {"not_matches": "!"}),
        ("Ada never uses question marks", {"not_matches": r"\?"}),
        ("You never write in capital letters.", {"lowercase": True}),
        ("You write everything in lower case.", {"lowercase": True}),
        ("types in all-lowercase", {"lowercase": True}),
        ("At most two sentences.", {"max_sentences": 2}),
        ("You answer in two sentences at most.", {"max_sentences": 2}),
        ("You answer in a single sentence.", {"max_sentences": 1}),
        ("You never say more than 3 sentences.", {"max_sentences": 3}),
        ("One to three sentences, never more than four.", {"max_sentences": 4}),
        ("One to three short, complete sentences\nthat end in periods.", {"max_sentences": 3}),
        ("Your messages have under twenty words.", {"max_words": 19}),
        ("At least two sentences.", {"min_sentences": 2}),
        ("You put at least one exclamation mark in\nevery message.", {"matches": "!"}),
        ('You never say "sorry" or "please".', {"contains_none": ["sorry", "please"]}),
        ("You always say \u201cover\u201d.", {"contains_all": ["over"]}),
        ('You end every message with "over and out."', {"matches": r"over\s+and\s+out\.\W*\Z"}),
        ('You begin every reply with "Ahoy".', {"matches": r"\A\W*Ahoy"}),
        ("### Never (stop doing this)\n- uses emoji: Puts faces everywhere.", {"no_emoji": True}),
    ],
)
def test_what_is_said_outright_becomes_a_rule_that_can_be_checked(text: str, expected: dict[str, Any]) -> None:
    found = rules(text)

    assert list(found.values()) == [expected]
    assert isinstance(check_rule(Rule.model_validate(expected), "Hello there."), list)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "You are kind.",
        "Hardly any exclamation marks.",
        "You almost never use emoji.",
        "No heaps of exclamation marks, no emoji parades.",
        "You use no emoji unless somebody is sad.",
        "An exclamation mark only when something delights you, and never two in a row.",
        "Usually one to three sentences.",
        "Most messages are two to four sentences.",
        "Sentences of at most ten words.",
        "At most two sentences per paragraph.",
        "Stories of at most five sentences.",
        "You never avoid emoji.",
        "You never write in lower case.",
        'You say "yeah" and "nope".',
        'You sometimes end with "over".',
        'You do not end every message with "over".',
        "Bob never uses emoji.",
        "You are glad that Bob uses no emoji.",
        "The manager never uses emoji.",
        "## People\nNo emoji.",
        "### Sometimes\n- no emoji",
        "### Usually\n- at most two sentences",
        "### Never (stop doing this)\n- at most two sentences: is curt",
        "\u7d75\u6587\u5b57\u306f\u4f7f\u308f\u306a\u3044\u3002",
        "\u0644\u0627 \u062a\u0633\u062a\u062e\u062f\u0645 \u0627\u0644\u0631\u0645\u0648\u0632",
    ],
)
def test_what_is_hedged_conditional_or_said_of_others_becomes_none(text: str) -> None:
    assert rules(text) == {}


@pytest.mark.parametrize(
    "hostile", ["never " * 20_000, "one to " * 20_000, "no a, " * 20_000, '"' * 50_000, "# " * 30_000]
)
def test_a_persona_made_to_be_slow_is_read_in_time(hostile: str) -> None:
    assert rules(hostile) == {}


def test_the_end_of_every_message_is_checked_at_its_end() -> None:
    rule = Rule.model_validate(rules('You end every message with "over".')["ends-with"])

    assert check_rule(rule, "All quiet. Over!") == []
    assert check_rule(rule, "Over there it is quiet.") != []
