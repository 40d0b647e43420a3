"""What people decide about requests: applied as proposed or as edited, rejected, tried again; and what is refused."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone

from agents.models import Agent, Message, PersonaVersion, Trait
from agents.personas.persona import TraitValue, current_digest, save_persona
from correction.behavior.applying import (
    BehaviorError,
    Conflict,
    TraitChangedSince,
    apply_request,
    reject_request,
    retry_request,
    revert_request,
    settle_request,
    write_trait,
)
from correction.behavior.models import BehaviorRequest
from correction.behavior.policy import count_applied_today
from correction.config.configure import configure
from tests.console import superuser
from tests.correction.behavior.proposals import CONCISE, Status, proposed
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

DRY = TraitValue("dry wit", "Jokes with a straight face.", 0.4, 0.7)
SLANG = TraitValue("local slang", "Says arvo and reckon.", 0.8, 0.6)


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


def test_a_persona_that_nobody_kept_as_it_is_gets_a_version_first(ada: Agent, eve: User) -> None:
    Trait.objects.filter(name="dry wit").update(strength=0.1)

    request = apply_request(request=proposed(ada), user=eve)

    assert request.persona_version_before is not None
    assert request.persona_version_before.note == f"before behaviour request {request.pk}"
    assert {t["name"]: t["strength"] for t in request.persona_version_before.traits}["dry wit"] == 0.1


def test_an_edit_that_is_not_allowed_changes_nothing(ada: Agent, eve: User) -> None:
    request = proposed(ada)

    with pytest.raises(BehaviorError, match=r"strength 1\.5 is not from 0 to 1"):
        apply_request(request=request, user=eve, trait=TraitValue("x", strength=1.5))

    request.refresh_from_db()
    assert request.status == "pending_review"
    assert len(traits_of(ada)) == 2


def test_what_is_like_that_already_is_not_applied(ada: Agent, eve: User) -> None:
    request = proposed(ada, after={**asdict(DRY), "strength": 0.9})
    Trait.objects.filter(name="dry wit").update(strength=0.9)

    with pytest.raises(BehaviorError, match="nothing would change: the trait 'dry wit' is like that already"):
        apply_request(request=request, user=eve)


@pytest.mark.parametrize(
    ("name", "answered"),
    [("local slang", {}), ("speech", {"replaces_trait": "LOCAL slang"}), ("speech", {"touches": ["local slang"]})],
)
def test_a_protected_trait_is_changed_by_no_request(ada: Agent, eve: User, name: str, answered: dict[str, Any]) -> None:
    configure(agent=ada, changes={"behavior_protected_traits": "Local Slang"})
    after = {**CONCISE, "name": name}
    request = proposed(ada, after=after, map_result={**after, **answered})

    with pytest.raises(BehaviorError, match="is protected"):
        apply_request(request=request, user=eve)
    assert traits_of(ada)["local slang"][2] == 0.6


def test_rejecting_keeps_the_persona_and_can_be_taken_back(ada: Agent, eve: User) -> None:
    request = reject_request(request=proposed(ada), user=eve, why="not her")

    assert (request.status, request.reviewed_by) == ("rejected", eve)
    assert request.why == "its confidence is medium\nrejected: not her"
    assert len(traits_of(ada)) == 2
    assert apply_request(request=request, user=eve).status == "applied"


@pytest.mark.parametrize(
    ("status", "refused"),
    [("pending_review", {"reverted", "tried again"}), ("detected", {"rejected", "reverted", "tried again"}),
     ("queued", {"applied", "rejected", "reverted", "tried again"}), ("failed", {"applied", "rejected", "reverted"})],
)  # fmt: skip
def test_a_decision_that_the_status_does_not_allow_is_refused(
    ada: Agent, eve: User, status: str, refused: set[str]
) -> None:
    decisions: dict[str, Any] = {"applied": apply_request, "rejected": reject_request, "reverted": revert_request}
    for verb in refused - {"tried again"}:
        with pytest.raises(BehaviorError, match=f"cannot be {verb}; allowed: one that is "):
            decisions[verb](request=proposed(ada, status=status), user=eve)
    if "tried again" in refused:
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


def test_a_request_that_is_gone_says_so(ada: Agent, eve: User) -> None:
    request = proposed(ada)
    BehaviorRequest.objects.all().delete()

    with pytest.raises(BehaviorError, match="is gone"):
        apply_request(request=request, user=eve)


def test_a_trait_changed_since_it_was_read_is_not_overwritten(ada: Agent) -> None:
    seen = Trait.objects.get(name="dry wit")
    Trait.objects.filter(pk=seen.pk).update(sentiment=-1)

    with pytest.raises(Conflict):
        write_trait(ada, seen, TraitValue("dry wit", "", 0.0, 0.0), "test")
    with pytest.raises(Conflict):
        write_trait(ada, seen, None)
    assert traits_of(ada)["dry wit"] == ("Jokes with a straight face.", -1.0, 0.7)


DRY_HALF = TraitValue("dry wit", "Jokes with a straight face.", 0.4, 0.5)
MORE_WIT: dict[str, Any] = {"name": "dry wit", "description": DRY_HALF.description, "sentiment": 0.4, "strength": 0.7}


@pytest.fixture
def ada_approving() -> Agent:
    return make_agent(traits=[DRY_HALF])


@pytest.mark.parametrize(
    ("since", "said"),
    [
        ({"strength": 0.9}, r"the trait 'dry wit' was changed: strength is 0\.9"),
        ({"name": "irony"}, "the trait 'dry wit' was deleted or renamed"),
    ],
    ids=str,
)
def test_what_was_proposed_for_another_trait_than_is_there_now_is_refused(
    ada_approving: Agent, eve: User, since: dict[str, Any], said: str
) -> None:
    request = proposed(ada_approving, after=MORE_WIT)
    Trait.objects.filter(agent=ada_approving).update(**since)
    now = Trait.objects.values().get()

    with pytest.raises(BehaviorError, match=said) as refused:
        apply_request(request=request, user=eve)

    assert "allowed: to edit it, then apply" in str(refused.value)
    assert Trait.objects.values().get() == now
    assert PersonaVersion.objects.count() == 1
    request.refresh_from_db()
    assert request.status == "pending_review"


@pytest.mark.parametrize(
    ("after", "replaces", "made", "reason"),
    [
        (CONCISE, None, "Concise Replies", "since it was proposed a trait 'Concise Replies' was made"),
        ({**MORE_WIT, "name": "irony"}, "dry wit", "Irony", "there is another trait 'Irony' by now"),
    ],
    ids=["for a new trait", "for a new name"],
)
def test_a_trait_made_since_is_not_overwritten(
    ada_approving: Agent, eve: User, after: dict[str, Any], replaces: str | None, made: str, reason: str
) -> None:
    request = proposed(ada_approving, after=after, map_result={**after, "replaces_trait": replaces})
    Trait.objects.create(agent=ada_approving, name=made, description="Somebody's own.")

    with pytest.raises(BehaviorError, match=reason):
        apply_request(request=request, user=eve)
    assert set(Trait.objects.values_list("name", "description")) == {
        ("dry wit", DRY_HALF.description),
        (made, "Somebody's own."),
    }


def test_what_was_erased_from_the_answer_comes_into_no_persona(ada_approving: Agent, eve: User) -> None:
    said = "Could you please be as concise as my neighbour Ferdinand is in his letters?"
    request = proposed(ada_approving, said, map_result={**CONCISE, "name": said, "description": said})

    call_command("forget", "--outsider", "Zoe", stdout=StringIO())
    request.refresh_from_db()
    assert request.map_result == {}
    apply_request(request=request, user=eve)

    assert Trait.objects.get(name="concise replies").description == CONCISE["description"]
    assert not Trait.objects.filter(description__contains="erased").exists()


def test_where_nothing_was_proposed_there_is_nothing_to_approve(ada_approving: Agent, eve: User) -> None:
    request = proposed(
        ada_approving, after={}, status=Status.DETECTED, map_result=CONCISE, why="the trait is like that already"
    )

    with pytest.raises(BehaviorError, match="nothing would change: the trait is like that already"):
        apply_request(request=request, user=eve)
    assert apply_request(request=request, user=eve, trait=TraitValue("brevity")).status == "applied"


WIT = TraitValue("dry wit", "Jokes with a\nstraight face. ", 0.1 + 0.2, 1 / 3)
LOUDER: dict[str, Any] = {"name": "Sarcasm", "description": "Says the opposite.", "sentiment": -0.5, "strength": 0.9}


@pytest.fixture
def ada_reverting() -> Agent:
    return make_agent(traits=[WIT, TraitValue("local slang", "Says arvo.", 0.8, 0.6)])


def update(agent: Agent, after: dict[str, Any] = LOUDER, *, of: str = "dry wit") -> BehaviorRequest:
    """An applied request that changed a trait."""
    request = proposed(agent, after=after, map_result={**after, "replaces_trait": of})
    return apply_request(request=request)


def wit() -> Trait:
    return Trait.objects.get(name="dry wit")


def test_the_trait_and_the_digest_are_exactly_what_they_were(ada_reverting: Agent, eve: User) -> None:
    row, digest = wit(), current_digest(ada_reverting)
    request = update(ada_reverting)
    assert Trait.objects.get(pk=row.pk).name == "Sarcasm"

    revert_request(request=request, user=eve)

    assert (request.status, request.reviewed_by) == ("reverted", eve)
    assert request.reverted_at is not None
    back = wit()
    assert back.pk == row.pk
    assert (back.description, back.sentiment, back.strength) == (WIT.description, WIT.sentiment, WIT.strength)
    assert current_digest(ada_reverting) == digest
    assert [v.note for v in PersonaVersion.objects.order_by("number")] == [
        "test", f"behaviour request {request.pk}", f"revert of behaviour request {request.pk}",
    ]  # fmt: skip


def test_changes_of_other_traits_and_of_the_prompt_stay(ada_reverting: Agent, eve: User) -> None:
    request = update(ada_reverting)
    later = update(ada_reverting, {**CONCISE, "name": "local slang"}, of="local slang")
    ada_reverting.system_prompt = "You are somebody quite different."
    save_persona(agent=ada_reverting, note="a person")

    revert_request(request=request, user=eve)

    assert wit().strength == WIT.strength
    assert Trait.objects.get(name="local slang").strength == CONCISE["strength"]
    assert Agent.objects.get().system_prompt == "You are somebody quite different."
    later.refresh_from_db()
    assert later.status == "applied"


@pytest.mark.parametrize(
    ("since", "said"),
    [
        ({"strength": 0.2}, r"'Sarcasm' was changed: strength is 0\.2 since"),
        ({"name": "irony"}, "name is 'irony'"),
        (None, "'Sarcasm' was deleted since"),
    ],
    ids=["changed", "renamed", "deleted"],
)
def test_a_trait_changed_since_is_asked_about_and_comes_back_when_wanted(
    ada_reverting: Agent, eve: User, since: dict[str, Any] | None, said: str
) -> None:
    request = update(ada_reverting)
    trait = Trait.objects.filter(name="Sarcasm")
    if since is None:
        trait.delete()
        request.refresh_from_db()
    else:
        trait.update(**since)

    with pytest.raises(TraitChangedSince, match=said):
        revert_request(request=request, user=eve)
    assert not Trait.objects.filter(name="dry wit").exists()

    revert_request(request=request, user=eve, anyway=True)
    assert set(Trait.objects.values_list("name", flat=True)) == {"dry wit", "local slang"}
    assert (wit().description, wit().sentiment, wit().strength) == (WIT.description, WIT.sentiment, WIT.strength)


def test_who_changed_the_trait_since_is_named(ada_reverting: Agent, eve: User) -> None:
    request = update(ada_reverting)
    later = update(ada_reverting, {**LOUDER, "strength": 0.2}, of="Sarcasm")

    with pytest.raises(TraitChangedSince, match=rf"by behaviour request {later.pk}"):
        revert_request(request=request, user=eve)


def test_a_new_trait_that_is_gone_already_needs_no_question(ada_reverting: Agent, eve: User) -> None:
    request = apply_request(request=proposed(ada_reverting))
    Trait.objects.filter(name=CONCISE["name"]).delete()
    versions = PersonaVersion.objects.count()

    assert revert_request(request=request, user=eve).status == "reverted"
    assert PersonaVersion.objects.count() == versions


def test_a_name_taken_by_another_trait_stays_with_it(ada_reverting: Agent, eve: User) -> None:
    request = update(ada_reverting)
    Trait.objects.create(agent=ada_reverting, name="DRY WIT", description="a new one")

    with pytest.raises(BehaviorError, match="another trait has that name by now") as refused:
        revert_request(request=request, user=eve, anyway=True)
    assert not isinstance(refused.value, TraitChangedSince)
    assert Trait.objects.get(name="DRY WIT").description == "a new one"


def test_it_is_taken_back_once(ada_reverting: Agent, eve: User) -> None:
    request = update(ada_reverting)
    stale = BehaviorRequest.objects.get(pk=request.pk)
    revert_request(request=request, user=eve)

    for again in (stale, request):
        with pytest.raises(BehaviorError, match=r"\(reverted\) cannot be reverted; allowed: one that is applied"):
            revert_request(request=again, user=eve)
        with pytest.raises(BehaviorError, match=r"\(reverted\) cannot be applied"):
            apply_request(request=again, user=eve)


OWNER = "host:1:test"


@pytest.fixture
def ada_settling() -> Agent:
    return make_agent(traits=[TraitValue("dry wit", "Jokes with a straight face.", 0.4, 0.7)])


def running(agent: Agent, text: str = "Be brief, please.", **fields: Any) -> BehaviorRequest:
    """A request whose tiers have answered, in a worker's hands; Zoe, who may edit personas, wrote it in a direct message."""
    known = {"status": Status.RUNNING, "lease_owner": OWNER, "confidence": "high", "why": "", **fields}
    request = proposed(agent, text, **known)
    zoe = User.objects.get_or_create(username="zoe", defaults={"is_superuser": True})[0]
    Message.objects.filter(behavior_requests=request).update(user=zoe, outsider="")
    return request


def settled(request: BehaviorRequest, **options: Any) -> BehaviorRequest:
    assert settle_request(request=request, owner=OWNER, **options)
    return request


@pytest.mark.parametrize(
    ("setting", "fields", "why"),
    [
        ({}, {"map_result": {}}, "no change is needed"),
        ({}, {"map_result": {"name": 7}}, "the answer cannot be used: name: expected a text, got 7"),
        ({"behavior_protected_traits": "Concise Replies"}, {}, "is protected"),
        ({"behavior_requesters": "named", "behavior_named_requesters": "ann"}, {}, "'zoe' is not among those"),
    ],
)
def test_what_comes_to_nothing_is_kept_with_the_reason(
    ada_settling: Agent, setting: dict[str, Any], fields: dict[str, Any], why: str
) -> None:
    configure(agent=ada_settling, changes=setting)

    request = settled(running(ada_settling, **fields))

    assert request.status == "detected"
    assert why in request.why
    assert Trait.objects.count() == 1
    assert PersonaVersion.objects.count() == 1


def test_the_limit_of_a_day_counts_what_was_applied_by_itself(ada_settling: Agent) -> None:
    configure(agent=ada_settling, changes={"behavior_daily_limit": 2})
    statuses = [settled(running(ada_settling, after={**CONCISE, "name": f"trait {n}"})).status for n in range(3)]
    assert statuses == ["applied", "applied", "pending_review"]

    first = BehaviorRequest.objects.earliest("pk")
    revert_request(request=first, user=None)
    assert count_applied_today(ada_settling.pk) == 2, "taking it back does not make room"

    BehaviorRequest.objects.filter(pk=first.pk).update(applied_at=timezone.now() - timedelta(days=1))
    assert settled(running(ada_settling, after={**CONCISE, "name": "tomorrow"})).status == "applied"
    assert settled(running(make_agent("bob"))).status == "applied", "each agent has a limit of its own"


def test_a_claim_that_was_lost_changes_nothing(ada_settling: Agent) -> None:
    request = running(ada_settling)
    BehaviorRequest.objects.update(lease_owner="host:2:other")

    assert settled(request).status == "running"
    assert Trait.objects.count() == 1


def test_what_was_switched_off_meanwhile_is_not_done(ada_settling: Agent) -> None:
    configure(agent=ada_settling, changes={"behavior_requests_enabled": False})

    assert settled(running(ada_settling)).status == "cancelled"


@pytest.mark.parametrize("what", ["message", "agent"])
def test_what_is_gone_is_not_asked_for_any_more(ada_settling: Agent, what: str) -> None:
    request = running(ada_settling)
    if what == "message":
        Message.objects.all().delete()
    else:
        ada_settling.delete()
    request.refresh_from_db()

    assert settled(request).status == "cancelled"
    assert request.error == f"the {what} was deleted before the request was decided"
