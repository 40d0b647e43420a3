"""Debates in the console: started in a form, played by buttons, read round by round; who may do what, and what hostile text does."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils.html import conditional_escape
from pytest_django import Settings

from agents.debates.debate import play
from agents.debates.measures import Exit
from agents.debates.models import Debate
from agents.debates.modes import MODES, PERSPECTIVES
from agents.debates.report import report, talking_lines
from agents.kit.models import owner_name
from agents.models import Message
from agents.models.conversations import Agent
from tests.agents.debates.finished import TOPIC, Said, make_debate, says
from tests.agents.debates.seats import seated
from tests.console import HOSTILE, page_of, plain, queries, read, signed_in, staff, superuser
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

ADD = "/admin/debates/debate/add/"
VIEWING = ("debates.view_debate", "agents.view_channel", "agents.view_agent")
POLL: list[Said] = [says(1, "yes", 0.9), says(2, "no", 0.8), says(3, "no", 0.6, position="Stay.")]
LAST: list[Said] = [says(1, "yes", 0.9), says(2, "yes", 0.85, position="I agree."), "the model refused"]
EXIT = Exit(ends=True, reason="max_rounds", details="round 1 of 1")


def form(seats: list[Agent], **fields: Any) -> dict[str, Any]:
    usual = {"topic": TOPIC, "mode": "delphi", "rounds": "5", "poll": "on", "judge": "on"}
    return {**usual, "agents": [agent.slug for agent in seats], **fields}


@pytest.fixture
def root() -> Client:
    return signed_in(superuser())


def test_a_debate_is_started_in_the_form_and_played_round_by_round(root: Client) -> None:
    agents = seated(3)
    answer = root.post(ADD, form(agents, next="1"))

    debate = Debate.objects.get()
    assert answer["Location"] == page_of(debate)
    assert list(debate.seats.values_list("number", "agent__slug")) == [(1, "ada"), (2, "bob"), (3, "cleo")]
    assert (debate.status, debate.rounds_asked, debate.created_by) == ("pending", 1, User.objects.get())
    waits = plain(read(root, page_of(debate)))
    assert "It waits for a worker, and none is running: manage.py work starts one." in waits
    progress = root.get(page_of(debate, "progress")).json()
    play(debate, owner=owner_name())
    assert root.get(page_of(debate, "progress")).json() != progress

    shown = plain(read(root, page_of(debate)))
    assert "waits for its next round" in shown
    assert "A Ada" in shown.partition("Round 1")[2]
    assert "Round 2" not in shown
    root.post(page_of(debate, "message"), {"text": "What does it cost?"})
    assert "root said since: What does it cost?" in plain(read(root, page_of(debate)))
    root.post(page_of(debate, "next"))
    assert Debate.objects.get().rounds_asked == 2
    play(Debate.objects.get(), owner=owner_name())
    before, _, second_round = plain(read(root, page_of(debate))).partition("Round 2")
    assert "root said before it: What does it cost?" in second_round
    assert "What does it cost?" not in before
    root.post(page_of(debate, "finish"))
    debate.refresh_from_db()
    assert (debate.status, debate.rounds_asked) == ("pending", 5)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"agents": ["ada", HOSTILE]}, f"there is no agent {HOSTILE!r}"[:30]),
        ({"mode": "expert-panel", "perspectives": " , "}, "Perspectives []: allowed: at least 1"),
    ],
)
def test_a_wrong_form_comes_back_with_the_reason_and_writes_nothing(
    root: Client, fields: dict[str, str], said: str
) -> None:
    answer = root.post(ADD, form(seated(3), **fields))

    assert answer.status_code == 200
    assert said in plain(answer.content.decode())
    assert "<script>alert" not in answer.content.decode()
    assert not Debate.objects.exists()


def test_each_mode_says_what_it_does_when_to_use_it_and_what_it_costs(root: Client) -> None:
    html = read(root, ADD)

    for mode in MODES.values():
        radio = re.search(f'<input type="radio" name="mode" value="{mode.name}"[^>]*aria-describedby="([^"]+)"', html)
        assert radio
        card = html.split(f'id="{radio[1]}"')[1].split("</div>")[0]
        assert all(conditional_escape(text) in card for text in (mode.about, mode.when, mode.cost))


def test_agents_that_were_picked_stay_in_their_order_when_the_form_is_refused(root: Client) -> None:
    ada, bob, cleo = seated(3)

    html = root.post(ADD, form([cleo, ada, bob], topic="")).content.decode()

    places = [html.index(f'<option value="{slug}"') for slug in ("cleo", "ada", "bob")]
    assert places == sorted(places)


def test_only_those_who_may_view_agents_start_a_debate() -> None:
    without = signed_in(staff("debates.add_debate", "debates.view_debate"))
    picks = signed_in(staff("debates.add_debate", *VIEWING, username="picks"))

    assert without.get(ADD).status_code == 403
    assert picks.get(ADD).status_code == 200


def test_the_start_form_takes_as_many_statements_for_many_agents_as_for_one(root: Client) -> None:
    make_agent("one", sample_lines=[])
    few = len(queries(root, ADD))
    for number in range(30):
        make_agent(f"more-{number}", sample_lines=[])

    assert len(queries(root, ADD)) == few


@pytest.mark.parametrize(
    "status",
    [
        "waiting",
        "running",
    ],
)
def test_only_an_unfinished_debate_has_a_button_to_cancel(root: Client, status: str) -> None:
    debate = make_debate([POLL])
    Debate.objects.update(status=status)
    assert "Cancel this debate" in read(root, page_of(debate))

    root.post(page_of(debate, "cancel"))

    shown = read(root, page_of(debate))
    assert Debate.objects.get().status == "cancelled"
    assert f"Debate {debate.pk} is cancelled. What was said stays." in plain(shown)
    assert "Cancel this debate" not in shown
    assert "Play one round" not in shown
    assert "Stay." in shown
    Debate.objects.update(status="completed")
    root.post(page_of(debate, "cancel"))
    assert "Nothing was changed: debate: debate" in plain(read(root, page_of(debate)))


def test_the_start_form_names_personas_that_have_nothing_to_say_offline(root: Client, settings: Settings) -> None:
    make_agent("mute", sample_lines=[])

    offline = plain(read(root, ADD))
    settings.ACTOR_MODEL = "claude-haiku-5-5"
    with_model = plain(read(root, ADD))

    assert "no sample lines: mute" in offline
    assert "no sample lines" not in with_model


def test_only_an_expert_panel_takes_perspectives(root: Client) -> None:
    agents = seated(2)
    root.post(ADD, form(agents, mode="expert-panel", perspectives="legal, our own", wait="1"))
    root.post(ADD, form(agents, mode="expert-panel", wait="1"))
    refused = root.post(ADD, form(agents, perspectives="legal", wait="1"))

    panel, usual = Debate.objects.order_by("pk")
    assert list(panel.seats.values_list("perspective", flat=True)) == ["legal", "our own"]
    assert list(usual.seats.values_list("perspective", flat=True)) == list(PERSPECTIVES[:2])
    assert {panel.status, usual.status} == {"waiting"}
    assert "Perspectives: not a setting of delphi" in plain(refused.content.decode())


def test_what_was_said_is_shown_to_those_who_may_view_messages_alone() -> None:
    debate = make_debate([POLL, LAST], ended=EXIT)
    secrets = ("Stay.", "Because seat", "the model refused", "seat 1 says yes")
    without = plain(read(signed_in(staff(*VIEWING)), page_of(debate)))
    reads = plain(read(signed_in(staff(*VIEWING, "agents.view_message", username="reader")), page_of(debate)))

    assert [secret for secret in secrets if secret.lower() in without.lower()] == []
    assert "no 0.80" in without
    assert [secret for secret in secrets if secret.lower() not in reads.lower()] == []
    assert "Markdown" in reads
    assert "Markdown" not in without


def test_the_page_shows_changes_violations_failures_and_the_exit(root: Client) -> None:
    debate = make_debate([POLL, LAST], ended=EXIT)
    debate.turns.filter(round=1, seat__number=2).update(violation="the stance of the opposition is no")
    html = read(root, page_of(debate))
    shown = plain(html)

    assert "Ended by max rounds: round 1 of 1." in shown
    assert (
        html.index("Ended by") < html.index("Seats by stance") < html.index("Positions") < html.index('id="statistics"')
    )
    came_to = report(debate)
    assert all(" ".join(line.split()) in shown for line in talking_lines(came_to.decision.what_talking_changed))
    assert "was no, away from the majority breaks a rule" in shown
    assert "the model refused" in shown


def test_groupthink_is_a_warning_with_its_recommendation(root: Client) -> None:
    easy = [says(seat, "yes", 0.95, position="We agree on Friday.") for seat in (1, 2, 3)]
    warned = plain(read(root, page_of(make_debate([POLL, easy], slug="easy"))))

    assert "Groupthink warning" in warned
    assert "no dissent: all stances are yes" in warned
    assert "have a person review the result" in warned
    assert "Groupthink warning" not in plain(read(root, page_of(make_debate([POLL, POLL], slug="mixed"))))


def test_hostile_answers_questions_and_messages_are_shown_and_never_run(root: Client) -> None:
    bad = f"{HOSTILE} \u202e {{{{ 7|add:7 }}}} {{% now %}} ](javascript:x)"
    hostile = says(1, "yes", 0.9, position=bad, reasoning=bad, citations=(bad,))
    debate = make_debate([[hostile, says(2, "no")], [hostile, bad]], topic=bad)
    debate.turns.update(violation=bad)
    debate.seats.update(role=HOSTILE, perspective=HOSTILE, model=HOSTILE)
    Message.objects.create(channel=debate.channel, position=99, outsider=HOSTILE, text=bad)
    html = read(root, page_of(debate))

    assert "<script>alert" not in html
    assert html.count("&lt;script&gt;alert") > 10
    assert "\u202e" not in html
    assert "{{ 7|add:7 }}" in html
    assert "&lt;script&gt;alert" in read(root, reverse("admin:debates_debate_changelist"))


def test_a_page_of_ten_rounds_takes_as_many_queries_as_two(root: Client) -> None:
    rounds = [[says(seat, "yes", 0.7) for seat in range(1, 4)] for _ in range(11)]
    few, many = make_debate(rounds[:3], slug="few"), make_debate(rounds, slug="many")

    assert len(queries(root, page_of(many))) == len(queries(root, page_of(few))) <= 14
