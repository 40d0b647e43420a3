"""A behaviour request in a line: its status, its change, its effect. The list, its page and the page of a person show them alike."""

from __future__ import annotations

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.display import Tone
from correction.behavior.effects import result_of
from correction.behavior.models import BehaviorEffect, BehaviorRequest
from correction.behavior.scope import holds_in

Status = BehaviorRequest.Status
TONES: dict[str, Tone] = {
    Status.QUEUED: "plain",
    Status.RUNNING: "info",
    Status.NO_REQUEST: "plain",
    Status.DETECTED: "plain",
    Status.APPLIED: "good",
    Status.PENDING_REVIEW: "warning",
    Status.REJECTED: "plain",
    Status.REVERTED: "plain",
    Status.FAILED: "bad",
    Status.ERRORED: "bad",
    Status.CANCELLED: "plain",
    Status.PAUSED_BUDGET: "warning",
}
# By whether it went as requested; None: that cannot be said.
EFFECT_TONES: dict[bool | None, Tone] = {True: "good", False: "warning", None: "plain"}
DECIDING = ("behavior.change_behaviorrequest", "agents.change_agent")  # it changes a persona


def status_badge(row: BehaviorRequest) -> SafeString:
    """Return its status; the title says whether a person or the policy decided."""
    title = ""
    if row.reviewed_by:
        title = f"decided by {row.reviewed_by.get_username()}"
    elif row.automatic:
        title = "decided automatically"
    return display.badge(row.get_status_display(), TONES.get(row.status, "plain"), title)


def change(row: BehaviorRequest) -> SafeString:
    """Return ``concise replies 0.5 → 0.9``, or that it is new, and where it holds if not in the whole persona; a dash for no change."""
    if not row.trait_name:
        return display.EMPTY
    strength_before = stored_strength(row.trait_before)
    before = format_html("{} strength ", display.badge("new", "info"))
    if strength_before:
        before = format_html("{} → ", strength_before)
    stops, where = SafeString(), SafeString()
    if row.operation == BehaviorRequest.Operation.STOP:
        stops = display.badge("stop", "accent")
    if row.scope_key:
        where = format_html(" <bdi>{}</bdi>", display.visible(holds_in(row)))
    return format_html(
        '<bdi>{}</bdi> <span class="pl-number">{}{}</span> {}{}',
        display.visible(row.trait_name),
        before,
        stored_strength(row.trait_after),
        stops,
        where,
    )


def stored_strength(trait: object) -> str:
    """Return the strength of a stored trait; empty where it has none."""
    value = trait.get("strength") if isinstance(trait, dict) else None
    return f"{value:g}" if isinstance(value, int | float) else ""


def effect_badge(effect: BehaviorEffect | None) -> SafeString:
    """Return whether a request changed anything, as far as that was judged."""
    if effect is None:
        return display.badge("not evaluated")
    result = result_of(effect)
    if result is None:
        return display.status_badge(effect)
    return display.badge(result.verdict, EFFECT_TONES[result.as_requested], result.verdict_words)


def person_url(person: str) -> str:
    """Return the page of what a person asked for; see `correction.behavior.scope.person_of`."""
    return reverse("admin:behavior_behaviorrequest_person", args=[person])
