"""How behaviour requests look in the console: badges, the change in one line, the tiers, and what it does to the persona."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.display import Tone, word_diff
from agents.models import Agent
from agents.persona import TraitValue, render_persona
from correction.behavior.map_answer import name_key
from correction.models import BehaviorRequest

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
_TIERS = (
    ("Does it ask for a change?", "gate_result", "gate_call"),
    ("Which change?", "extract_result", "extract_call"),
    ("As which trait?", "map_result", "map_call"),
)


def status_badge(row: BehaviorRequest) -> SafeString:
    """Where it stands; the title says whether a person or the policy decided."""
    by = row.reviewed_by.get_username() if row.reviewed_by else ("by itself" if row.automatic else "")
    return display.badge(row.get_status_display(), TONES.get(row.status, "plain"), f"decided by {by}" if by else "")


def change(row: BehaviorRequest) -> SafeString:
    """``concise replies 0.5 → 0.9``, or that it is new; a dash where nothing is to be changed."""
    if not row.trait_name:
        return display.EMPTY
    before, after = _strength(row.trait_before), _strength(row.trait_after)
    was = format_html("{} → ", before) if before else format_html("{} ", display.badge("new", "info"))
    kind = display.badge("stop", "accent") if row.operation == BehaviorRequest.Operation.STOP else ""
    return format_html(
        '<bdi>{}</bdi> <span class="pl-number">{}{}</span> {}', display.visible(row.trait_name), was, after, kind
    )


def _strength(trait: object) -> str:
    value = trait.get("strength") if isinstance(trait, dict) else None
    return f"{value:g}" if isinstance(value, int | float) else ""


def tiers(row: BehaviorRequest) -> list[dict[str, Any]]:
    """What each tier was asked and said; those that were not asked are missing."""
    found = []
    for question, column, call in _TIERS:
        result = getattr(row, column)
        if isinstance(result, dict):
            called = getattr(row, call)
            found.append(
                {
                    "question": question,
                    "answers": [
                        (display.visible(name.replace("_", " ")), display.visible(_said(value)))
                        for name, value in result.items()
                    ],
                    "call": display.page_of(called, "its call") if called else "",
                }
            )
    return found


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value in (None, "") else str(value)


def persona_diff(row: BehaviorRequest) -> SafeString | None:
    """What the change does, or did, to the persona's traits as generator and judge read them; None where nothing is known."""
    after = row.trait_after if isinstance(row.trait_after, dict) else None
    if row.persona_version_before and row.persona_version:
        texts = [_rendered(version.traits) for version in (row.persona_version_before, row.persona_version)]
    elif after is not None and row.agent is not None:
        now = traits_of(row.agent)
        texts = [_rendered(now), _rendered(replaced(now, row.trait_before, after))]
    else:
        return None
    return word_diff(*texts)


def traits_of(agent: Agent) -> list[dict[str, Any]]:
    return [dict(row) for row in agent.traits.values("name", "description", "sentiment", "strength")]


def replaced(traits: Iterable[dict[str, Any]], before: object, after: dict[str, Any]) -> list[dict[str, Any]]:
    """The traits with `after` in the place of the one it is called like, or was called like before."""
    names = {name_key(str(after["name"]))}
    if isinstance(before, dict):
        names.add(name_key(str(before.get("name", ""))))
    return [*(trait for trait in traits if name_key(str(trait["name"])) not in names), after]


def _rendered(traits: Iterable[dict[str, Any]]) -> str:
    names = ("name", "description", "sentiment", "strength")
    values = [TraitValue(**{name: trait[name] for name in names}) for trait in traits]
    return render_persona(system_prompt="", traits=values).strip()


def marks(rows: Iterable[BehaviorRequest]) -> SafeString:
    """Beside a message: what it asked of whom, and what became of it."""
    shown = [row for row in rows if row.status not in (Status.NO_REQUEST, Status.QUEUED, Status.RUNNING)]
    lines = ((status_badge(row), change(row), display.page_of(row, "behaviour request")) for row in shown)
    return format_html_join(" ", '<span class="pl-gate">{} {} {}</span>', lines)
