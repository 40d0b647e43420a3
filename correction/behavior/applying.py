"""Decide about behaviour requests: apply, reject, revert or retry them, and settle those that a worker has read.

Every decision is one short transaction that ends in a conditional UPDATE of the request, so that two people, or a person and a worker,
never both decide. A proposal whose persona was changed since is mapped again, before that transaction: what is applied is the request,
read against the persona of now. Reverting makes the trait exactly what it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import IntegrityError, transaction
from django.utils import timezone

from agents.kit.llm.endpoints import model_of
from agents.kit.work.queues import wake_workers
from agents.models import Agent, Message, PersonaVersion, Trait
from agents.personas.persona import TraitLike, TraitValue, current_digest, persona_digest, record_version
from agents.turn.receive import text_addressed_to
from correction.behavior.description import queue_description
from correction.behavior.models import BehaviorRequest
from correction.behavior.own_words import own_words
from correction.behavior.policy import (
    count_applied_today,
    count_traits_made,
    decide,
    doubts_about,
    protected_names,
    requester_of,
)
from correction.behavior.scope import key_of, later_change, traits_in
from correction.behavior.signs import name_key
from correction.behavior.tiers import ask, context_of, subject_of
from correction.behavior.trait_change import (
    Change,
    as_value,
    change_to,
    find_trait,
    operation_of,
    read_map,
    stored_trait,
)
from correction.config.settings import resolve_config
from correction.costs import evaluation_over_budget

Status = BehaviorRequest.Status
User = AbstractBaseUser | AnonymousUser | None
APPLICABLE = (Status.PENDING_REVIEW, Status.DETECTED, Status.REJECTED)  # a rejection can be thought better of
RETRIABLE = (Status.FAILED, Status.ERRORED, Status.CANCELLED, Status.PAUSED_BUDGET)
CHANGED_MEANWHILE = "the persona was changed while the request was read"
EDIT_OR_REJECT = "allowed: to edit it, then apply, or to reject it"
MAPPED_AGAIN = "mapped again when it was applied: the persona was changed since it was proposed"
LONGEST_WAIT = 20.0  # seconds that a person who applies a request waits for the map tier


class BehaviorError(ValueError):
    """A decision that is not possible; names what is allowed. Nothing was changed."""


class TraitChangedSince(BehaviorError):
    """The trait is not what the request made of it: reverting would lose what came after."""


class Conflict(Exception):
    """Another writer changed the same row after it was read."""


def apply_request(
    *,
    request: BehaviorRequest,
    user: User = None,
    trait: TraitValue | Mapping[str, Any] | None = None,
    waiting: bool = False,
) -> BehaviorRequest:
    """Apply the change as a person decided: as proposed, or as they wrote it. Other traits stay as they are.

    Where the persona was changed since it was proposed, the map tier is asked again first, for at most `LONGEST_WAIT` seconds; not where
    the person names the trait, for then they say which it is. No transaction may be open.

    Args:
        trait: The trait as it is to be instead, or some of its fields: what is left out is as proposed. The name may be a new one.
            None: as proposed.
        waiting: True: only a request that waits for a person; not one that was dropped or rejected.

    Raises:
        BehaviorError: It is decided already, the agent is gone, the trait is protected or was changed since it was proposed,
            nothing would change, or mapping it again failed or brought a doubt that the person has not seen.
    """
    allowed = (Status.PENDING_REVIEW,) if waiting else APPLICABLE
    edits = asdict(trait) if isinstance(trait, TraitValue) else dict(trait or {})
    if "name" not in edits:  # outside of the transaction, as a model may be asked
        _map_again_if_persona_changed(_reread_with_status(request, "applied", allowed), allowed)

    def apply_locked() -> None:
        agent, row = _lock_agent_and_reread(request, "applied", allowed)
        change = _change_of(row, traits_in(agent, row.scope_key), edits)
        if change.after is None:
            raise BehaviorError(f"{row}: nothing would change: {change.why}; allowed: another wording, or to reject it")
        touched = protected_names((*change.touches, change.after.name), resolve_config(agent))
        if touched:
            raise BehaviorError(
                f"{row}: the trait {touched[0]!r} is protected (behavior_protected_traits), and no message can change it; allowed: to "
                "edit the trait itself"
            )
        columns = _write_change(agent, row, change, user)
        columns["warnings"] = list(dict.fromkeys((*row.warnings, *change.warnings)))
        _store_decision(row, allowed, user, columns)

    return _in_transaction(request, apply_locked)


def reject_request(*, request: BehaviorRequest, user: User, why: str = "") -> BehaviorRequest:
    """Close a request without a change, as a person decided; return it as it is then.

    Args:
        why: Added to the reasons that are stored with the request; empty: none is added.

    Raises:
        BehaviorError: It does not wait for a person (one that was applied is reverted instead), or another writer decided it meanwhile.
    """

    def work() -> None:
        row = _reread_with_status(request, "rejected", (Status.PENDING_REVIEW,))
        reasons = [row.why, f"rejected: {why.strip()}" if why.strip() else ""]
        columns = {"status": Status.REJECTED, "why": "\n".join(reason for reason in reasons if reason)}
        _store_decision(row, (Status.PENDING_REVIEW,), user, columns)

    return _in_transaction(request, work)


def reopen_request(*, request: BehaviorRequest, user: User) -> BehaviorRequest:
    """Take a rejection back: it waits for a person again. Return it as it is then.

    Raises:
        BehaviorError: It is not rejected, or another writer decided it meanwhile.
    """

    def work() -> None:
        row = _reread_with_status(request, "opened again", (Status.REJECTED,))
        _store_decision(row, (Status.REJECTED,), user, {"status": Status.PENDING_REVIEW})

    return _in_transaction(request, work)


def revert_request(*, request: BehaviorRequest, user: User, anyway: bool = False) -> BehaviorRequest:
    """Make the trait exactly what it was before the request was applied, or delete a new one. Other traits and the prompt stay.

    What holds in one channel or towards one person alone has no trait of its own: it ends with the request's status.

    Args:
        anyway: Also when the same trait was changed since, which is lost then.

    Raises:
        TraitChangedSince: It was, and `anyway` is not given; says what changed.
        BehaviorError: It was not applied, the agent is gone, another trait has the name by now, a later request changed the same trait
            in a narrower scope, or another writer was faster.
    """

    def work() -> None:
        agent, row = _lock_agent_and_reread(request, "reverted", (Status.APPLIED,))
        _restore_trait(agent, row, user, anyway=anyway)
        columns = {"status": Status.REVERTED, "reverted_at": timezone.now()}
        _store_decision(row, (Status.APPLIED,), user, columns)

    return _in_transaction(request, work)


def retry_request(*, request: BehaviorRequest) -> BehaviorRequest:
    """Queue a request again, with all its tries; return it as it is then. The answers of tiers are kept: it resumes at the next one.

    Raises:
        BehaviorError: It neither failed nor was cancelled nor waits for a budget, or another writer decided it meanwhile.
    """

    def work() -> None:
        row = _reread_with_status(request, "tried again", RETRIABLE)
        rows = BehaviorRequest.objects.filter(pk=row.pk, status__in=RETRIABLE)
        if not rows.update(status=Status.QUEUED, error="", finished_at=None, attempt=0, lease_expires_at=None):
            raise Conflict(f"another writer decided {row}")
        transaction.on_commit(wake_workers)

    return _in_transaction(request, work)


def settle_request(*, request: BehaviorRequest, owner: str, again: bool = True, warnings: Sequence[str] = ()) -> bool:
    """Decide about a request whose tiers have answered (`map_result` is there), and do it: applied, pending review or detected.

    One short transaction; the agent is locked, so that requests of the same agent wait for each other, and the limit of a day is
    counted right.

    Args:
        owner: Of the lease. When it was lost, nothing is done.
        again: Whether the map tier can be asked once more.
        warnings: What was odd about the message or the answers of the tiers before, stored with the request.

    Returns:
        False when the persona is another than the map tier was shown (`map_digest`) and `again` allows for asking it once more: then
        `map_result` and `map_digest` are empty again. Else True.
    """

    try:
        with transaction.atomic():
            settled = _settle_locked(request, owner, again, warnings)
    except (IntegrityError, Conflict):
        _leave_to_a_person(request, owner, warnings)
        settled = True  # a person decides: asking again may meet another writer again
    request.refresh_from_db()
    return settled


def _settle_locked(request: BehaviorRequest, owner: str, again: bool, warnings: Sequence[str]) -> bool:
    """Decide about the request and do it, with its agent locked.

    It is cancelled where agent or message is gone or requests were switched off. Else the policy decides: dropped (status `DETECTED`),
    left to a person, or applied; where the persona was changed since the map tier saw it, a person decides instead of applying it.

    Args:
        again: Whether the map tier can be asked once more, where the persona was changed since.

    Returns:
        False: its map answer was taken away, for it has to be mapped again. True: it is decided, or another worker has it.

    Raises:
        Conflict: The lease was lost, or the trait changed, meanwhile.
        IntegrityError: Another trait of the agent has the name.
    """
    agent = lock_agent(request.agent_id)
    row = BehaviorRequest.objects.filter(pk=request.pk, status=Status.RUNNING, lease_owner=owner).first()
    if row is None:
        return True  # another worker has it
    message = Message.objects.select_related("user", "channel").filter(pk=row.message_id).first()
    if agent is None or message is None:
        gone = "agent" if agent is None else "message"
        _end_reading(row, owner, _columns_of_cancelled(f"the {gone} was deleted before the request was decided"))
        return True
    config = resolve_config(agent)
    row.scope_key = key_of(message, config)
    traits = traits_in(agent, row.scope_key)
    # Empty: it is not known what the map tier was shown.
    is_outdated = row.map_digest not in ("", persona_digest(system_prompt=agent.system_prompt, traits=traits))
    if is_outdated and again:
        BehaviorRequest.objects.filter(pk=row.pk, lease_owner=owner).update(map_result=None, map_digest="")
        return False
    if not config["behavior_requests_enabled"]:
        _end_reading(row, owner, _columns_of_cancelled("behaviour requests were switched off meanwhile"))
        return True
    change = read_map(row.map_result, traits=traits)
    decision = decide(
        change=change,
        confidence=row.confidence or str((row.gate_result or {}).get("confidence", "")),
        text=message.text,
        requester=requester_of(message),
        config=config,
        applied_today=count_applied_today(agent.pk, row.scope_key),
        made=count_traits_made(agent.pk, row.scope_key),
        context=context_of(message, agent, config),
    )
    columns = {**change.columns(), "scope_key": row.scope_key, "warnings": [*warnings, *change.warnings]}
    reasons = list(decision.reasons)
    if decision.verdict == "drop":
        columns["status"] = Status.DETECTED
    elif decision.verdict == "review" or is_outdated:
        columns["status"] = Status.PENDING_REVIEW
        if is_outdated:
            reasons.append(CHANGED_MEANWHILE)
    else:
        columns |= _write_change(agent, row, change, user=None)
        columns["automatic"] = True
    columns["why"] = "\n".join(reasons)
    _end_reading(row, owner, columns)
    return True


def _leave_to_a_person(request: BehaviorRequest, owner: str, warnings: Sequence[str]) -> None:
    """Have a request that met another writer wait for a person, if the lease is still ours."""
    change = read_map(request.map_result, traits=list(Trait.objects.filter(agent=request.agent_id)))
    columns = {**change.columns(), "status": Status.PENDING_REVIEW, "warnings": [*warnings, *change.warnings]}
    columns["why"] = f"{CHANGED_MEANWHILE}, or has another trait of that name"
    with contextlib.suppress(Conflict):
        _end_reading(request, owner, columns)


def _columns_of_cancelled(error: str) -> dict[str, Any]:
    """Return the columns of a request that nothing comes of any more."""
    return {"status": Status.CANCELLED, "error": error}


def _end_reading(request: BehaviorRequest, owner: str, columns: Mapping[str, Any]) -> None:
    """End the worker's part of a request: store these columns, and give the lease back.

    Raises:
        Conflict: The lease was lost; the transaction has to be undone.
    """
    ended = {"finished_at": timezone.now(), "lease_owner": "", "lease_expires_at": None, "worker_losses": 0}
    leased = BehaviorRequest.objects.filter(pk=request.pk, status=Status.RUNNING, lease_owner=owner)
    if not leased.update(**{**ended, **columns}):
        raise Conflict(f"{request} is no longer {owner}'s")


def origins_of(versions: Collection[int]) -> Mapping[int, str]:
    """Return where these persona versions come from, by their keys: ``behaviour request 12 by anna``.

    The name is left out where the message was deleted; versions that no request made are not among them.
    """
    origins: dict[int, str] = {}
    for request in BehaviorRequest.objects.filter(persona_version__in=versions).select_related("message__user"):
        if request.persona_version_id is None:
            continue
        origin = f"behaviour request {request.pk}"
        if request.message is not None:  # the name is stored nowhere else, so that erasing the message erases it
            origin += f" by {request.message.author_name}"
        origins[request.persona_version_id] = origin
    return origins


# -- transactions
def _in_transaction(request: BehaviorRequest, work: Callable[[], None]) -> BehaviorRequest:
    """Call `work` in one transaction; return the request, read again after it.

    Raises:
        BehaviorError: Another writer changed the same rows, or another trait has the name; and what `work` raises.
    """
    try:
        with transaction.atomic():
            work()
    except (IntegrityError, Conflict):
        raise BehaviorError(
            f"behaviour request {request.pk}: the persona was changed by others at the same time, or has another trait of that name; "
            "allowed: to try again, or another name"
        ) from None
    request.refresh_from_db()
    return request


def lock_agent(pk: int | None) -> Agent | None:
    """Lock the agent, so that changes of its persona wait for each other; on SQLite transactions do so anyway."""
    if pk is None:
        return None
    return Agent.objects.select_for_update(no_key=True).order_by().filter(pk=pk).first()


def _lock_agent_and_reread(
    request: BehaviorRequest, verb: str, allowed: tuple[str, ...]
) -> tuple[Agent, BehaviorRequest]:
    """Return the agent, locked until the transaction ends, and the request as it is now.

    Args:
        verb: For the error, such as ``applied``.
        allowed: The statuses of which the request must have one.

    Raises:
        BehaviorError: The request is gone or has another status, or its agent was deleted.
    """
    agent = lock_agent(request.agent_id)
    row = _reread_with_status(request, verb, allowed)
    if agent is None:
        raise BehaviorError(f"{row} cannot be {verb}: its agent was deleted; allowed: to leave it as it is")
    return agent, row


def _reread_with_status(request: BehaviorRequest, verb: str, allowed: tuple[str, ...]) -> BehaviorRequest:
    """Return the request as it is in the database now.

    Args:
        verb: For the error, such as ``applied``.
        allowed: The statuses of which it must have one.

    Raises:
        BehaviorError: It is gone, or its status is not among those allowed.
    """
    row: BehaviorRequest | None = BehaviorRequest.objects.filter(pk=request.pk).first()
    if row is None:
        raise BehaviorError(f"behaviour request {request.pk} is gone: it cannot be {verb}")
    if row.status not in allowed:
        labels = " or ".join(Status(status).label for status in allowed)
        raise BehaviorError(f"{row} cannot be {verb}; allowed: one that is {labels}")
    return row


def _store_decision(row: BehaviorRequest, expected: tuple[str, ...], user: User, columns: Mapping[str, Any]) -> None:
    """Store what a person decided.

    Raises:
        Conflict: Another writer decided meanwhile.
    """
    decided = {**columns, "reviewed_by_id": user.pk if user is not None else None, "reviewed_at": timezone.now()}
    if not BehaviorRequest.objects.filter(pk=row.pk, status__in=expected).update(**decided):
        raise Conflict(f"another writer decided {row}")


def _map_again_if_persona_changed(row: BehaviorRequest, allowed: Collection[str]) -> None:
    """Ask the map tier again where the persona was changed since the proposal, and store the new proposal.

    Nothing is done where the persona is as it was, or where the message, the agent or what was extracted from the message is gone.
    A doubt is a reason to ask a person (`doubts_about`); the new proposal is stored also where it brings a new one.

    Args:
        allowed: Statuses; in another one the new proposal is not stored.

    Raises:
        BehaviorError: The budget is used up, the model gave no answer, nothing would change, or there is a doubt about it that was not
            there before.
    """
    message, agent = row.message, row.agent
    extracted = row.extract_result if isinstance(row.extract_result, dict) else {}
    if message is None or agent is None or not extracted.get("behavior_name"):
        return
    subject = subject_of(agent, traits_in(agent, row.scope_key))
    digest = persona_digest(system_prompt=subject.persona, traits=subject.traits)
    if row.map_digest in ("", digest):  # empty: it is not known what the map tier was shown
        return
    judge = model_of("judge")
    since = f"{row}: the persona was changed since it was proposed"
    if why := evaluation_over_budget(agent, judge):
        raise BehaviorError(f"{since}, and mapping it again has to wait: {why}; {EDIT_OR_REJECT}")
    config = resolve_config(agent)
    reply = ask(
        "map",
        words=own_words(text_addressed_to(message, agent)),
        subject=subject,
        answers={"gate": row.gate_result, "extract": extracted},
        context=context_of(message, agent, config),
        work_id=row.work_id,
        deadline=min(LONGEST_WAIT, settings.LLM_EVALUATION_DEADLINE),
    )
    if not reply.ok:
        why = f"{reply.status}: {reply.error}"
        raise BehaviorError(
            f"{since}, and mapping it again failed ({why}); allowed: to try again, to edit it, or to reject it"
        )
    change = read_map(reply.value, traits=subject.traits)
    if change.after is None:
        raise BehaviorError(f"{since}, and nothing would change: {change.why}; {EDIT_OR_REJECT}")
    known_doubts = row.why.splitlines()  # one a line
    doubts = doubts_about(change, config, count_traits_made(agent.pk, row.scope_key))
    new_doubts = [doubt for doubt in doubts if doubt not in known_doubts]
    BehaviorRequest.objects.filter(pk=row.pk, status__in=allowed, map_digest=row.map_digest).update(
        **change.columns(),
        map_result=reply.value,
        map_call=reply.call_id,
        map_digest=digest,
        judge=judge,
        why="\n".join((*known_doubts, *new_doubts)),
        warnings=list(dict.fromkeys((*row.warnings, MAPPED_AGAIN, *change.warnings))),
    )
    if new_doubts:
        why = "; ".join(new_doubts)
        raise BehaviorError(
            f"{since}, and what it would change now is doubtful: {why}; allowed: to apply that, to edit it, or to reject it"
        )


# -- traits; in the caller's transaction, with the agent locked
def _change_of(row: BehaviorRequest, traits: Sequence[TraitValue], edits: Mapping[str, Any]) -> Change:
    """Return the change that the request would make to the traits as they are now: as proposed, or as a person edited it.

    Its `after` is None, with the reason in `why`, where nothing was proposed or the trait is like that already.

    Args:
        traits: As they are now, where the request holds.
        edits: The fields of the trait that a person wrote; empty: as proposed.

    Raises:
        BehaviorError: The wording is not allowed (says what is), or the trait was changed, deleted or made since it was proposed and
            the person does not name another.
    """
    # As proposed: `before` is None for a new trait, `after` where nothing was to be changed.
    before, after = stored_trait(row.trait_before), stored_trait(row.trait_after)
    proposed = before or after
    # As it is now: None where there is none of that name by now.
    current = find_trait(proposed.name, traits) if proposed is not None else None
    if after is not None and "name" not in edits:
        _refuse_if_changed_since(row, before, after, current, traits)
    if edits:
        replaced = current if before is not None else None
        return _change_as_edited(row, after, edits, replaced.name if replaced is not None else "", traits)
    if after is None:
        return Change(operation="none", why=row.why or "nothing was proposed")
    if current == after:
        return Change(operation="none", why=f"the trait {after.name!r} is like that already")
    return Change(
        operation=operation_of(before, after),
        before=before,
        after=after,
        touches=_traits_named_in_proposal(row, before),
    )


def _refuse_if_changed_since(
    row: BehaviorRequest,
    before: TraitValue | None,
    after: TraitValue,
    current: TraitValue | None,
    traits: Sequence[TraitValue],
) -> None:
    """Refuse a proposal whose trait is neither as it was nor as it would be, or whose new name another trait has.

    Args:
        before, after: The trait as proposed; `before` is None for a new one.
        current: The trait of that name as it is now; None where there is none.
        traits: All that hold now, `current` among them.

    Raises:
        BehaviorError: Says what was changed, and what is allowed.
    """
    if current not in (before, after):
        if before is None:
            what = f"a trait {current.name!r} was made" if current is not None else ""
        elif current is None:
            what = f"the trait {before.name!r} was deleted or renamed"
        else:
            what = f"the trait {before.name!r} was changed: {_fields_that_differ(before, current)}"
        raise BehaviorError(f"{row}: since it was proposed {what}; {EDIT_OR_REJECT}")
    namesake = find_trait(after.name, traits)
    if namesake is not None and namesake is not current:
        raise BehaviorError(f"{row}: there is another trait {namesake.name!r} by now; {EDIT_OR_REJECT}")


def _change_as_edited(
    row: BehaviorRequest,
    proposed: TraitValue | None,
    edits: Mapping[str, Any],
    replaces: str,
    traits: Sequence[TraitValue],
) -> Change:
    """Return the change in a person's wording; what that leaves out is as proposed.

    Args:
        proposed: The trait as it would be by the proposal; None where nothing was proposed: then name and strength are needed.
        replaces: The name of the trait that is changed; empty for a new one.

    Raises:
        BehaviorError: Nothing was proposed to complete it by, or a value is not allowed.
    """
    wording = asdict(proposed) if proposed is not None else {}
    wording |= edits
    missing = [name for name in ("name", "strength") if name not in wording]
    if missing:
        raise BehaviorError(f"{row}: nothing was proposed; allowed: a trait with its {' and '.join(missing)}, too")
    try:
        return change_to(TraitValue(**wording), replaces=replaces, traits=traits)
    except ValueError as error:
        raise BehaviorError(f"{row}: {error}") from None


def _traits_named_in_proposal(row: BehaviorRequest, before: TraitValue | None) -> tuple[str, ...]:
    """Return the names of the traits that the stored proposal changes, replaces or works against, each once.

    A protected one among them keeps the change from being made. Names that the model did not give as text are passed over.

    Args:
        before: The trait that is changed; None for a new one.
    """
    names: list[Any] = []
    if before is not None:
        names.append(before.name)
    if isinstance(row.map_result, dict):
        names.append(row.map_result.get("replaces_trait"))
        names += row.map_result.get("touches") or ()
    texts = [name for name in names if isinstance(name, str) and name]  # the answer may have been erased
    return tuple(dict.fromkeys(texts))


def _fields_that_differ(was: TraitValue | None, now: TraitLike) -> str:
    """Return the fields that are different, as they are now: ``strength is 0.7, name is 'puns'``."""
    old = asdict(was) if was is not None else {}
    changed = []
    for name, value in asdict(as_value(now)).items():
        if old.get(name) != value:
            changed.append(f"{name} is {value!r}")
    return ", ".join(changed)


def _write_change(agent: Agent, row: BehaviorRequest, change: Change, user: User) -> dict[str, Any]:
    """Write the trait, and the persona as a new version; return the columns of the applied request, which are not stored here.

    Where the request holds in one channel or towards one person (`scope_key`) nothing is written: the request itself is what holds.

    Raises:
        Conflict: The trait was changed meanwhile.
        IntegrityError: Another trait of the agent has the name.
    """
    assert change.after is not None  # noqa: S101 (for the type checker)
    now = timezone.now()
    applied = {**change.columns(), "status": Status.APPLIED, "applied_at": now, "finished_at": now, "error": ""}
    if row.scope_key:
        return applied
    note = f"behaviour request {row.pk}"
    version_before = PersonaVersion.objects.filter(agent=agent).order_by("-number").first()
    if version_before is None or version_before.digest != current_digest(agent):  # the persona as it is now has none
        version_before = record_version(agent=agent, note=f"before {note}") or version_before
    changed = find_trait(change.before.name, agent.traits.all()) if change.before is not None else None
    trait = write_trait(agent, changed, change.after, note)
    version = record_version_and_description(agent, note, user)
    applied["trait_id"] = trait.pk
    applied["persona_version_before_id"] = version_before.pk if version_before is not None else None
    applied["persona_version_id"] = version.pk if version is not None else None
    return applied


def record_version_and_description(agent: Agent, note: str, user: User) -> PersonaVersion | None:
    """Record the persona as a new version, and queue its description; None where it did not change."""
    version = record_version(agent=agent, note=note, user=user if isinstance(user, AbstractBaseUser) else None)
    if version is not None:
        queue_description(agent=agent, version=version)
    return version


def write_trait(agent: Agent, row: Trait | None, after: TraitValue | None, source: str = "") -> Trait:
    """Make, change or delete a trait of the agent; return its row.

    Args:
        row: The trait as it was read; None: a new one is made.
        after: What it is to be; None: it is deleted.
        source: Where a new one comes from; a changed one keeps its own.

    Raises:
        Conflict: The trait is not what `row` says any more.
        IntegrityError: Another trait of the agent has that name to the database.
    """
    if row is None:
        assert after is not None  # noqa: S101 (there is nothing to delete)
        return Trait.objects.create(agent=agent, source=source[:64], **asdict(after))
    unchanged = Trait.objects.filter(pk=row.pk, **asdict(as_value(row)))
    if after is None:
        written, _ = unchanged.delete()
    else:
        written = unchanged.update(**asdict(after), updated_at=timezone.now())
    if not written:
        raise Conflict(f"trait {row.pk} was changed")
    return row


def _restore_trait(agent: Agent, row: BehaviorRequest, user: User, *, anyway: bool) -> None:
    """Make the trait what it was before an applied request, and record the persona as a new version.

    Nothing is written where it is like that already, or where the request holds in a narrower scope: then it ends with its status.

    Raises:
        TraitChangedSince: The same trait was changed or deleted since, and `anyway` is false.
        BehaviorError: Another trait has the name that this one had before; or it holds in a narrower scope, and a later request there
            changed the same trait: that one has to be reverted first.
        Conflict: Another writer changed the trait meanwhile.
    """
    if row.scope_key:
        _refuse_if_changed_later_in_scope(row)
        return
    before, after = stored_trait(row.trait_before), stored_trait(row.trait_after)
    traits = list(agent.traits.all())
    trait = _trait_of(row, after, traits)
    current = as_value(trait) if trait is not None else None  # None: it was deleted; `before` is None where it was new
    later_request = _later_request_about(row)
    is_as_made = current == after and later_request is None
    is_as_before = current == before and later_request is None
    if not is_as_made and not is_as_before and not anyway:
        raise TraitChangedSince(_what_changed_since(row, after, trait, later_request))
    if current == before:
        return
    others = [other for other in traits if trait is None or other.pk != trait.pk]
    if before is not None and any(name_key(other.name) == name_key(before.name) for other in others):
        raise BehaviorError(
            f"{row}: its trait was called {before.name!r} before, and another trait has that name by now; allowed: to rename or delete "
            "that one first"
        )
    write_trait(agent, trait, before, f"behaviour request {row.pk}")  # without a trait before, it is deleted
    record_version_and_description(agent, f"revert of behaviour request {row.pk}", user)


def _refuse_if_changed_later_in_scope(row: BehaviorRequest) -> None:
    """Refuse to revert a request of a narrower scope before a later one about the same trait there.

    Raises:
        BehaviorError: Names the later request.
    """
    later = later_change(row)
    if later is not None:
        raise BehaviorError(
            f"{row}: behaviour request {later.pk} changed the same trait there since; allowed: to revert that one first"
        )


def _trait_of(row: BehaviorRequest, after: TraitValue | None, traits: Sequence[Trait]) -> Trait | None:
    """Return the trait that an applied request changed: its row, else the one of that name; None where it was deleted."""
    for trait in traits:
        if trait.pk == row.trait_id:
            return trait
    return find_trait(after.name, traits) if after is not None else None


def _later_request_about(row: BehaviorRequest) -> int | None:
    """Return the key of the newest request that changed the same trait after this one and still holds; None where there is none."""
    later = BehaviorRequest.objects.filter(
        agent=row.agent_id,
        trait=row.trait_id,
        trait__isnull=False,
        status=Status.APPLIED,
        applied_at__gt=row.applied_at,
    )
    return later.order_by("-applied_at").values_list("pk", flat=True).first()


def _what_changed_since(
    row: BehaviorRequest, after: TraitValue | None, trait: Trait | None, later_request: int | None
) -> str:
    """Return a sentence on what came after the request and would be lost by a revert, and what is allowed.

    Args:
        after: The trait as the request made it.
        trait: Its row as it is now; None where it was deleted.
        later_request: The key of the request that changed it; None where none did.
    """
    name = after.name if after is not None else row.trait_name
    differences = _fields_that_differ(after, trait) if trait is not None else ""
    if trait is None:
        change = "was deleted"
    elif differences:
        change = f"was changed: {differences}"
    else:
        change = "was changed, and is as this request made it again,"
    by = f" (by behaviour request {later_request}, which can be reverted first)" if later_request else ""
    return (
        f"{row}: the trait {name!r} {change} since{by}; allowed: to revert it anyway, by which the trait becomes what it was before this "
        "request"
    )
