"""Decide about behaviour requests: apply, reject, revert or retry them, and settle what a worker has read.

Every decision is one short transaction that ends in a conditional UPDATE of the request, so that two people, or a person and a worker,
never both decide. What is applied is exactly the proposal that was shown. Reverting makes the trait exactly what it was.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from agents.models import Agent, Message, PersonaVersion, Trait
from agents.persona import TraitLike, TraitValue, current_digest, record_version
from agents.work.queues import wake_workers
from correction.behavior.description import queue_description
from correction.behavior.rules import (
    STOP,
    Change,
    Operation,
    applied_today,
    as_value,
    change_to,
    decide,
    find_trait,
    made_by_requests,
    name_key,
    protected,
    read_map,
    requester_of,
    trait_from_json,
    trait_json,
)
from correction.config.settings import resolve_config
from correction.models import BehaviorRequest


class BehaviorError(ValueError):
    """A decision that is not possible; names what is allowed. Nothing was changed."""


class TraitChangedSince(BehaviorError):
    """The trait is not what the request made of it: taking it back would lose what came after."""


TRIES = 5
logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class Conflict(Exception):
    """Another writer changed the same row after it was read."""


class TooManyConflicts(Exception):
    """Every try met a conflict."""


def in_transaction(work: Callable[[], Result]) -> Result:
    """Do the work in a transaction; start again when another writer changed the same row.

    Raises:
        TooManyConflicts: Each of five tries met another writer, or a rule of the database speaks against it.
    """
    for number in range(TRIES):
        try:
            with transaction.atomic():
                return work()
        except (IntegrityError, Conflict) as error:
            logger.info("try %d of %d at a trait: %s", number + 1, TRIES, type(error).__name__)  # its text quotes names
    raise TooManyConflicts


def locked_agent(pk: int | None) -> Agent | None:
    """The agent, so that changes of its persona wait for each other; on SQLite transactions do so anyway."""
    return Agent.objects.select_for_update(no_key=True).order_by().filter(pk=pk).first() if pk is not None else None


def version_before(agent: Agent, note: str) -> PersonaVersion | None:
    """The version the persona is at; one is made when nobody kept what it is now."""
    latest = PersonaVersion.objects.filter(agent=agent).order_by("-number").first()
    if latest is not None and latest.digest == current_digest(agent):
        return latest
    return record_version(agent=agent, note=note) or latest


def write_trait(agent: Agent, row: Trait | None, after: TraitValue, source: str) -> Trait:
    """Make the trait, or change it if it still is what `row` says; the others stay as they are.

    Raises:
        Conflict: It is not.
        IntegrityError: Another trait of the agent has that name to the database.
    """
    values = trait_json(after)
    if row is None:
        return Trait.objects.create(agent=agent, source=source[:64], **values)
    if not _as_seen(row).update(**values, updated_at=timezone.now()):
        raise Conflict(f"trait {row.pk} was changed")
    row.refresh_from_db()
    return row


def delete_trait(row: Trait) -> None:
    """Delete the trait if it still is what `row` says.

    Raises:
        Conflict: It is not.
    """
    if not _as_seen(row).delete()[0]:
        raise Conflict(f"trait {row.pk} was changed")


def _as_seen(row: Trait) -> QuerySet[Trait]:
    return Trait.objects.filter(
        pk=row.pk, name=row.name, description=row.description, sentiment=row.sentiment, strength=row.strength
    )


INSTEAD = "allowed: to edit it, then apply, or to reject it"


def as_proposed(row: BehaviorRequest, traits: Sequence[TraitLike]) -> Change:
    """The change that was shown.

    Args:
        row: What was read from the message, and proposed.
        traits: As they are now.

    Raises:
        BehaviorError: The trait was changed, deleted or made since; says how. What was shown is not what would be done.
    """
    if not row.trait_after:
        return Change(operation="none", why=row.why or "nothing was proposed")
    before = trait_from_json(row.trait_before) if row.trait_before else None
    after = trait_from_json(row.trait_after)
    known = find_trait(before.name if before is not None else after.name, traits)
    now = as_value(known) if known is not None else None
    if now == after:
        return Change(operation="none", why=f"the trait {after.name!r} is like that already")
    if now != before:
        raise BehaviorError(f"{row}: since it was proposed {_what_happened(before, now)}; {INSTEAD}")
    namesake = find_trait(after.name, traits)
    if namesake is not None and namesake is not known:
        raise BehaviorError(f"{row}: there is another trait {namesake.name!r} by now; {INSTEAD}")
    operation: Operation = "stop" if after.strength == STOP else "update" if before is not None else "add"
    return Change(operation=operation, before=before, after=after, touches=_touched(row, before))


def _touched(row: BehaviorRequest, before: TraitValue | None) -> tuple[str, ...]:
    """The names the answer spoke of; what was erased is none of a trait."""
    answer: Mapping[str, Any] = row.map_result if isinstance(row.map_result, dict) else {}
    said = [answer.get("replaces_trait"), *(answer.get("touches") or ())]
    names = [before.name] if before is not None else []
    return tuple(dict.fromkeys([*names, *(name for name in said if isinstance(name, str) and name)]))


def _what_happened(before: TraitValue | None, now: TraitValue | None) -> str:
    if before is None:
        return f"a trait {now.name!r} was made" if now is not None else ""
    if now is None:
        return f"the trait {before.name!r} was deleted or renamed"
    return f"the trait {before.name!r} was changed: {_differences(before, now)}"


def _differences(was: TraitValue | None, now: TraitValue) -> str:
    """``strength is 0.7, name is 'puns'``: the fields that are different, as they are now."""
    old = trait_json(was) if was is not None else {}
    return ", ".join(f"{name} is {value!r}" for name, value in trait_json(now).items() if old.get(name) != value)


Status = BehaviorRequest.Status
User = AbstractBaseUser | AnonymousUser | None
TO_DECIDE = (Status.PENDING_REVIEW, Status.DETECTED)
APPLICABLE = (*TO_DECIDE, Status.REJECTED)  # a rejection can be thought better of
RETRIABLE = (Status.FAILED, Status.ERRORED, Status.CANCELLED, Status.PAUSED_BUDGET)


def apply_request(
    *, request: BehaviorRequest, user: User = None, trait: TraitValue | None = None, waiting: bool = False
) -> BehaviorRequest:
    """Apply the change as a person decided: exactly as proposed, or as they wrote it. Other traits stay as they are.

    Args:
        request: One that waits for a person, was dropped, or was rejected.
        user: Who decides.
        trait: The trait as it is to be instead; its name may be a new one.
        waiting: Only if it waits for a person; not what was dropped or rejected.

    Raises:
        BehaviorError: It is decided already, the agent is gone, the trait is protected or was changed since it was proposed, or
            nothing would change.
    """

    allowed = (Status.PENDING_REVIEW,) if waiting else APPLICABLE

    def work() -> None:
        agent, row = _to_decide(request, "applied", allowed)
        change = change_of(row, agent.traits.all(), trait)
        if change.after is None:
            raise BehaviorError(f"{row}: nothing would change: {change.why}; allowed: another wording, or to reject it")
        touched = protected((*change.touches, change.after.name), resolve_config(agent))
        if touched:
            raise BehaviorError(
                f"{row}: the trait {touched[0]!r} is protected (behavior_protected_traits), and no message can change it; allowed: to "
                "edit the trait itself"
            )
        made = make_change(agent, row, change, user)
        _decided(row, allowed, **made, reviewed_by_id=_pk(user), reviewed_at=timezone.now())

    _carry_out(request, work)
    return request


def reject_request(*, request: BehaviorRequest, user: User, why: str = "") -> BehaviorRequest:
    """Close a request without a change, as a person decided.

    Raises:
        BehaviorError: It does not wait for a person; one that was applied is reverted instead.
    """

    def work() -> None:
        row = _fresh(request, "rejected", (Status.PENDING_REVIEW,))
        said = f"rejected: {why.strip()}" if why.strip() else ""
        _decided(
            row, (Status.PENDING_REVIEW,), status=Status.REJECTED, why="\n".join(filter(None, (row.why, said))),
            reviewed_by_id=_pk(user), reviewed_at=timezone.now(),
        )  # fmt: skip

    _carry_out(request, work)
    return request


def revert_request(*, request: BehaviorRequest, user: User, anyway: bool = False) -> BehaviorRequest:
    """Make the trait exactly what it was before the request was applied; a new one goes again. Other traits and the prompt stay.

    Args:
        request: One that was applied.
        user: Who reverts it.
        anyway: Also when the same trait was changed since, which is lost then.

    Raises:
        TraitChangedSince: It was, and `anyway` is not given; says what changed.
        BehaviorError: It was not applied, the agent is gone, or another trait has the name by now.
    """

    def work() -> None:
        agent, row = _to_decide(request, "reverted", (Status.APPLIED,))
        restore(agent, row, _account(user), anyway=anyway)
        now = timezone.now()
        _decided(
            row, (Status.APPLIED,), status=Status.REVERTED, reverted_at=now, reviewed_at=now, reviewed_by_id=_pk(user)
        )

    _carry_out(request, work)
    return request


def retry_request(*, request: BehaviorRequest) -> BehaviorRequest:
    """Queue it again: it goes on at the tier it was at.

    Raises:
        BehaviorError: It did not fail.
    """

    def work() -> None:
        row = _fresh(request, "tried again", RETRIABLE)
        _decided(
            row, RETRIABLE, status=Status.QUEUED, error="", finished_at=None, attempt=0, lease_expires_at=None
        )  # all tries anew
        transaction.on_commit(wake_workers)

    _carry_out(request, work)
    return request


def change_of(row: BehaviorRequest, traits: Any, trait: TraitValue | None = None) -> Change:
    """What the request would do to the traits as they are now: what was proposed, or a person's wording of it.

    Raises:
        BehaviorError: The wording is not allowed (says what is), or the trait is not what the proposal was made for.
    """
    rows = list(traits)
    if trait is None:
        return as_proposed(row, rows)
    before = row.trait_before["name"] if row.trait_before else ""
    replaced = find_trait(before, rows) if before else None
    try:
        return change_to(trait, replaces=replaced.name if replaced is not None else "", traits=rows)
    except ValueError as error:
        raise BehaviorError(f"{row}: {error}") from None


def make_change(agent: Agent, row: BehaviorRequest, change: Change, user: User) -> dict[str, Any]:
    """Write the trait and the version; the columns of a request that is applied. In the caller's transaction, the agent locked."""
    assert change.after is not None  # noqa: S101 (for the type checker)
    note = f"behaviour request {row.pk}"
    before = version_before(agent, f"as {note} found it")
    known = find_trait(change.before.name, agent.traits.all()) if change.before is not None else None
    trait = write_trait(agent, known, change.after, note)
    version = record_version(agent=agent, note=note, user=_account(user))
    if version is not None:
        queue_description(agent=agent, version=version)
    return {
        **proposal(change),
        "warnings": list(dict.fromkeys((*row.warnings, *change.warnings))),
        "status": Status.APPLIED,
        "trait_id": trait.pk,
        "persona_version_before_id": before.pk if before is not None else None,
        "persona_version_id": version.pk if version is not None else None,
        "applied_at": timezone.now(),
        "finished_at": timezone.now(),
        "error": "",
    }


def proposal(change: Change) -> dict[str, Any]:
    """The columns that say what a request does, or would do."""
    return {
        "operation": change.operation,
        "trait_name": change.after.name if change.after is not None else "",
        "trait_before": trait_json(change.before) if change.before is not None else None,
        "trait_after": trait_json(change.after) if change.after is not None else None,
        "warnings": list(change.warnings),
    }


def _to_decide(request: BehaviorRequest, verb: str, allowed: tuple[str, ...]) -> tuple[Agent, BehaviorRequest]:
    """The agent, locked, and the request as it is now."""
    agent = locked_agent(request.agent_id)
    row = _fresh(request, verb, allowed)
    if agent is None or row.agent_id != agent.pk:
        raise BehaviorError(f"{row} cannot be {verb}: its agent was deleted; allowed: to leave it as it is")
    return agent, row


def _fresh(request: BehaviorRequest, verb: str, allowed: tuple[str, ...]) -> BehaviorRequest:
    row: BehaviorRequest | None = BehaviorRequest.objects.filter(pk=request.pk).first()
    if row is None:
        raise BehaviorError(f"behaviour request {request.pk} is gone: it cannot be {verb}")
    if row.status not in allowed:
        raise BehaviorError(
            f"{row} cannot be {verb}; allowed: one that is {' or '.join(Status(s).label for s in allowed)}"
        )
    return row


def _decided(row: BehaviorRequest, expected: tuple[str, ...], **values: Any) -> None:
    if not BehaviorRequest.objects.filter(pk=row.pk, status__in=expected).update(**values):
        raise Conflict(f"another writer decided {row}")


def _carry_out(request: BehaviorRequest, work: Any) -> None:
    try:
        in_transaction(work)
    except TooManyConflicts:
        raise BehaviorError(
            f"behaviour request {request.pk}: the persona was changed by others at the same time, or has another trait of that name; "
            "allowed: to try again, or another name"
        ) from None
    request.refresh_from_db()


def _pk(user: User) -> int | None:
    return user.pk if user is not None else None


def _account(user: User) -> AbstractBaseUser | None:
    return user if isinstance(user, AbstractBaseUser) else None


def restore(agent: Agent, row: BehaviorRequest, user: AbstractBaseUser | None, *, anyway: bool) -> None:
    """Undo an applied request, in the caller's transaction and with the agent locked.

    Raises:
        TraitChangedSince: The same trait was changed or deleted since, and `anyway` is false.
        BehaviorError: Another trait has the name that this one had before.
    """
    before = trait_from_json(row.trait_before) if row.trait_before else None
    made = trait_from_json(row.trait_after) if row.trait_after else None
    traits = list(agent.traits.all())
    trait = next((t for t in traits if t.pk == row.trait_id), None)
    if trait is None and made is not None:
        trait = find_trait(made.name, traits)
    now = as_value(trait) if trait is not None else None
    later = _later(row)
    if now == before and not later:
        return
    if (now != made or later) and not anyway:
        raise TraitChangedSince(_changed(row, now, made, later))
    if now == before:
        return
    if (undone := _reverted_below(row)) and not anyway:
        raise TraitChangedSince(
            f"{row}: what the trait was before came of behaviour request {undone}, which was reverted since; allowed: to revert this one "
            "anyway, by which the trait becomes that again, or to edit the trait itself"
        )
    if before is None:
        assert trait is not None  # noqa: S101 (it is not as before: there is one)
        delete_trait(trait)
    else:
        _check_name(row, before, trait, traits)
        write_trait(agent, trait, before, f"behaviour request {row.pk}")
    version = record_version(agent=agent, note=f"revert of behaviour request {row.pk}", user=user)
    if version is not None:
        queue_description(agent=agent, version=version)


def _check_name(row: BehaviorRequest, before: TraitValue, trait: Trait | None, traits: list[Trait]) -> None:
    mine = trait.pk if trait is not None else None
    taken = next((t for t in traits if t.pk != mine and name_key(t.name) == name_key(before.name)), None)
    if taken is not None:
        raise BehaviorError(
            f"{row}: its trait was called {before.name!r} before, and another trait has that name by now; allowed: to rename or delete "
            "that one first"
        )


def _later(row: BehaviorRequest) -> int | None:
    """The last request that was applied to the same trait after this one, and still is."""
    found: int | None = (
        BehaviorRequest.objects.filter(
            agent=row.agent_id, trait=row.trait_id, trait__isnull=False, status=BehaviorRequest.Status.APPLIED,
            applied_at__gt=row.applied_at,
        )
        .order_by("-applied_at")
        .values_list("pk", flat=True)
        .first()
    )  # fmt: skip
    return found


def _reverted_below(row: BehaviorRequest) -> int | None:
    """A request whose result this one changed, and that was reverted while this one stood."""
    reverted = BehaviorRequest.objects.filter(
        agent=row.agent_id, trait=row.trait_id, trait__isnull=False, status=BehaviorRequest.Status.REVERTED,
        applied_at__lt=row.applied_at, reverted_at__gt=row.applied_at,
    ).order_by("-applied_at")  # fmt: skip
    return next((pk for pk, after in reverted.values_list("pk", "trait_after") if after == row.trait_before), None)


def _changed(row: BehaviorRequest, now: TraitValue | None, made: TraitValue | None, later: int | None) -> str:
    """What is different, and who did it where that is known."""
    name = made.name if made is not None else row.trait_name
    by = f" (by behaviour request {later}, which can be reverted first)" if later else ""
    if now is None:
        what = "was deleted"
    else:
        different = _differences(made, now)
        what = f"was changed: {different}" if different else "was changed, and is as this request made it again,"
    return (
        f"{row}: the trait {name!r} {what} since{by}; allowed: to revert it anyway, by which the trait becomes what it was before this "
        "request"
    )


_ENDED = {"lease_owner": "", "lease_expires_at": None, "deaths": 0}
CHANGED_MEANWHILE = "the persona was changed while the request was read"


def settle_request(*, request: BehaviorRequest, owner: str, again: bool = True, warnings: Sequence[str] = ()) -> bool:
    """Decide about a request whose tiers have answered (`map_result` is there), and do it: applied, pending review or detected.

    One short transaction; the agent is locked, so that requests of the same agent wait for each other, and the limit of a day is
    counted right.

    Args:
        request: Running, and claimed by `owner`.
        owner: Who holds the claim. When it was lost, nothing is done.
        again: Whether the map tier can be asked once more.
        warnings: What was odd about the message or the answers of the tiers before, kept with the request.

    Returns:
        False when the persona is another than the map tier was shown (`map_digest`) and `again` allows for asking it once more: then
        `map_result` and `map_digest` are empty again. Else True.
    """
    try:
        settled = in_transaction(lambda: _settle(request, owner, again, warnings))
    except TooManyConflicts:
        why = f"{CHANGED_MEANWHILE}, or has another trait of that name"
        change = read_map(request.map_result, traits=list(Trait.objects.filter(agent=request.agent_id)))
        with contextlib.suppress(Conflict):
            _finish(request, owner, status=Status.PENDING_REVIEW, why=why, **_said(change, warnings))
        settled = True
    request.refresh_from_db()
    return settled


def _settle(request: BehaviorRequest, owner: str, again: bool, warnings: Sequence[str]) -> bool:
    agent = locked_agent(request.agent_id)
    row = BehaviorRequest.objects.filter(pk=request.pk, status=Status.RUNNING, lease_owner=owner).first()
    if row is None:
        return True  # somebody else's by now
    message = Message.objects.select_related("user", "channel").filter(pk=row.message_id).first()
    if agent is None or message is None:
        gone = "agent" if agent is None else "message"
        return _finish(
            row, owner, status=Status.CANCELLED, error=f"the {gone} was deleted before the request was decided"
        )
    is_other = bool(row.map_digest) and row.map_digest != current_digest(agent)
    if is_other and again:
        BehaviorRequest.objects.filter(pk=row.pk, lease_owner=owner).update(map_result=None, map_digest="")
        return False
    config = resolve_config(agent)
    if not config["behavior_requests_enabled"]:
        return _finish(row, owner, status=Status.CANCELLED, error="behaviour requests were switched off meanwhile")
    change = read_map(row.map_result, traits=list(agent.traits.all()))
    confidence = row.confidence or str((row.gate_result or {}).get("confidence", ""))
    decision = decide(
        change=change,
        confidence=confidence,
        text=message.text,
        requester=requester_of(message),
        config=config,
        applied_today=applied_today(agent.pk),
        made=made_by_requests(agent.pk),
    )
    if decision.verdict == "drop":
        return _finish(row, owner, status=Status.DETECTED, why="\n".join(decision.reasons), **_said(change, warnings))
    if decision.verdict == "review" or is_other:
        reasons = (*decision.reasons, *((CHANGED_MEANWHILE,) if is_other else ()))
        return _finish(row, owner, status=Status.PENDING_REVIEW, why="\n".join(reasons), **_said(change, warnings))
    made = {**make_change(agent, row, change, None), **_said(change, warnings)}
    return _finish(row, owner, automatic=True, why="", **made)


def _said(change: Change, warnings: Sequence[str]) -> dict[str, Any]:
    return {**proposal(change), "warnings": [*warnings, *change.warnings]}


def _finish(row: BehaviorRequest, owner: str, **values: Any) -> bool:
    """End the worker's part; True. The claim may have been lost meanwhile: then the whole transaction is undone."""
    mine = BehaviorRequest.objects.filter(pk=row.pk, status=Status.RUNNING, lease_owner=owner)
    if not mine.update(**{"finished_at": timezone.now(), **_ENDED, **values}):
        raise Conflict(f"{row} is no longer {owner}'s")
    return True


def origins_of(versions: Collection[int]) -> Mapping[int, str]:
    """``behaviour request 12 by anna`` by the version's key, as long as it is known who asked; the name is read from the message."""
    made = BehaviorRequest.objects.filter(persona_version__in=versions).select_related("message__user")
    found: dict[int, str] = {}
    for request in made:
        message = request.message
        who = message.author_name if message is not None else ""
        if request.persona_version_id is not None:
            found[request.persona_version_id] = f"behaviour request {request.pk}{f' by {who}' if who else ''}"
    return found
