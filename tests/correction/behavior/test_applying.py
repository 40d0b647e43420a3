"""What people decide about requests: applied as proposed or as edited, rejected, tried again; and what is refused."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents.models import Agent, Message, PersonaVersion, Trait
from agents.persona import TraitValue, render_persona
from correction.behavior.applying import (
    BehaviorError,
    Conflict,
    TooManyConflicts,
    apply_request,
    delete_trait,
    in_transaction,
    reject_request,
    retry_request,
    revert_request,
    write_trait,
)
from correction.behavior.rules import trait_json
from correction.config.configure import configure
from correction.models import BehaviorRequest
from tests.console import superuser
from tests.correction.behavior.proposals import CONCISE, Status, proposed
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

DRY = TraitValue("dry wit", "Jokes with a straight face.", 0.4, 0.7)
SLANG = TraitValue("local slang", "Says arvo and reckon.", 0.8, 0.6)
STOP_SLANG = {"name": "local slang", "description": "Says arvo and reckon.", "sentiment": 0.8, "strength": 0.0}


@pytest.fixture
def ada() -> Agent:
    return make_agent(traits=[DRY, SLANG])


@pytest.fixture
def eve() -> User:
    return superuser("eve")


def traits_of(agent: Agent) -> dict[str, tuple[str, float, float]]:
    return {t.name: (t.description, t.sentiment, t.strength) for t in Trait.objects.filter(agent=agent)}


def test_an_applied_request_adds_its_trait_and_one_version_that_names_it(ada: Agent, eve: User) -> None:
    request = apply_request(request=proposed(ada), user=eve)

    assert (request.status, request.operation, request.trait_name) == ("applied", "add", "concise replies")
    assert traits_of(ada).keys() == {"dry wit", "local slang", "concise replies"}
    assert Trait.objects.get(name="concise replies").source == f"behaviour request {request.pk}"
    assert (request.trait_before, request.trait_after) == (None, CONCISE)
    assert (request.reviewed_by, request.automatic) == (eve, False)
    assert request.applied_at is not None
    versions = list(PersonaVersion.objects.order_by("number"))
    assert [v.note for v in versions] == ["test", f"behaviour request {request.pk}"]
    assert (request.persona_version_before, request.persona_version) == tuple(versions)
    assert versions[1].created_by == eve


def test_a_stop_keeps_the_trait_at_strength_0(ada: Agent, eve: User) -> None:
    row = Trait.objects.get(name="local slang")
    request = apply_request(request=proposed(ada, after=STOP_SLANG, before={**STOP_SLANG, "strength": 0.6}), user=eve)

    assert request.operation == "stop"
    assert traits_of(ada)["local slang"] == ("Says arvo and reckon.", 0.8, 0.0)
    assert request.trait == row, "the row is kept"
    assert "Never" in render_persona(system_prompt="", traits=Trait.objects.filter(agent=ada))


def test_forty_traits_stay_as_they_are(eve: User) -> None:
    many = [TraitValue(f"trait {n}", f"text {n}", n / 40, n / 40) for n in range(40)]
    agent = make_agent(traits=many)
    before = traits_of(agent)

    stopped = {"name": "trait 7", "description": "text 7", "sentiment": 7 / 40, "strength": 0.0}
    apply_request(request=proposed(agent, after=stopped), user=eve)

    after = traits_of(agent)
    assert after.pop("trait 7") == ("text 7", 7 / 40, 0.0)
    assert after == {name: value for name, value in before.items() if name != "trait 7"}


def test_a_persona_that_nobody_kept_as_it_is_gets_a_version_first(ada: Agent, eve: User) -> None:
    Trait.objects.filter(name="dry wit").update(strength=0.1)

    request = apply_request(request=proposed(ada), user=eve)

    assert request.persona_version_before is not None
    assert request.persona_version_before.note == f"as behaviour request {request.pk} found it"
    assert {t["name"]: t["strength"] for t in request.persona_version_before.traits}["dry wit"] == 0.1


def test_it_can_be_edited_before_it_is_applied(ada: Agent, eve: User) -> None:
    edited = TraitValue("short answers", "", -0.25, 0.35)

    request = apply_request(request=proposed(ada), user=eve, trait=edited)

    assert traits_of(ada)["short answers"] == ("", -0.25, 0.35)
    assert request.trait_after is not None
    assert (request.trait_name, request.trait_after["strength"]) == ("short answers", 0.35)


def test_an_edit_can_rename_the_trait_that_was_to_change(ada: Agent, eve: User) -> None:
    request = proposed(ada, after={**STOP_SLANG, "strength": 0.3}, before={**STOP_SLANG, "strength": 0.6})

    apply_request(request=request, user=eve, trait=TraitValue("slang", "Says arvo at times.", 0.0, 0.3))

    assert traits_of(ada).keys() == {"dry wit", "slang"}
    assert request.trait_before is not None
    assert request.trait_before["name"] == "local slang"


@pytest.mark.parametrize("trait", [TraitValue(" "), TraitValue("x" * 121), TraitValue("x", strength=1.5)])
def test_an_edit_that_is_not_allowed_changes_nothing(ada: Agent, eve: User, trait: TraitValue) -> None:
    request = proposed(ada)

    with pytest.raises(BehaviorError, match=r"allowed|is taken"):
        apply_request(request=request, user=eve, trait=trait)

    request.refresh_from_db()
    assert request.status == "pending_review"
    assert len(traits_of(ada)) == 2


def test_it_is_applied_once(ada: Agent, eve: User) -> None:
    request = proposed(ada)
    stale = BehaviorRequest.objects.get(pk=request.pk)
    apply_request(request=request, user=eve)

    with pytest.raises(BehaviorError, match=r"\(applied\) cannot be applied; allowed: one that is pending review or"):
        apply_request(request=stale, user=eve)
    assert PersonaVersion.objects.count() == 2


def test_what_is_like_that_already_is_not_applied(ada: Agent, eve: User) -> None:
    request = proposed(ada, after={**trait_json(DRY), "strength": 0.9})
    Trait.objects.filter(name="dry wit").update(strength=0.9)

    with pytest.raises(BehaviorError, match="nothing would change: the trait 'dry wit' is like that already"):
        apply_request(request=request, user=eve)


@pytest.mark.parametrize("replaces", [None, "LOCAL slang"])
def test_a_protected_trait_is_changed_by_no_request(ada: Agent, eve: User, replaces: str | None) -> None:
    configure(agent=ada, changes={"behavior_protected_traits": "Local Slang"})
    name = "speech" if replaces else "local slang"
    after = {**CONCISE, "name": name}
    request = proposed(ada, after=after, map_result={**after, "replaces_trait": replaces})

    with pytest.raises(BehaviorError, match="is protected"):
        apply_request(request=request, user=eve)
    assert traits_of(ada)["local slang"][2] == 0.6


def test_a_dropped_request_can_be_applied_by_a_person(ada: Agent, eve: User) -> None:
    request = proposed(ada, status=Status.DETECTED)

    assert apply_request(request=request, user=eve).status == "applied"


def test_rejecting_keeps_the_persona_and_says_why(ada: Agent, eve: User) -> None:
    request = reject_request(request=proposed(ada), user=eve, why="not her")

    assert (request.status, request.reviewed_by) == ("rejected", eve)
    assert request.why == "its confidence is medium\nrejected: not her"
    assert len(traits_of(ada)) == 2


def test_a_rejection_can_be_thought_better_of(ada: Agent, eve: User) -> None:
    request = reject_request(request=proposed(ada), user=eve)

    assert apply_request(request=request, user=eve).status == "applied"


def test_what_is_applied_is_not_rejected(ada: Agent, eve: User) -> None:
    request = apply_request(request=proposed(ada), user=eve)

    with pytest.raises(BehaviorError, match=r"\(applied\) cannot be rejected; allowed: one that is pending review"):
        reject_request(request=request, user=eve)


@pytest.mark.parametrize("status", ["failed", "errored", "cancelled", "paused_budget"])
def test_what_failed_is_queued_again_with_the_answers_it_has(ada: Agent, status: str) -> None:
    request = proposed(ada, status=status, error="timeout", finished_at=timezone.now())

    retry_request(request=request)

    assert (request.status, request.error, request.finished_at) == ("queued", "", None)
    assert request.gate_result is not None


@pytest.mark.parametrize("status", ["queued", "no_request", "detected", "pending_review", "rejected"])
def test_only_what_failed_is_tried_again(ada: Agent, status: str) -> None:
    with pytest.raises(BehaviorError, match="cannot be tried again"):
        retry_request(request=proposed(ada, status=status))


def test_a_deleted_agent_has_no_persona_to_change(eve: User) -> None:
    agent = make_agent("gone")
    request = proposed(agent)
    agent.delete()
    request.refresh_from_db()

    for act in (apply_request, revert_request):
        with pytest.raises(BehaviorError, match=r"its agent was deleted|cannot be reverted"):
            act(request=request, user=eve)
    assert reject_request(request=request, user=eve).status == "rejected"


def test_a_request_whose_message_was_deleted_can_be_decided(ada: Agent, eve: User) -> None:
    request = proposed(ada)
    Message.objects.all().delete()
    request.refresh_from_db()

    assert request.message is None
    assert apply_request(request=request, user=eve).status == "applied"
    assert revert_request(request=request, user=eve).status == "reverted"


def test_a_request_that_is_gone_says_so(ada: Agent, eve: User) -> None:
    request = proposed(ada)
    BehaviorRequest.objects.all().delete()

    with pytest.raises(BehaviorError, match="is gone"):
        apply_request(request=request, user=eve)


def test_a_trait_that_somebody_changed_since_it_was_read_is_not_written_over(ada: Agent) -> None:
    seen = Trait.objects.get(name="dry wit")
    Trait.objects.filter(pk=seen.pk).update(sentiment=-1)

    with pytest.raises(Conflict):
        write_trait(ada, seen, TraitValue("dry wit", "", 0.0, 0.0), "test")
    with pytest.raises(Conflict):
        delete_trait(seen)
    assert traits_of(ada)["dry wit"] == ("Jokes with a straight face.", -1.0, 0.7)


def test_what_always_meets_somebody_else_is_given_up_and_undone(ada: Agent) -> None:
    def work() -> None:
        Trait.objects.filter(name="dry wit").update(strength=0.0)
        raise Conflict

    with pytest.raises(TooManyConflicts):
        in_transaction(work)
    assert traits_of(ada)["dry wit"][2] == 0.7
