"""Taking a change back: exactly what was, whatever else was changed since; and a question when the same trait was."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from agents.models import Agent, PersonaVersion, Trait
from agents.persona import TraitValue, current_digest, save_persona
from correction.behavior.applying import BehaviorError, TraitChangedSince, apply_request, revert_request
from correction.behavior.rules import trait_json
from correction.models import BehaviorRequest
from tests.console import superuser
from tests.correction.behavior.proposals import CONCISE, proposed
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

WIT = TraitValue("dry wit", "Jokes with a\nstraight face. ", 0.1 + 0.2, 1 / 3)
LOUDER: dict[str, Any] = {"name": "Sarcasm", "description": "Says the opposite.", "sentiment": -0.5, "strength": 0.9}


@pytest.fixture
def ada() -> Agent:
    return make_agent(traits=[WIT, TraitValue("local slang", "Says arvo.", 0.8, 0.6)])


@pytest.fixture
def eve() -> User:
    return superuser("eve")


def update(agent: Agent, after: dict[str, Any] = LOUDER, *, of: str = "dry wit") -> BehaviorRequest:
    """An applied request that changed a trait."""
    request = proposed(agent, after=after, map_result={**after, "replaces_trait": of})
    return apply_request(request=request)


def wit() -> Trait:
    return Trait.objects.get(name="dry wit")


def test_the_trait_and_the_digest_are_exactly_what_they_were(ada: Agent, eve: User) -> None:
    row, digest = wit(), current_digest(ada)
    request = update(ada)
    assert Trait.objects.get(pk=row.pk).name == "Sarcasm"

    revert_request(request=request, user=eve)

    assert (request.status, request.reviewed_by) == ("reverted", eve)
    assert request.reverted_at is not None
    back = wit()
    assert back.pk == row.pk
    assert (back.description, back.sentiment, back.strength) == (WIT.description, WIT.sentiment, WIT.strength)
    assert current_digest(ada) == digest
    assert [v.note for v in PersonaVersion.objects.order_by("number")] == [
        "test", f"behaviour request {request.pk}", f"revert of behaviour request {request.pk}",
    ]  # fmt: skip


def test_a_trait_that_was_new_goes_again(ada: Agent, eve: User) -> None:
    digest = current_digest(ada)
    request = apply_request(request=proposed(ada))

    revert_request(request=request, user=eve)

    assert not Trait.objects.filter(name=CONCISE["name"]).exists()
    assert current_digest(ada) == digest


def test_a_stop_that_is_taken_back_has_its_strength_again(ada: Agent, eve: User) -> None:
    request = update(ada, {**trait_json(wit()), "strength": 0.0})
    assert wit().strength == 0.0

    revert_request(request=request, user=eve)

    assert wit().strength == WIT.strength


def test_changes_of_other_traits_and_of_the_prompt_stay(ada: Agent, eve: User) -> None:
    request = update(ada)
    later = update(ada, {**CONCISE, "name": "local slang"}, of="local slang")
    ada.system_prompt = "You are somebody quite different."
    save_persona(agent=ada, note="a person")

    revert_request(request=request, user=eve)

    assert wit().strength == WIT.strength
    assert Trait.objects.get(name="local slang").strength == CONCISE["strength"]
    assert Agent.objects.get().system_prompt == "You are somebody quite different."
    later.refresh_from_db()
    assert later.status == "applied"


def test_a_later_change_of_the_same_trait_is_asked_about(ada: Agent, eve: User) -> None:
    request = update(ada)
    later = update(ada, {**LOUDER, "strength": 0.2}, of="Sarcasm")

    with pytest.raises(
        TraitChangedSince, match=rf"'Sarcasm' was changed: strength is 0\.2 since \(by behaviour request {later.pk}"
    ):
        revert_request(request=request, user=eve)
    assert Trait.objects.get(name="Sarcasm").strength == 0.2
    assert revert_request(request=request, user=eve, anyway=True).status == "reverted"
    assert wit().strength == WIT.strength


def test_two_changes_of_one_trait_are_taken_back_one_after_the_other(ada: Agent, eve: User) -> None:
    first = update(ada)
    second = update(ada, {**LOUDER, "strength": 0.2}, of="Sarcasm")

    revert_request(request=second, user=eve)
    revert_request(request=first, user=eve)

    assert wit().strength == WIT.strength


def test_a_change_that_another_request_took_back_is_asked_about(ada: Agent, eve: User) -> None:
    """And so is the other, for what was before it is the result of a request that is reverted by then."""
    before = trait_json(wit())
    first = update(ada, {**before, "strength": 0.9})
    second = update(ada, before)

    with pytest.raises(TraitChangedSince, match=rf"by behaviour request {second.pk}, which can be reverted first"):
        revert_request(request=first, user=eve)
    assert revert_request(request=first, user=eve, anyway=True).status == "reverted"
    with pytest.raises(TraitChangedSince, match=f"came of behaviour request {first.pk}, which was reverted since"):
        revert_request(request=second, user=eve)

    assert wit().strength == WIT.strength
    revert_request(request=second, user=eve, anyway=True)
    assert wit().strength == 0.9


def test_a_trait_that_a_person_renamed_is_asked_about_and_found(ada: Agent, eve: User) -> None:
    request = update(ada)
    Trait.objects.filter(name="Sarcasm").update(name="irony")

    with pytest.raises(TraitChangedSince, match="name is 'irony'"):
        revert_request(request=request, user=eve)
    revert_request(request=request, user=eve, anyway=True)

    assert set(Trait.objects.values_list("name", flat=True)) == {"dry wit", "local slang"}


def test_a_trait_that_a_person_deleted_comes_back_only_when_wanted(ada: Agent, eve: User) -> None:
    request = update(ada)
    Trait.objects.filter(name="Sarcasm").delete()
    request.refresh_from_db()

    with pytest.raises(TraitChangedSince, match="'Sarcasm' was deleted since"):
        revert_request(request=request, user=eve)
    revert_request(request=request, user=eve, anyway=True)

    assert (wit().description, wit().sentiment, wit().strength) == (WIT.description, WIT.sentiment, WIT.strength)


def test_a_new_trait_that_is_gone_already_needs_no_question(ada: Agent, eve: User) -> None:
    request = apply_request(request=proposed(ada))
    Trait.objects.filter(name=CONCISE["name"]).delete()
    versions = PersonaVersion.objects.count()

    assert revert_request(request=request, user=eve).status == "reverted"
    assert PersonaVersion.objects.count() == versions


def test_what_a_person_put_back_by_hand_needs_no_question(ada: Agent, eve: User) -> None:
    request = update(ada)
    Trait.objects.filter(name="Sarcasm").update(
        name=WIT.name, description=WIT.description, sentiment=WIT.sentiment, strength=WIT.strength
    )

    assert revert_request(request=request, user=eve).status == "reverted"


def test_a_name_that_another_trait_has_by_now_is_not_taken_from_it(ada: Agent, eve: User) -> None:
    request = update(ada)
    Trait.objects.create(agent=ada, name="DRY WIT", description="a new one")

    with pytest.raises(BehaviorError, match="another trait has that name by now") as refused:
        revert_request(request=request, user=eve, anyway=True)
    assert not isinstance(refused.value, TraitChangedSince)
    assert Trait.objects.get(name="DRY WIT").description == "a new one"


def test_it_is_taken_back_once(ada: Agent, eve: User) -> None:
    request = update(ada)
    stale = BehaviorRequest.objects.get(pk=request.pk)
    revert_request(request=request, user=eve)

    for again in (stale, request):
        with pytest.raises(BehaviorError, match=r"\(reverted\) cannot be reverted; allowed: one that is applied"):
            revert_request(request=again, user=eve)
        with pytest.raises(BehaviorError, match=r"\(reverted\) cannot be applied"):
            apply_request(request=again, user=eve)


def test_what_waits_cannot_be_taken_back(ada: Agent, eve: User) -> None:
    with pytest.raises(BehaviorError, match="cannot be reverted; allowed: one that is applied"):
        revert_request(request=proposed(ada), user=eve)


def test_a_change_after_its_user_was_deleted_can_be_taken_back(ada: Agent, eve: User) -> None:
    request = apply_request(request=proposed(ada), user=eve)
    eve.delete()
    request.refresh_from_db()

    assert request.reviewed_by is None
    assert revert_request(request=request, user=None).status == "reverted"
