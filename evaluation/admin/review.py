"""What measuring adds to the review queue: drift alerts to acknowledge, and suggested propositions to decide on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.access import user_of
from agents.console import display
from agents.console.home import MOST_COUNTED
from agents.console.panels import facts
from agents.console.review import Decision, ReviewKind, Waits, add_review, numbers
from agents.models import Agent
from agents.persona import render_persona
from evaluation.admin.display import dimension_badge, evaluation_link, judged_by, meter
from evaluation.admin.propositions import PAGES, card_of, carry_out, propositions_url
from evaluation.models import DriftAlert, PatternTimeout
from evaluation.propositions import editing
from evaluation.propositions.editing import CannotSave
from evaluation.propositions.files import Entry, PropositionError, all_entries


# -- drift alerts
def alerts(request: HttpRequest, agent: str, keys: Collection[str] | None) -> Iterable[Waits]:
    rows = DriftAlert.objects.filter(acknowledged_at__isnull=True).order_by("-pk")
    if agent:
        rows = rows.filter(agent__slug=agent)
    if keys is not None:
        rows = rows.filter(pk__in=numbers(keys))
    shown = rows.values_list("pk", "created_at", "agent__slug")[: MOST_COUNTED + 1]
    return [Waits(str(pk), at, slug) for pk, at, slug in shown]


def _alerts(keys: Collection[str]) -> dict[str, DriftAlert]:
    rows = DriftAlert.objects.filter(pk__in=numbers(keys)).select_related("agent", "schedule")
    return {str(row.pk): row for row in rows}


def _alert_line(alert: DriftAlert) -> SafeString:
    return format_html(
        "{} fell from {} to {}", dimension_badge(alert.dimension), f"{alert.before:.1f}", f"{alert.after:.1f}"
    )


def _show_alert(request: HttpRequest, alert: DriftAlert) -> SafeString:
    return facts(
        ("Before", meter(alert.before)),
        ("Since then", meter(alert.after)),
        ("Low since", display.moment(alert.since)),
        ("Noticed in", evaluation_link(alert.evaluation_run_id)),
        ("Schedule", display.isolated(alert.schedule.name) if alert.schedule else display.EMPTY),
        ("Judge", judged_by(alert)),
    )


def _acknowledge(request: HttpRequest, alert: DriftAlert, note: str) -> None:
    rows = DriftAlert.objects.filter(pk=alert.pk, acknowledged_at__isnull=True)
    if not rows.update(acknowledged_at=timezone.now(), acknowledged_by=user_of(request)):
        raise ValueError("it was acknowledged meanwhile.")


def _unacknowledge(request: HttpRequest, alert: DriftAlert) -> None:
    DriftAlert.objects.filter(pk=alert.pk).update(acknowledged_at=None, acknowledged_by=None)


# -- suggestions of propositions: they stand in files
def suggestions(request: HttpRequest, agent: str, keys: Collection[str] | None) -> Iterable[Waits]:
    """Suggestions in the files' order; none where files cannot be used, which the first page says."""
    return [
        Waits(key, None, entry.owner)
        for key, entry in _entries().items()
        if entry.state == "suggested" and (not agent or entry.owner == agent) and (keys is None or key in keys)
    ][: MOST_COUNTED + 1]


def _entries() -> dict[str, Entry]:
    try:
        return {f"{entry.owner}:{entry.key}": entry for entry in all_entries()}
    except PropositionError:
        return {}


def _suggestions(keys: Collection[str]) -> dict[str, Entry]:
    entries = _entries()
    return {key: entries[key] for key in keys if key in entries}


def _claim(entry: Entry) -> SafeString:
    return format_html('<span dir="auto">{}</span>', display.visible(display.shortened(entry.proposition.claim, 90)))


def _show_suggestion(request: HttpRequest, entry: Entry) -> SafeString:
    agent = Agent.objects.filter(slug=entry.owner).prefetch_related("traits").first()
    persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all()) if agent else None
    card = card_of(entry, agent, persona, PatternTimeout.of([entry.proposition.id]))
    return SafeString(render_to_string(f"{PAGES}card.html", {"card": card, "may_change": False}))


def _deciding(decision: editing.Decision) -> Callable[..., None]:
    def act(request: HttpRequest, entry: Entry, note: str = "") -> None:
        try:
            carry_out(request, owner=entry.owner, mark=entry.mark, decision=decision)
        except (CannotSave, PropositionError) as problem:
            raise ValueError(str(problem)) from None

    return act


def _entry_url(entry: Entry) -> str:
    return f"{propositions_url(entry.owner)}#proposition-{entry.proposition.id}"


def _alert_url(alert: Any) -> str:
    return reverse("admin:evaluation_driftalert_change", args=[alert.pk])


add_review(
    ReviewKind(
        name="alerts",
        title="Drift alerts",
        one="drift alert to acknowledge",
        many="drift alerts to acknowledge",
        order=10,
        permissions=("evaluation.change_driftalert",),
        fills="a schedule raises one when a score fell and stayed low.",
        waiting=alerts,
        find=_alerts,
        line=_alert_line,
        show=_show_alert,
        url=_alert_url,
        decisions=(
            Decision(
                name="acknowledge",
                label="Acknowledge",
                key="a",
                done="is acknowledged",
                decide=_acknowledge,
                undo=_unacknowledge,
                main=True,
            ),
        ),
    )
)
add_review(
    ReviewKind(
        name="suggestions",
        title="Suggestions",
        one="suggested proposition to decide on",
        many="suggested propositions to decide on",
        order=40,
        permissions=("evaluation.change_proposition",),
        fills="propositions that a model or a colleague suggested, until they are accepted or rejected.",
        waiting=suggestions,
        find=_suggestions,
        line=_claim,
        show=_show_suggestion,
        url=_entry_url,
        seen=lambda entry: entry.mark,
        decisions=(
            Decision(
                name="accept",
                label="Accept",
                key="a",
                done="is accepted: it is judged from the next evaluation on",
                decide=_deciding(editing.Decision.ACCEPT),
                undo=_deciding(editing.Decision.UNDO),
                main=True,
            ),
            Decision(
                name="reject",
                label="Reject",
                key="r",
                done="is rejected, and will not be suggested again",
                decide=_deciding(editing.Decision.REJECT),
                undo=_deciding(editing.Decision.UNDO),
            ),
        ),
    )
)
