"""The drift overview: a card per agent, filters in the URL, and what each group may see and do."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from evaluation.change.models import Change
from tests.console import drawn, page_of, plain, queries, read, signed_in, staff
from tests.evaluation.change.measured import flattened
from tests.evaluation.judged import OFFLINE
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def overview_url() -> str:
    return reverse("admin:evaluation_drift_overview")


def in_group(name: str) -> Client:
    user = User.objects.create_user(name.lower(), is_staff=True)
    user.groups.add(Group.objects.get(name=name))
    return signed_in(user)


def test_a_card_shows_who_drifted_in_what_with_quotes_and_steps(root: Client, overview_url: str) -> None:
    ada, bob = make_agent(title="Clerk"), make_agent("bob")
    flattened(ada)
    page = read(root, overview_url)
    text = plain(page)

    assert "1 drifted 1 never measured" in text
    assert "No longer “dry wit”: 8.1 → 3.1 since build 41." in text
    assert "Claim: the claim of ada-dry-wit." in text
    assert "Baseline 9 of 9" in text
    assert "Now 2 of 9" in text
    assert page.index(f"overview-{ada.pk}") < page.index(f"overview-{bob.pk}")
    assert reverse("admin:evaluation_agent_capture", args=[bob.pk]) in page
    assert "Observe it at the gate" in text


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["ada", "bob"]),
        ("?active=all", ["ada", "bob", "gone"]),
        ("?active=no", ["gone"]),
        ("?q=AD", ["ada"]),
        ("?state=drifted", ["ada"]),
        ("?state=improved", []),
        ("?page=2", []),
    ],
)
def test_filters_stand_in_the_url(root: Client, overview_url: str, query: str, names: list[str]) -> None:
    ada, _ = make_agent(), make_agent("bob")
    make_agent("gone", is_active=False)
    flattened(ada)
    cards = root.get(overview_url + query).context["cards"]

    assert sorted(card["drift"].agent.slug for card in cards) == names


@pytest.mark.parametrize("wrong", ["baseline=build", "candidate=%3D41", "baseline=1%3D2", "judge=nobody", "state=x"])
def test_a_filter_that_means_nothing_is_named(root: Client, overview_url: str, wrong: str) -> None:
    make_agent()
    page = read(root, f"{overview_url}?{wrong}")

    assert 'role="alert"' in page
    assert "pl-overview-card" not in page


def test_one_judge_at_a_time_and_heuristics_are_marked(root: Client, overview_url: str) -> None:
    flattened(make_agent(), judge=OFFLINE)
    flattened(make_agent("bob"))
    by_model = plain(read(root, overview_url))
    by_heuristic = plain(read(root, overview_url + "?judge=offline%3Alexical-1+plumbline"))

    assert "1 drifted 1 never measured" in by_model
    assert "goes by word lists" not in by_model
    assert "heuristic lexical-1" in by_heuristic
    assert "goes by word lists" in by_heuristic


def test_a_statistic_of_repeated_words_stands_beside_no_chart_of_other_scores(root: Client) -> None:
    ada = make_agent()
    flattened(ada)
    assert len(drawn(read(root, page_of(ada)))) == 1

    for change in Change.objects.all():
        change.value["result"]["of_words"] = True
        change.save(update_fields=["value"])

    page = read(root, page_of(ada))
    assert "variety of words" in plain(page)
    assert drawn(page) == []


@pytest.mark.parametrize(("group", "steps"), [("Viewer", False), ("Operator", True), ("Editor", True)])
def test_every_group_sees_the_cards_and_steps_it_may_take(overview_url: str, group: str, steps: bool) -> None:
    bob = make_agent("bob")
    flattened(make_agent())
    page = read(in_group(group), overview_url)

    assert "No longer “dry wit”" in page
    assert (reverse("admin:evaluation_agent_capture", args=[bob.pk]) in page) is steps
    assert ("Observe it at the gate" in page) is (group == "Editor")


def test_without_the_right_to_read_messages_there_are_no_quotes(overview_url: str) -> None:
    flattened(make_agent())
    page = read(signed_in(staff("change.view_baseline", "agents.view_agent")), overview_url)

    assert "No longer “dry wit”" in page
    assert "Noted. 2" not in page


@pytest.mark.parametrize("right", ["change.view_baseline", "agents.view_agent"])
def test_without_the_rights_to_agents_and_baselines_it_is_refused(overview_url: str, right: str) -> None:
    assert signed_in(staff(right)).get(overview_url).status_code == 403


def test_more_agents_take_no_more_queries(root: Client, overview_url: str) -> None:
    flattened(make_agent())
    few = queries(root, overview_url)
    for number in range(3):
        flattened(make_agent(f"agent-{number}"))
    many = queries(root, overview_url)

    assert len(many) == len(few), "\n".join(many)
