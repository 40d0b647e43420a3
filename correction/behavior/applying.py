"""Deciding about behaviour requests: applied, held for a person, rejected, taken back exactly, tried again.

Every decision is one short transaction that ends in a conditional UPDATE of the request, so that two people, or a person and a worker,
never both decide.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import transaction
from django.utils import timezone

from agents.models import Agent
from agents.persona import TraitValue, record_version
from agents.work.queues import wake_workers
from correction.behavior import reverting
from correction.behavior.description import queue_description
from correction.behavior.errors import BehaviorError, TraitChangedSince
from correction.behavior.policy import protected
from correction.behavior.proposing import as_proposed
from correction.behavior.rules import Change, change_to, find_trait, trait_json
from correction.behavior.writing import (
    Overtaken,
    StillOvertaken,
    in_one_go,
    locked_agent,
    version_before,
    write_trait,
)  # fmt: skip
from correction.config.resolve import resolve_config
from correction.models import BehaviorRequest

__all__ = [
    "BehaviorError",
    "TraitChangedSince",
    "apply_request",
    "change_of",
    "reject_request",
    "retry_request",
    "revert_request",
]

Status = BehaviorRequest.Status
User = AbstractBaseUser | AnonymousUser | None
TO_DECIDE = (Status.PENDING_REVIEW, Status.DETECTED)
APPLICABLE = (*TO_DECIDE, Status.REJECTED)  # a rejection can be thought better of
RETRIABLE = (Status.FAILED, Status.ERRORED, Status.CANCELLED, Status.PAUSED_BUDGET)


def apply_request(
    *, request: BehaviorRequest, user: User = None, trait: TraitValue | None = None, waiting: bool = False
) -> BehaviorRequest:
    """A person has the change made: exactly as it was proposed, or as they wrote it. Other traits stay as they are.

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
    """A person says no. The persona stays as it is.

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
        user: Who takes it back.
        anyway: Also when the same trait was changed since, which is lost then.

    Raises:
        TraitChangedSince: It was, and `anyway` is not given; says what changed.
        BehaviorError: It was not applied, the agent is gone, or another trait has the name by now.
    """

    def work() -> None:
        agent, row = _to_decide(request, "reverted", (Status.APPLIED,))
        reverting.restore(agent, row, _account(user), anyway=anyway)
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
        raise Overtaken(f"{row} was decided by somebody else")


def _carry_out(request: BehaviorRequest, work: Any) -> None:
    try:
        in_one_go(work)
    except StillOvertaken:
        raise BehaviorError(
            f"behaviour request {request.pk}: the persona was changed by others at the same time, or has another trait of that name; "
            "allowed: to try again, or another name"
        ) from None
    request.refresh_from_db()


def _pk(user: User) -> int | None:
    return user.pk if user is not None else None


def _account(user: User) -> AbstractBaseUser | None:
    return user if isinstance(user, AbstractBaseUser) else None
