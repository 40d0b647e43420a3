"""Whom a person's message calls, and which of its sentences each of them is read."""

from __future__ import annotations

import time
from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.kit.text.addressing import SHARED, Party, read_calls

AGENTS = [
    Party.named("michael", "Michael Scott", slug="michael", aliases=["Mike"]),
    Party.named("jim", "Jim Halpert", slug="jim", aliases=["Big Tuna", "Tuna"]),
    Party.named("dwight", "Dwight Schrute", slug="dwight"),
    Party.named("pam", "Pam Beesly", slug="pam"),
    Party.named("kevin", "Kevin Malone", slug="kevin"),
    Party.named("kevin-b", "Kevin Bacon", slug="kevin-b", aliases=["Footloose"]),
    Party.named("nora", "Dr. Nora Blum", slug="nora"),
]
PEOPLE = [
    Party.named("person anna", "Anna", person=True),
    Party.named("person jim", "Visitor", slug="jim", person=True),
    Party.named("person tuna", "Guest", slug="tuna", person=True),
]
SLUGS = sorted(str(agent.key) for agent in AGENTS)


def agents_called(text: str, replied_to: Hashable = None) -> list[str]:
    called = read_calls(text, [*AGENTS, *PEOPLE], replied_to=replied_to).called
    return [slug for slug in SLUGS if slug in called]


CALLED: list[tuple[str, list[str]]] = [
    ("@dwight is that yours?", ["dwight"]),
    ("@Mike: shorter, please", ["michael"]),
    ("@jim-bob is no member, nor is @pamela", []),
    ("write to me@jim.example", []),
    ("@all be brief", SLUGS),
    ("@tuna be brief", []),
    ("Michael, be shorter.", ["michael"]),
    ("mike, where is the report?", ["michael"]),
    ("Pam?", ["pam"]),
    ("Hey Pam, how was the weekend?", ["pam"]),
    ("The report is late. Pam, can you help?", ["pam"]),
    ("What about you, Big Tuna?", ["jim"]),
    ("Dr. Nora Blum, is that a rash?", ["nora"]),
    ("Jim, Pam and Dwight: lunch at noon?", ["dwight", "jim", "pam"]),
    ("Please be quiet, Jim and Dwight!", ["dwight", "jim"]),
    ("Jim, Pam is looking for you.", ["jim"]),
    ("Everyone, be brief.", SLUGS),
    ("You and Dwight, be brief.", ["dwight"]),
    ("Jim, you and Dwight are too loud.", ["dwight", "jim"]),
    ("Everyone knows that Jim Halpert is late.", []),
    ("Everyone except Jim, be brief", []),
    ("Good morning Pam, how are you?", ["pam"]),
    ("Please, everyone, be brief", SLUGS),
    ("**Michael**, be shorter", ["michael"]),
    ("I like Jim, Pam and Dwight.", []),
    ("Dwight Schrute's, I think.", []),
    ('My sister says "Michael, be shorter" all day long.', []),
    ("The film has a line: “Pam, marry me.” I cried.", []),
    ("> Jim, come here\nWho wrote that?", []),
    ("```\nPam, print this\n```\nThat is the script.", []),
    ("Pam, what does `@jim` mean?", ["pam"]),
    ("Anna, be shorter.", []),
    ("Kevin, be shorter.", []),
    ("Kevin Bacon, be shorter.", ["kevin-b"]),
]


@pytest.mark.parametrize(("text", "called"), CALLED)
def test_those_are_called_whom_a_person_speaks_to(text: str, called: list[str]) -> None:
    assert agents_called(text) == called


@pytest.mark.parametrize(
    ("text", "replied_to", "called"),
    [
        ("That was too long.", "michael", ["michael"]),
        ("That was too long.", "person anna", []),
        ("Dwight, what do you say to this?", "michael", ["dwight"]),
        ("Good point. Pam, fewer emoji please.", "michael", ["michael", "pam"]),
        ("You and Dwight, be brief.", "jim", ["dwight", "jim"]),
        ("Kevin, be shorter.", "kevin", ["kevin"]),
        ("Kevin, be shorter.", "pam", []),
    ],
)
def test_a_reply_is_said_to_its_author_until_it_calls_another(text: str, replied_to: str, called: list[str]) -> None:
    assert agents_called(text, replied_to) == called


@pytest.mark.parametrize(
    ("text", "replied_to", "read"),
    [
        ("Jim, be funnier. Dwight, be quieter.", None, {"jim": "Jim, be funnier.", "dwight": "Dwight, be quieter."}),
        ("Michael, thanks. Anna, be shorter.", None, {"michael": "Michael, thanks."}),
        ("Thanks. Pam, be brief.", "michael", {"michael": "Thanks.", "pam": "Pam, be brief."}),
        (
            "Two wishes. Jim: fewer jokes. Use short words. Pam: more detail.",
            None,
            {"jim": "Two wishes. Jim: fewer jokes. Use short words.", "pam": "Two wishes. Pam: more detail."},
        ),
        ("Jim, speak like Dwight Schrute.", None, {"jim": "Jim, speak like Dwight Schrute."}),
    ],
)
def test_each_is_read_the_sentences_that_are_said_to_it(
    text: str, replied_to: str | None, read: dict[str, str]
) -> None:
    calls = read_calls(text, [*AGENTS, *PEOPLE], replied_to=replied_to)

    assert {slug: calls.said_to(slug) for slug in SLUGS if slug in calls.called} == read


def test_names_that_call_nobody_are_reported_with_whom_they_mean() -> None:
    calls = read_calls("I saw Jim and Kevin.", AGENTS)

    assert (calls.names, calls.called) == ((("Jim", "jim"), ("Kevin", SHARED)), frozenset())


WORDS = "Jim Dwight Pam @jim , . ! ? : – and is you everyone > ` ' …".split()  # noqa: SIM905
PIECES = st.sampled_from([*WORDS, '"', " ", "\n"])


@given(st.lists(PIECES, max_size=40).map(" ".join), st.sampled_from([None, "pam", "someone else"]))
def test_the_sentences_of_any_text_make_up_the_text(text: str, replied_to: str | None) -> None:
    calls = read_calls(text, AGENTS, replied_to=replied_to)

    assert "".join(text[sentence.start : sentence.end] for sentence in calls.sentences) == text


@pytest.mark.parametrize("piece", ["Jim, ", "you and ", "> \n", "`", "@", ".", "?!"])
def test_the_time_grows_no_faster_than_the_text(piece: str) -> None:
    begun = time.thread_time()
    read_calls(f"Jim, {piece * (100_000 // len(piece))}x", AGENTS)

    assert time.thread_time() - begun < 3


def test_a_word_for_all_that_names_an_agent_calls_it_alone() -> None:
    parties = [Party.named("all", "Everybody", slug="everybody"), Party.named("pam", "Pam Beesly", slug="pam")]

    assert set(read_calls("@everybody be brief", parties).called) == {"all"}
