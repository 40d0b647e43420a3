"""One behaviour request: the words, what the tiers made of them, what it would do to the persona, and the buttons."""

from __future__ import annotations

from typing import Any

from django.db.models import Count
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.transcript import transcript_url
from agents.console import display
from agents.models import Agent, LLMCall, Message
from correction.admin.behavior_acting import ACTS, may_decide, trait_form
from correction.admin.behavior_display import change, marks, persona_diff, status_badge, tiers
from correction.behavior.applying import APPLICABLE, RETRIABLE
from correction.models import BehaviorRequest
from evaluation.admin.display import judge_badge

Status = BehaviorRequest.Status
READING = "agents.view_message"  # the words, and what was made of them: the tiers quote


def page_context(request: HttpRequest, row: BehaviorRequest) -> dict[str, Any]:
    """What the template shows."""
    may_read = request.user.has_perm(READING)
    message = row.message
    proposed = bool(row.trait_after)
    may = may_decide(request) and row.agent is not None
    return {
        "agent": display.agent_chip(row.agent),
        "state": status_badge(row),
        "change": change(row),
        "judge": judge_badge(row.judge) if row.judge else display.EMPTY,
        "confidence": display.visible(row.confidence) if row.confidence else display.EMPTY,
        "requester": display.isolated(message.author_name) if message else display.EMPTY,
        "text": display.block(message.text) if message and may_read else "",
        "where": display.link(transcript_url(message), "Read it in its conversation") if message else "",
        "decided": _decided(row),
        "why": display.visible(row.why) if may_read else "",
        "error": display.visible(row.error) if may_read else "",
        "warnings": [display.visible(text) for text in row.warnings if isinstance(text, str)] if may_read else [],
        "tiers": tiers(row) if may_read else [],
        "may_read": may_read,
        "diff": persona_diff(row),
        "calls": display.link(display.list_url(LLMCall, work_id=row.work_id), "the calls it made"),
        "versions": _versions(row),
        "form": trait_form(row) if may and row.status in APPLICABLE else None,
        "apply_url": _url("apply", row) if may and proposed and row.status in APPLICABLE else "",
        "edited_url": _url("apply_edited", row),
        "reject_url": _url("reject", row) if may and row.status == Status.PENDING_REVIEW else "",
        "revert_url": _url("revert", row) if may and row.status == Status.APPLIED else "",
        "retry_url": _url("retry", row) if may and row.status in RETRIABLE else "",
        "waits": row.status in (Status.QUEUED, Status.RUNNING),
    }


def _url(act: str, row: BehaviorRequest) -> str:
    assert act in ACTS  # noqa: S101 (a slip of the pen above)
    return reverse(f"admin:correction_behaviorrequest_{act}", args=[row.pk])


def _decided(row: BehaviorRequest) -> SafeString | str:
    if row.reviewed_by and row.reviewed_at:
        return format_html("{}, {}", display.isolated(row.reviewed_by), display.moment(row.reviewed_at))
    return "by itself" if row.automatic else ""


def _versions(row: BehaviorRequest) -> str:
    before, after = row.persona_version_before, row.persona_version
    return f"persona v{before.number} → v{after.number}" if before and after else ""


def agent_behavior_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """For the agent's page: how many of its requests stand where, and the newest that changed something. Two queries.

    Messages that asked for nothing, which are nearly all, are not counted, nor read.
    """
    kinds = (Status.PENDING_REVIEW, Status.APPLIED, Status.REJECTED, Status.REVERTED, Status.DETECTED, Status.FAILED)
    asked = BehaviorRequest.objects.filter(agent=agent, status__in=kinds).order_by()
    counts = {row["status"]: row["n"] for row in asked.values("status").annotate(n=Count("pk"))}
    newest = BehaviorRequest.objects.filter(agent=agent, status=Status.APPLIED).select_related("reviewed_by")
    context = {
        "counts": [
            {
                "label": kind.label,
                "count": f"{counts[kind]:,}",
                "url": display.list_url(BehaviorRequest, agent__id__exact=agent.pk, status__exact=kind.value),
            }
            for kind in kinds
            if counts.get(kind)
        ],
        "newest": [
            (display.moment(row.applied_at), change(row), display.page_of(row, "look at it"))
            for row in newest.order_by("-applied_at")[:3]
        ],
        "url": display.list_url(BehaviorRequest, agent__id__exact=agent.pk),
    }
    return SafeString(render_to_string("admin/correction/behavior/agent.html", context, request))


def behavior_notes(request: HttpRequest, messages: list[Message]) -> dict[int, SafeString]:
    """For the transcript: beside a message that asked for a change, what became of it. One query for a page."""
    found: dict[int, list[BehaviorRequest]] = {}
    rows = BehaviorRequest.objects.filter(message__in=messages).select_related("reviewed_by").order_by("pk")
    for row in rows.defer("gate_result", "extract_result", "map_result", "error"):
        if row.message_id is not None:
            found.setdefault(row.message_id, []).append(row)
    return {pk: shown for pk, group in found.items() if (shown := marks(group))}
