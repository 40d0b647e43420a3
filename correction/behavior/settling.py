"""The end of a worker's part: when the tiers have answered, the policy decides, and the change is made, held or dropped."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC
from typing import Any

from django.utils import timezone

from agents.models import Message, Trait
from agents.persona import current_digest
from correction.behavior.applying import make_change, proposal
from correction.behavior.policy import decide, made_by_requests, requester_of
from correction.behavior.rules import Change, read_map
from correction.behavior.writing import Overtaken, StillOvertaken, in_one_go, locked_agent
from correction.config.resolve import resolve_config
from correction.models import BehaviorRequest

Status = BehaviorRequest.Status
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
        settled = in_one_go(lambda: _settle(request, owner, again, warnings))
    except StillOvertaken:
        why = f"{CHANGED_MEANWHILE}, or has another trait of that name"
        change = read_map(request.map_result, traits=list(Trait.objects.filter(agent=request.agent_id)))
        with contextlib.suppress(Overtaken):
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


def applied_today(agent_id: int) -> int:
    """How many requests were applied to the agent by themselves today (UTC), those since reverted included."""
    midnight = timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return BehaviorRequest.objects.filter(agent=agent_id, automatic=True, applied_at__gte=midnight).count()


def _said(change: Change, warnings: Sequence[str]) -> dict[str, Any]:
    return {**proposal(change), "warnings": [*warnings, *change.warnings]}


def _finish(row: BehaviorRequest, owner: str, **values: Any) -> bool:
    """End the worker's part; True. The claim may have been lost meanwhile: then the whole transaction is undone."""
    mine = BehaviorRequest.objects.filter(pk=row.pk, status=Status.RUNNING, lease_owner=owner)
    if not mine.update(**{"finished_at": timezone.now(), **_ENDED, **values}):
        raise Overtaken(f"{row} is no longer {owner}'s")
    return True
