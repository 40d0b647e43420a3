"""Resolve an alert in a build, and tell whether it came back: in that build, or in one that began later."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from agents.alerts.models import LONGEST_BUILD, Alert
from agents.alerts.raising import note_to_store, write_state_and_tell_observers
from agents.builds import Tag, is_later, newest_of_key, tag_name, tag_of, tag_text


def resolve(alert: Alert, *, in_build: str = "", user: Any, note: str = "") -> bool:
    """Note that a build resolves an alert, and acknowledge it where nobody has; return whether that was done, False where it is resolved.

    When the same comes back in that build or in a later one, the alert reopens by itself. In earlier ones it does not.

    Args:
        in_build: Such as ``42`` or ``build=42``; empty = the next build: the first one that begins after the newest of now.

    Raises:
        ValueError: The alert is of no build, or the build is no later one; says what is allowed.
    """
    with transaction.atomic():
        # Locked before its build is read: it may come back in a newer one at the same moment.
        unresolved = Alert.objects.select_for_update().filter(pk=alert.pk, resolved_at__isnull=True).first()
        if unresolved is None:
            return False
        if not unresolved.build or unresolved.agent_id is None:
            raise ValueError("it belongs to no build, so no build resolves it; acknowledge it")
        own_build = tag_of(unresolved.build)
        resolved_in = ""
        if in_build.strip():
            resolved_in = tag_text(_later_build(unresolved.agent_id, own_build, in_build.strip()))
        newest = newest_of_key(unresolved.agent_id, own_build[0]) or own_build[1]
        now = timezone.now()
        resolution = {
            "resolved_at": now,
            "resolved_by": user,
            "resolved_in": resolved_in,
            "resolved_after": tag_text((own_build[0], newest))[:LONGEST_BUILD],
        }
        state = {
            "acknowledged_at": unresolved.acknowledged_at or now,
            "acknowledged_by": unresolved.acknowledged_by if unresolved.acknowledged_at else user,
            "note": note_to_store(note) or unresolved.note,
        }
        return bool(write_state_and_tell_observers({alert.pk: alert.kind}, state, **resolution))


def _later_build(agent: int, own_build: Tag, typed: str) -> Tag:
    """Return the build that a person typed, a later one than the alert's own.

    Raises:
        ValueError: It is the same or an earlier one, too long, or not on one line.
    """
    key, own_value = own_build
    value = typed.removeprefix(f"{key}=").strip()
    allowed = f"allowed: a build after {own_value}, such as the one with the fix; empty for the next one"
    tag = (key, value)
    is_one_line = value.isprintable() and 0 < len(value) <= LONGEST_BUILD - len(key) - 1
    if not is_one_line or tag == own_build or is_later(agent, tag, own_build) is False:
        raise ValueError(f"in build {value[:80]!r}: {allowed}")
    return tag


def came_back(*, pk: int, build: str) -> bool | None:
    """Return whether an alert that a build resolves came back in `build`, such as ``build=43``.

    True in the build that resolves it and in later ones, False in earlier ones. None where it is not resolved, `build` is empty, or
    which of the two is later is not known.
    """
    alert = Alert.objects.filter(pk=pk, resolved_at__isnull=False, agent__isnull=False).first()
    if alert is None or alert.agent_id is None or not build:
        return None
    if not alert.resolved_in:
        return is_later(alert.agent_id, tag_of(build), tag_of(alert.resolved_after))
    if build == alert.resolved_in:
        return True
    return is_later(alert.agent_id, tag_of(build), tag_of(alert.resolved_in))


def resolution_words(alert: Alert) -> str:
    """Return in which build an alert was resolved: ``build 42``, or ``the build after 41``."""
    if alert.resolved_in:
        return tag_name(tag_of(alert.resolved_in))
    key, newest = tag_of(alert.resolved_after)
    return f"the {key} after {newest}"
