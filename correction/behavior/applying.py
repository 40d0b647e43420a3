"""Decide about behaviour requests: apply, reject, revert or retry them, and settle what a worker has read.

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
    STOP,
    Change,
    Operation,
    as_value,
    change_to,
    find_trait,
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
        waiting: Only if it waits for a person; not what was dropped or rejected.

    Raises:
        BehaviorError: It is decided already, the agent is gone, the trait is protected or was changed since it was proposed,
            nothing would change, or mapping it again failed or brought a doubt that the person has not seen.
    """
    allowed = (Status.PENDING_REVIEW,) if waiting else APPLICABLE
    edits = asdict(trait) if isinstance(trait, TraitValue) else dict(trait or {})
    if "name" not in edits:
        _map_again(_fresh(request, "applied", allowed), allowed)

    def work() -> None:
        agent, row = _locked(request, "applied", allowed)
        change = _change_of(row, traits_in(agent, row.scope_key), edits)
        if change.after is None:
            raise BehaviorError(f"{row}: nothing would change: {change.why}; allowed: another wording, or to reject it")
        touched = protected_names((*change.touches, change.after.name), resolve_config(agent))
        if touched:
            raise BehaviorError(
                f"{row}: the trait {touched[0]!r} is protected (behavior_protected_traits), and no message can change it; allowed: to "
                "edit the trait itself"
            )
        made = _make_change(agent, row, change, user)
        _update(row, allowed, user, **made, warnings=list(dict.fromkeys((*row.warnings, *change.warnings))))

    return _carry_out(request, work)


def reject_request(*, request: BehaviorRequest, user: User, why: str = "") -> BehaviorRequest:
    """Close a request without a change, as a person decided.

    Raises:
        BehaviorError: It does not wait for a person; one that was applied is reverted instead.
    """

    def work() -> None:
        row = _fresh(request, "rejected", (Status.PENDING_REVIEW,))
        said = f"rejected: {why.strip()}" if why.strip() else ""
        reasons = "\n".join(filter(None, (row.why, said)))
        _update(row, (Status.PENDING_REVIEW,), user, status=Status.REJECTED, why=reasons)

    return _carry_out(request, work)


def reopen_request(*, request: BehaviorRequest, user: User) -> BehaviorRequest:
    """Take a rejection back: it waits for a person again.

    Raises:
        BehaviorError: It is not rejected.
    """

    def work() -> None:
        row = _fresh(request, "opened again", (Status.REJECTED,))
        _update(row, (Status.REJECTED,), user, status=Status.PENDING_REVIEW)

    return _carry_out(request, work)


def revert_request(*, request: BehaviorRequest, user: User, anyway: bool = False) -> BehaviorRequest:
    """Make the trait exactly what it was before the request was applied, or delete a new one. Other traits and the prompt stay.

    Args:
        anyway: Also when the same trait was changed since, which is lost then.

    Raises:
        TraitChangedSince: It was, and `anyway` is not given; says what changed.
        BehaviorError: It was not applied, the agent is gone, or another trait has the name by now.
    """

    def work() -> None:
        agent, row = _locked(request, "reverted", (Status.APPLIED,))
        _restore(agent, row, user, anyway=anyway)
        _update(row, (Status.APPLIED,), user, status=Status.REVERTED, reverted_at=timezone.now())

    return _carry_out(request, work)


def retry_request(*, request: BehaviorRequest) -> BehaviorRequest:
    """Queue it again, with all tries: it goes on at the tier it was at.

    Raises:
        BehaviorError: It did not fail.
    """

    def work() -> None:
        row = _fresh(request, "tried again", RETRIABLE)
        rows = BehaviorRequest.objects.filter(pk=row.pk, status__in=RETRIABLE)
        if not rows.update(status=Status.QUEUED, error="", finished_at=None, attempt=0, lease_expires_at=None):
            raise Conflict(f"another writer decided {row}")
        transaction.on_commit(wake_workers)

    return _carry_out(request, work)


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

    def finish(change: Change | None = None, **values: Any) -> bool:
        """End the worker's part. Where the lease was lost meanwhile, the transaction is undone."""
        if change is not None:
            values = {**change.columns(), **values, "warnings": [*warnings, *change.warnings]}
        ended = {"finished_at": timezone.now(), "lease_owner": "", "lease_expires_at": None, "deaths": 0}
        mine = BehaviorRequest.objects.filter(pk=request.pk, status=Status.RUNNING, lease_owner=owner)
        if not mine.update(**{**ended, **values}):
            raise Conflict(f"{request} is no longer {owner}'s")
        return True

    def work() -> bool:
        agent = _locked_agent(request.agent_id)
        row = BehaviorRequest.objects.filter(pk=request.pk, status=Status.RUNNING, lease_owner=owner).first()
        if row is None:
            return True  # another worker has it
        message = Message.objects.select_related("user", "channel").filter(pk=row.message_id).first()
        if agent is None or message is None:
            gone = "agent" if agent is None else "message"
            return finish(status=Status.CANCELLED, error=f"the {gone} was deleted before the request was decided")
        config = resolve_config(agent)
        row.scope_key = key_of(message, config)
        traits = traits_in(agent, row.scope_key)
        is_other = row.map_digest not in ("", persona_digest(system_prompt=agent.system_prompt, traits=traits))
        if is_other and again:
            BehaviorRequest.objects.filter(pk=row.pk, lease_owner=owner).update(map_result=None, map_digest="")
            return False
        if not config["behavior_requests_enabled"]:
            return finish(status=Status.CANCELLED, error="behaviour requests were switched off meanwhile")
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
        where = {"scope_key": row.scope_key}
        if decision.verdict == "drop":
            return finish(change, status=Status.DETECTED, why="\n".join(decision.reasons), **where)
        if decision.verdict == "review" or is_other:
            reasons = (*decision.reasons, *((CHANGED_MEANWHILE,) if is_other else ()))
            return finish(change, status=Status.PENDING_REVIEW, why="\n".join(reasons), **where)
        return finish(change, automatic=True, why="", **where, **_make_change(agent, row, change, None))

    try:
        with transaction.atomic():
            settled = work()
    except (IntegrityError, Conflict):
        change = read_map(request.map_result, traits=list(Trait.objects.filter(agent=request.agent_id)))
        with contextlib.suppress(Conflict):
            why = f"{CHANGED_MEANWHILE}, or has another trait of that name"
            finish(change, status=Status.PENDING_REVIEW, why=why)
        settled = True
    request.refresh_from_db()
    return settled


def origins_of(versions: Collection[int]) -> Mapping[int, str]:
    """``behaviour request 12 by anna`` by the version's key, as long as it is known who asked; the name is read from the message."""
    origins: dict[int, str] = {}
    for request in BehaviorRequest.objects.filter(persona_version__in=versions).select_related("message__user"):
        who = request.message.author_name if request.message is not None else ""
        if request.persona_version_id is not None:
            origins[request.persona_version_id] = f"behaviour request {request.pk}{f' by {who}' if who else ''}"
    return origins


# -- transactions
def _carry_out(request: BehaviorRequest, work: Callable[[], None]) -> BehaviorRequest:
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


def _locked_agent(pk: int | None) -> Agent | None:
    """The agent, locked so that changes of its persona wait for each other; on SQLite transactions do so anyway."""
    return Agent.objects.select_for_update(no_key=True).order_by().filter(pk=pk).first() if pk is not None else None


def _locked(request: BehaviorRequest, verb: str, allowed: tuple[str, ...]) -> tuple[Agent, BehaviorRequest]:
    """The agent, locked, and the request as it is now."""
    agent = _locked_agent(request.agent_id)
    row = _fresh(request, verb, allowed)
    if agent is None:
        raise BehaviorError(f"{row} cannot be {verb}: its agent was deleted; allowed: to leave it as it is")
    return agent, row


def _fresh(request: BehaviorRequest, verb: str, allowed: tuple[str, ...]) -> BehaviorRequest:
    row: BehaviorRequest | None = BehaviorRequest.objects.filter(pk=request.pk).first()
    if row is None:
        raise BehaviorError(f"behaviour request {request.pk} is gone: it cannot be {verb}")
    if row.status not in allowed:
        labels = " or ".join(Status(status).label for status in allowed)
        raise BehaviorError(f"{row} cannot be {verb}; allowed: one that is {labels}")
    return row


def _update(row: BehaviorRequest, expected: tuple[str, ...], user: User, **values: Any) -> None:
    """Store what a person decided.

    Raises:
        Conflict: Another writer decided meanwhile.
    """
    by = {"reviewed_by_id": user.pk if user is not None else None, "reviewed_at": timezone.now()}
    if not BehaviorRequest.objects.filter(pk=row.pk, status__in=expected).update(**by, **values):
        raise Conflict(f"another writer decided {row}")


def _map_again(row: BehaviorRequest, allowed: Collection[str]) -> None:
    """Store what a proposal comes to for the persona of now, where that is another than the map tier was shown.

    Nothing is done where the message or what was extracted from it is gone.

    Raises:
        BehaviorError: The model gave no answer, nothing would change, or there is a doubt about it that was not there before.
    """
    message, agent = row.message, row.agent
    extracted = row.extract_result if isinstance(row.extract_result, dict) else {}
    if message is None or agent is None or not extracted.get("behavior_name"):
        return
    subject = subject_of(agent, traits_in(agent, row.scope_key))
    digest = persona_digest(system_prompt=subject.persona, traits=subject.traits)
    if row.map_digest in ("", digest):
        return
    judge, since = model_of("judge"), f"{row}: the persona was changed since it was proposed"
    if why := evaluation_over_budget(agent, judge):
        raise BehaviorError(f"{since}, and mapping it again has to wait: {why}; {EDIT_OR_REJECT}")
    answers = {"gate": row.gate_result, "extract": extracted}
    words, deadline = own_words(text_addressed_to(message, agent)), min(LONGEST_WAIT, settings.LLM_EVALUATION_DEADLINE)
    config = resolve_config(agent)
    context = context_of(message, agent, config)
    reply = ask(
        "map",
        words=words,
        subject=subject,
        answers=answers,
        context=context,
        work_id=row.work_id,
        deadline=deadline,
    )
    if not reply.ok:
        said = f"{reply.status}: {reply.error}"
        raise BehaviorError(
            f"{since}, and mapping it again failed ({said}); allowed: to try again, to edit it, or to reject it"
        )
    change = read_map(reply.value, traits=subject.traits)
    if change.after is None:
        raise BehaviorError(f"{since}, and nothing would change: {change.why}; {EDIT_OR_REJECT}")
    known = row.why.splitlines()
    new = [
        doubt
        for doubt in doubts_about(change, config, count_traits_made(agent.pk, row.scope_key))
        if doubt not in known
    ]
    BehaviorRequest.objects.filter(pk=row.pk, status__in=allowed, map_digest=row.map_digest).update(
        **change.columns(),
        map_result=reply.value,
        map_call=reply.call_id,
        map_digest=digest,
        judge=judge,
        why="\n".join((*known, *new)),
        warnings=list(dict.fromkeys((*row.warnings, MAPPED_AGAIN, *change.warnings))),
    )
    if new:
        raise BehaviorError(
            f"{since}, and what it comes to now is doubtful: {'; '.join(new)}; allowed: to apply that, to edit it, or to reject it"
        )


# -- traits; in the caller's transaction, with the agent locked
def _change_of(row: BehaviorRequest, traits: Sequence[TraitValue], edits: Mapping[str, Any]) -> Change:
    """What the request would do to the traits as they are now: what was proposed, with what a person wrote instead.

    Raises:
        BehaviorError: The wording is not allowed (says what is), or the trait was changed, deleted or made since it was proposed and
            the person does not name another.
    """
    before, after = stored_trait(row.trait_before), stored_trait(row.trait_after)
    named = before or after
    known = find_trait(named.name, traits) if named is not None else None
    now = known
    if "name" not in edits and after is not None:
        if now not in (before, after):
            if before is None:
                what = f"a trait {now.name!r} was made" if now is not None else ""
            elif now is None:
                what = f"the trait {before.name!r} was deleted or renamed"
            else:
                what = f"the trait {before.name!r} was changed: {_differences(before, now)}"
            raise BehaviorError(f"{row}: since it was proposed {what}; {EDIT_OR_REJECT}")
        namesake = find_trait(after.name, traits)
        if namesake is not None and namesake is not known:
            raise BehaviorError(f"{row}: there is another trait {namesake.name!r} by now; {EDIT_OR_REJECT}")
    if edits:
        wording = {**(asdict(after) if after is not None else {}), **edits}
        if missing := [name for name in ("name", "strength") if name not in wording]:
            raise BehaviorError(f"{row}: nothing was proposed; allowed: a trait with its {' and '.join(missing)}, too")
        replaced = known if before is not None else None
        try:
            return change_to(
                TraitValue(**wording), replaces=replaced.name if replaced is not None else "", traits=traits
            )
        except ValueError as error:
            raise BehaviorError(f"{row}: {error}") from None
    if after is None:
        return Change(operation="none", why=row.why or "nothing was proposed")
    if now == after:
        return Change(operation="none", why=f"the trait {after.name!r} is like that already")
    operation: Operation = "stop" if after.strength == STOP else "update" if before is not None else "add"
    answer: Mapping[str, Any] = row.map_result if isinstance(row.map_result, dict) else {}
    said = (before and before.name, answer.get("replaces_trait"), *(answer.get("touches") or ()))
    touches = dict.fromkeys(name for name in said if isinstance(name, str) and name)
    return Change(operation=operation, before=before, after=after, touches=tuple(touches))


def _differences(was: TraitValue | None, now: TraitLike) -> str:
    """``strength is 0.7, name is 'puns'``: the fields that are different, as they are now."""
    old = asdict(was) if was is not None else {}
    new = asdict(as_value(now))
    return ", ".join(f"{name} is {value!r}" for name, value in new.items() if old.get(name) != value)


def _make_change(agent: Agent, row: BehaviorRequest, change: Change, user: User) -> dict[str, Any]:
    """Write the trait and the version, unless it holds in a narrower scope; the columns of a request that is applied."""
    assert change.after is not None  # noqa: S101 (for the type checker)
    now = timezone.now()
    applied = {**change.columns(), "status": Status.APPLIED, "applied_at": now, "finished_at": now, "error": ""}
    if row.scope_key:
        return applied
    note = f"behaviour request {row.pk}"
    before = PersonaVersion.objects.filter(agent=agent).order_by("-number").first()
    if before is None or before.digest != current_digest(agent):  # no version of the persona as it is now
        before = record_version(agent=agent, note=f"before {note}") or before
    known = find_trait(change.before.name, agent.traits.all()) if change.before is not None else None
    trait = write_trait(agent, known, change.after, note)
    version = _new_version(agent, note, user)
    return {
        **applied,
        "trait_id": trait.pk,
        "persona_version_before_id": before.pk if before is not None else None,
        "persona_version_id": version.pk if version is not None else None,
    }


def _new_version(agent: Agent, note: str, user: User) -> PersonaVersion | None:
    version = record_version(agent=agent, note=note, user=user if isinstance(user, AbstractBaseUser) else None)
    if version is not None:
        queue_description(agent=agent, version=version)
    return version


def write_trait(agent: Agent, row: Trait | None, after: TraitValue | None, source: str = "") -> Trait:
    """Make, change or delete (`after` is None) a trait, if it still is what `row` says.

    Raises:
        Conflict: It is not.
        IntegrityError: Another trait of the agent has that name to the database.
    """
    if row is None:
        assert after is not None  # noqa: S101 (there is nothing to delete)
        return Trait.objects.create(agent=agent, source=source[:64], **asdict(after))
    rows = Trait.objects.filter(pk=row.pk, **asdict(as_value(row)))
    if not (rows.delete()[0] if after is None else rows.update(**asdict(after), updated_at=timezone.now())):
        raise Conflict(f"trait {row.pk} was changed")
    return row


def _restore(agent: Agent, row: BehaviorRequest, user: User, *, anyway: bool) -> None:
    """Make the trait what it was before an applied request.

    Raises:
        TraitChangedSince: The same trait was changed or deleted since, and `anyway` is false.
        BehaviorError: Another trait has the name that this one had before; or it holds in a narrower scope, and a later request there
            changed the same trait: that one has to be reverted first.
    """
    if row.scope_key:
        if (later := later_change(row)) is not None:
            raise BehaviorError(
                f"{row}: behaviour request {later.pk} changed the same trait there since; allowed: to revert that one first"
            )
        return
    before, made = stored_trait(row.trait_before), stored_trait(row.trait_after)
    traits = list(agent.traits.all())
    trait = next((t for t in traits if t.pk == row.trait_id), None)
    if trait is None and made is not None:
        trait = find_trait(made.name, traits)
    now = as_value(trait) if trait is not None else None
    others = BehaviorRequest.objects.filter(agent=row.agent_id, trait=row.trait_id, trait__isnull=False)
    others = others.order_by("-applied_at")
    later = others.filter(status=Status.APPLIED, applied_at__gt=row.applied_at).values_list("pk", flat=True).first()
    if now == before and not later:
        return
    if (now != made or later) and not anyway:
        differences = _differences(made, trait) if trait is not None else ""
        changed = f"was changed: {differences}" if differences else "was changed, and is as this request made it again,"
        raise TraitChangedSince(
            f"{row}: the trait {made.name if made is not None else row.trait_name!r} {'was deleted' if trait is None else changed} since"
            f"{f' (by behaviour request {later}, which can be reverted first)' if later else ''}; allowed: to revert it anyway, by which "
            "the trait becomes what it was before this request"
        )
    if now == before:
        return
    rest = [one for one in traits if trait is None or one.pk != trait.pk]
    if before is not None and any(name_key(one.name) == name_key(before.name) for one in rest):
        raise BehaviorError(
            f"{row}: its trait was called {before.name!r} before, and another trait has that name by now; allowed: to rename or delete "
            "that one first"
        )
    write_trait(agent, trait, before, f"behaviour request {row.pk}")
    _new_version(agent, f"revert of behaviour request {row.pk}", user)
