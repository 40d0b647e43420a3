"""Pairs of an experiment in the console: a conversation of the control beside its like, message by message."""

from __future__ import annotations

import pytest
from django.test import Client
from pytest_django import Settings

from agents.models import Message
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.play import play
from evaluation.experiments.starting import start_experiment
from evaluation.models import EvaluationScore
from tests.console import HOSTILE, page_of, plain, queries, read, signed_in, staff, superuser
from tests.evaluation.experiments.playing import scenario

pytestmark = pytest.mark.django_db
VIEWS = ("experiments.view_experiment", "agents.view_channel")


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "offline:scripted-1", "offline:lexical-1"


@pytest.fixture
def root() -> Client:
    return signed_in(superuser())


def played(environments: int = 2, **changes: object) -> Experiment:
    population = {"size": 2 * environments, "about": "people of one street"}
    return play(start_experiment(scenario(population=population, environments=environments, **changes)))


def score_all_messages(environment: ExperimentEnvironment, score: int) -> None:
    """Have every agent's message of a conversation scored by the experiment's evaluations."""
    links = {link.evaluation_run.agent_id: link.evaluation_run for link in environment.evaluation_links.all()}
    for message in environment.channel.messages.filter(agent__isnull=False):
        EvaluationScore.objects.create(
            evaluation_run=links[message.agent_id],
            message=message,
            dimension="fluency",
            proposition_id="fluent",
            claim="It is fluent.",
            status=EvaluationScore.Status.SCORED,
            score=score,
        )


def pair_page(experiment: Experiment, query: str = "") -> str:
    return page_of(experiment, "pair") + query


def test_the_page_of_an_experiment_leads_to_its_pairs_and_their_conversations(root: Client) -> None:
    experiment = played()
    html = read(root, page_of(experiment))

    for environment in experiment.environments.all():
        assert page_of(environment.channel, "transcript") in html
    for number in (1, 2):
        assert f"{pair_page(experiment)}?arm=gated&amp;number={number}" in html


def test_messages_of_a_pair_stand_beside_each_other_by_position(root: Client) -> None:
    experiment = played()
    control = experiment.environments.get(arm="plain", number=1).channel
    treatment = experiment.environments.get(arm="gated", number=1).channel
    Message.objects.filter(channel=control, position=2).update(text="Left at two.")
    Message.objects.filter(channel=treatment, position=2).update(text="Right at two.")
    Message.objects.filter(channel=treatment).order_by("-position")[0].delete()

    html = read(root, pair_page(experiment))

    shown = plain(html)
    assert "The same in both" in shown  # what the facilitator says
    assert html.index("Left at two.") < html.index("Right at two.") < html.index("message 3")
    last = control.messages.order_by("-position")[0].position
    assert f"No message {last} here." in shown
    for channel in (control, treatment):
        assert page_of(channel, "transcript") in html


def test_scores_of_messages_stand_beside_them_with_the_difference(root: Client) -> None:
    experiment = played()
    for arm, score in (("plain", 3), ("gated", 7)):
        environment = experiment.environments.get(arm=arm, number=1)
        score_all_messages(environment, score)

    shown = plain(read(root, pair_page(experiment)))

    assert "Fluency 3.0" in shown
    assert "Fluency 7.0 (+4.0)" in shown
    assert "The scores are of an offline heuristic." in shown


def test_previous_and_next_lead_through_the_pairs_of_a_treatment_and_a_repeat(root: Client) -> None:
    experiment = played(3, repeats=2)

    first = read(root, pair_page(experiment, "?repeat=2"))
    middle = read(root, pair_page(experiment, "?repeat=2&number=2"))
    last = read(root, pair_page(experiment, "?repeat=2&number=3"))

    assert ("Previous pair" in first, "Next pair" in last) == (False, False)
    for number in (1, 3):
        assert f"arm=gated&amp;repeat=2&amp;number={number}" in middle


def test_a_pair_without_one_of_its_conversations_is_passed_over(root: Client) -> None:
    experiment = played(3)
    experiment.environments.get(arm="gated", number=2).channel.delete()

    first, last = read(root, pair_page(experiment)), read(root, pair_page(experiment, "?number=3"))

    for page in (first, last):
        assert "number=2" not in page
    assert "number=3" in first


@pytest.mark.parametrize("query", ["?number=9", "?number=0x1&repeat=7", "?arm=plain", "?arm=nothing%00"])
def test_a_pair_that_is_not_there_is_not_found(root: Client, query: str) -> None:
    assert root.get(pair_page(played(), query)).status_code == 404


def test_long_conversations_come_a_page_at_a_time(root: Client) -> None:
    experiment = played()
    channel = experiment.environments.get(arm="gated", number=1).channel
    start = channel.next_position
    Message.objects.bulk_create(
        Message(channel=channel, position=start + number, outsider="Robin", text=f"line {number}.")
        for number in range(100)
    )
    channel.next_position = start + 100
    channel.save()

    first = read(root, pair_page(experiment))
    second = read(root, pair_page(experiment, "?after=50"))

    assert ("line 5." in first, "line 99." in first) == (True, False)
    assert "after=50" in first
    assert "line 60." in second


def test_hostile_messages_names_and_arms_are_shown_and_never_run(root: Client) -> None:
    experiment = played()
    Message.objects.update(text=f"{HOSTILE} \u202e {{{{ 7|add:7 }}}}")
    Message.objects.filter(agent=None).update(outsider=HOSTILE)

    html = read(root, pair_page(experiment))

    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
    assert "\u202e" not in html


def test_a_pair_of_many_turns_takes_as_many_statements_as_one_of_two(root: Client) -> None:
    few, many = played(), played(steps=[{"says": f"And number {n}?"} for n in range(8)])
    for environment in ExperimentEnvironment.objects.all():
        score_all_messages(environment, 5)

    assert len(queries(root, pair_page(many))) == len(queries(root, pair_page(few))) <= 25


def test_the_page_of_an_experiment_takes_as_many_statements_for_many_pairs_as_for_two(root: Client) -> None:
    few, many = played(), played(8)

    assert len(queries(root, page_of(many))) == len(queries(root, page_of(few)))


def test_pairs_are_read_by_those_who_may_view_messages_alone() -> None:
    experiment = played()
    without = signed_in(staff(*VIEWS))
    reads = signed_in(staff(*VIEWS, "agents.view_message", username="reads"))

    assert without.get(pair_page(experiment)).status_code == 403
    assert pair_page(experiment) not in read(without, page_of(experiment))
    assert reads.get(pair_page(experiment)).status_code == 200
    other = signed_in(staff("agents.view_channel", "agents.view_message", username="other"))
    assert other.get(pair_page(experiment)).status_code == 403
