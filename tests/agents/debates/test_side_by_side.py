"""Two debates side by side: about the same question, round by round, the answers of an agent beside each other."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils.html import escape

from agents.debates.models import Debate
from tests.agents.debates.finished import TOPIC, Said, make_debate, says
from tests.agents.debates.seats import seated
from tests.console import HOSTILE, page_of, plain, queries, read, signed_in, staff, superuser

pytestmark = pytest.mark.django_db
VIEWING = ("debates.view_debate", "agents.view_channel", "agents.view_agent")


@pytest.fixture
def root() -> Client:
    return signed_in(superuser())


def beside(debate: Debate, other: Debate) -> str:
    return f"{page_of(debate, 'beside')}?other={other.pk}"


def rows(html: str) -> list[list[str]]:
    """What stands beside each other, left and right, as a person reads it."""
    found = re.findall(r'<li class="pl-beside">(.*?)</li>', html, flags=re.S)
    return [[plain(side) for side in re.findall(r"<section>(.*?)</section>", row, flags=re.S)] for row in found]


def test_answers_of_an_agent_stand_beside_each_other_whatever_its_seat(root: Client) -> None:
    ada, bob, cleo = seated(3)
    left = make_debate([[says(1, "yes"), says(2, "no")]], agents=[ada, bob], slug="left")
    right = make_debate([[says(1, "no"), says(2, "yes")]], agents=[bob, cleo], slug="right", mode="adversarial")

    html = read(root, beside(left, right))

    of_ada, of_bob, of_cleo = rows(html)
    assert ("Ada" in of_ada[0], of_ada[1]) == (True, "No answer here.")
    assert "seat 2" in of_bob[0]
    assert "seat 1" in of_bob[1]
    assert (of_cleo[0], "Cleo" in of_cleo[1]) == ("No answer here.", True)
    for debate in (left, right):
        assert page_of(debate) in html
        assert page_of(debate.channel, "transcript") in html


def test_debates_of_other_agents_are_compared_by_seat(root: Client) -> None:
    left, right = (make_debate([[says(1), says(2)]], slug=slug) for slug in ("left", "right"))

    shown = rows(read(root, beside(left, right)))

    assert [["seat 1" in cell for cell in row] for row in shown] == [[True, True], [False, False]]


def test_rounds_that_only_one_of_them_has_stand_alone(root: Client) -> None:
    agents = seated(2)
    left = make_debate([[says(1), says(2)]] * 3, agents=agents, slug="left")
    right = make_debate([[says(1), says(2)]], agents=agents, slug="right")

    assert [row[1] == "No answer here." for row in rows(read(root, beside(left, right)))] == [False] * 2 + [True] * 4


def test_a_debate_leads_to_others_about_its_question_and_to_a_new_one(root: Client) -> None:
    ada, bob = seated(2)
    debate = make_debate([[says(1), says(2)]], agents=[bob, ada], slug="one")
    same, different = make_debate([], slug="same"), make_debate([], slug="different", topic="Is it late?")
    html = read(root, page_of(debate))

    assert beside(debate, same) in html
    assert beside(debate, different) not in html
    again = f"/admin/debates/debate/add/?like={debate.pk}"
    assert again in html
    form = read(root, again)
    assert escape(TOPIC) in form
    assert escape(TOPIC) not in read(signed_in(staff("debates.add_debate", "agents.view_agent")), again)
    assert form.index('<option value="bob" selected') < form.index('<option value="ada" selected')


@pytest.mark.parametrize("other", ["", "?other=999999", "?other=x"])
def test_a_debate_that_is_not_there_is_not_found(root: Client, other: str) -> None:
    assert root.get(page_of(make_debate([]), "beside") + other).status_code == 404


def test_answers_are_read_side_by_side_by_those_who_may_view_messages_alone() -> None:
    left, right = (make_debate([[says(1), says(2)]], slug=slug) for slug in ("left", "right"))
    without = signed_in(staff(*VIEWING))

    assert without.get(beside(left, right)).status_code == 403
    assert 'id="beside"' not in read(without, page_of(left))
    reads = signed_in(staff(*VIEWING, "agents.view_message", username="reads"))
    assert reads.get(beside(left, right)).status_code == 200
    other = signed_in(staff("agents.view_message", username="other"))
    assert other.get(beside(left, right)).status_code == 403


def test_hostile_answers_are_shown_side_by_side_and_never_run(root: Client) -> None:
    bad = f"{HOSTILE} \u202e {{{{ 7|add:7 }}}}"
    hostile: list[list[Said]] = [[says(1, "yes", position=bad, reasoning=bad, citations=(bad,)), bad]]
    left, right = (make_debate(hostile, slug=slug, topic=bad) for slug in ("left", "right"))
    html = read(root, beside(left, right))

    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
    assert "\u202e" not in html


def test_debates_of_ten_rounds_take_as_many_statements_as_those_of_one(root: Client) -> None:
    rounds = [[says(seat, "yes", 0.7) for seat in range(1, 4)] for _ in range(11)]
    few = [make_debate(rounds[:2], slug=slug) for slug in ("a", "b")]
    many = [make_debate(rounds, slug=slug) for slug in ("c", "d")]

    assert len(queries(root, beside(*many))) == len(queries(root, beside(*few))) <= 25
