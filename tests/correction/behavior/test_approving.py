"""What a person approves is what is applied: the proposal as it was shown, or nothing."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from agents.models import Agent, PersonaVersion, Trait
from agents.persona import TraitValue
from correction.behavior.applying import BehaviorError, apply_request
from correction.config.configure import configure
from tests.console import superuser
from tests.correction.behavior.proposals import CONCISE, Status, proposed
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

DRY = TraitValue("dry wit", "Jokes with a straight face.", 0.4, 0.5)
MORE_WIT: dict[str, Any] = {"name": "dry wit", "description": DRY.description, "sentiment": 0.4, "strength": 0.7}


@pytest.fixture
def ada() -> Agent:
    return make_agent(traits=[DRY])


@pytest.fixture
def eve() -> User:
    return superuser("eve")


@pytest.mark.parametrize(
    ("since", "said"),
    [
        ({"strength": 0.9}, r"the trait 'dry wit' was changed: strength is 0\.9"),
        ({"description": "Another."}, "description is 'Another.'"),
        ({"name": "irony"}, "the trait 'dry wit' was deleted or renamed"),
    ],
    ids=str,
)
def test_what_was_proposed_for_another_trait_than_is_there_now_is_refused(
    ada: Agent, eve: User, since: dict[str, Any], said: str
) -> None:
    request = proposed(ada, after=MORE_WIT)
    Trait.objects.filter(agent=ada).update(**since)
    now = Trait.objects.values().get()

    with pytest.raises(BehaviorError, match=said) as refused:
        apply_request(request=request, user=eve)

    assert "allowed: to edit it, then apply" in str(refused.value)
    assert Trait.objects.values().get() == now
    assert PersonaVersion.objects.count() == 1
    request.refresh_from_db()
    assert request.status == "pending_review"


def test_a_trait_that_was_made_since_is_not_written_over(ada: Agent, eve: User) -> None:
    request = proposed(ada)
    Trait.objects.create(agent=ada, name="Concise Replies", description="Somebody's own.", strength=0.2)

    with pytest.raises(BehaviorError, match="since it was proposed a trait 'Concise Replies' was made"):
        apply_request(request=request, user=eve)
    assert Trait.objects.get(name="Concise Replies").description == "Somebody's own."


def test_a_name_that_another_trait_took_since_is_not_taken_from_it(ada: Agent, eve: User) -> None:
    after = {**MORE_WIT, "name": "irony"}
    request = proposed(ada, after=after, map_result={**after, "replaces_trait": "dry wit"})
    Trait.objects.create(agent=ada, name="Irony")

    with pytest.raises(BehaviorError, match="there is another trait 'Irony' by now"):
        apply_request(request=request, user=eve)
    assert set(Trait.objects.values_list("name", flat=True)) == {"dry wit", "Irony"}


def test_the_answer_of_the_model_is_not_read_again(ada: Agent, eve: User) -> None:
    request = proposed(ada, after=MORE_WIT, map_result={**MORE_WIT, "strength": 0.1, "description": "Another."})

    apply_request(request=request, user=eve)

    assert Trait.objects.get(name="dry wit").strength == 0.7
    assert (request.operation, request.trait_after) == ("update", MORE_WIT)


def test_what_was_erased_from_the_answer_comes_into_no_persona(ada: Agent, eve: User) -> None:
    said = "Could you please be as concise as my neighbour Ferdinand is in his letters?"
    request = proposed(ada, said, map_result={**CONCISE, "name": said, "description": said})

    call_command("forget", "--outsider", "Zoe", stdout=StringIO())
    request.refresh_from_db()
    assert request.map_result == {}
    apply_request(request=request, user=eve)

    assert Trait.objects.get(name="concise replies").description == CONCISE["description"]
    assert not Trait.objects.filter(description__contains="erased").exists()


def test_where_nothing_was_proposed_there_is_nothing_to_approve(ada: Agent, eve: User) -> None:
    request = proposed(ada, after={}, status=Status.DETECTED, map_result=CONCISE, why="the trait is like that already")

    with pytest.raises(BehaviorError, match="nothing would change: the trait is like that already"):
        apply_request(request=request, user=eve)
    assert apply_request(request=request, user=eve, trait=TraitValue("brevity")).status == "applied"


def test_a_trait_the_answer_works_against_is_protected_too(ada: Agent, eve: User) -> None:
    configure(agent=ada, changes={"behavior_protected_traits": "dry wit"})
    request = proposed(ada, map_result={**CONCISE, "touches": ["dry wit"]})

    with pytest.raises(BehaviorError, match="'dry wit' is protected"):
        apply_request(request=request, user=eve)
