"""On the page of an applied request: did it change anything? What judging that would take, a button, and what came out."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.admin.access import user_of
from agents.console import display
from agents.console.site import ReadOnlyAdmin
from agents.models import LLMCall
from correction.behavior.before_after import RequestedChange, plan_as_json, plan_request
from correction.behavior.effect_output import (
    cost_words,
    difference_words,
    estimate_words,
    first_reason,
    verdict_words,
)
from correction.behavior.effects import queue_effect
from correction.models import BehaviorEffect, BehaviorRequest
from correction.models.behavior_effect import UNFINISHED
from evaluation.admin.display import judge_badge, meter
from evaluation.change.before_after import MESSAGES, MOST_MESSAGES
from evaluation.models import is_heuristic

MEASURING = ("correction.view_behaviorrequest", "evaluation.add_evaluationrun")
APPLIED = (BehaviorRequest.Status.APPLIED, BehaviorRequest.Status.REVERTED)
MOST_SHOWN = 5
ALLOWED = f"a whole number from 1 to {MOST_MESSAGES}"
_VIEW = "admin:correction_behaviorrequest_measure"


def effect_panel(request: HttpRequest, row: BehaviorRequest) -> SafeString | None:
    """The panel; None on the page of a request that changed nothing."""
    if row.status not in APPLIED:
        return None
    effects = list(BehaviorEffect.objects.filter(request=row).select_related("requested_by")[:MOST_SHOWN])
    under_way = any(effect.status in UNFINISHED for effect in effects)
    change = None
    if row.agent is not None:
        change = plan_request(request=row)
    may = request.user.has_perms(MEASURING) and not under_way
    context = {
        "plan": _plan(change) if change is not None else None,
        "measure_url": reverse(_VIEW, args=[row.pk]) if may and change is not None and _measurable(change) else "",
        "messages": MESSAGES,
        "most": MOST_MESSAGES,
        "effects": [_shown(effect) for effect in effects],
        "command": f"manage.py measure_behavior {row.pk}",
    }
    return SafeString(render_to_string("admin/correction/behavior/effect.html", context, request))


def measure_view(model_admin: ReadOnlyAdmin[BehaviorRequest], request: HttpRequest, pk: int) -> HttpResponse:
    """Queue an evaluation; the page of the request shows it."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    if not request.user.has_perms(MEASURING):
        raise PermissionDenied
    row = BehaviorRequest.objects.select_related("agent").filter(pk=pk).first()
    if row is None:
        raise Http404(f"There is no behaviour request {pk}.")
    try:
        effect = queue_effect(request=row, messages=_how_many(request.POST.get("messages", "")), user=user_of(request))
    except ValueError as error:  # what cannot be measured is one, too
        model_admin.message_user(request, f"Nothing was asked: {error}", messages.ERROR)
    else:
        model_admin.log_change(request, row, "evaluation of its effect asked for")
        text = f"Evaluation {effect.pk} is queued: a worker (manage.py work) judges it."
        model_admin.message_user(request, text, messages.SUCCESS)
    return HttpResponseRedirect(reverse("admin:correction_behaviorrequest_change", args=[pk]))


def _how_many(text: str) -> int:
    if not text.strip():
        return MESSAGES
    if not (text.isascii() and text.isdecimal() and len(text) <= 3 and 1 <= int(text) <= MOST_MESSAGES):
        raise ValueError(f"messages {text[:20]!r}: allowed: {ALLOWED}")
    return int(text)


def _measurable(change: RequestedChange) -> bool:
    return bool(change.plan.before and change.plan.after)


def _plan(change: RequestedChange) -> dict[str, Any]:
    plan = plan_as_json(change)
    return {
        "since": f"{plan['after']} of {plan['wanted']} messages since",
        "before": plan["before"],
        "waits": change.waits,
        "claim": display.visible(plan["claim"].replace("{{agent_name}}", change.plan.agent.display_name)),
        "estimate": estimate_words(plan["estimate"]),
        "paid": bool(plan["estimate"]["calls"]),
        "judge": judge_badge(plan["judge"]),
        "heuristic": is_heuristic(plan["judge"]),
        "reworded": change.expected == "otherwise",
    }


def _shown(effect: BehaviorEffect) -> dict[str, Any]:
    result = effect.result if isinstance(effect.result, dict) else None
    return {
        "state": display.status_badge(effect),
        "when": display.moment(effect.created_at),
        "by": display.isolated(effect.requested_by) if effect.requested_by else "",
        "judge": judge_badge(effect.judge),
        "error": display.visible(effect.error),
        "anew": effect.attempt > 1,
        "waits": effect.status in UNFINISHED,
        "calls": display.link(display.list_url(LLMCall, work_id=effect.work_id), "the calls it made"),
        "found": _found(result) if result is not None else None,
    }


def _found(result: dict[str, Any]) -> dict[str, Any]:
    tone: display.Tone = {True: "good", False: "warning", None: "plain"}[result["as_requested"]]  # type: ignore[assignment]
    unscored = result["before_unscored"] + result["after_unscored"]
    return {
        "sides": [
            {"name": name, "mean": meter(result[f"mean_{name}"]), "scored": result[f"{name}_scored"]}
            for name in ("before", "after")
        ],
        "difference": display.visible(difference_words(result)),
        "verdict": display.badge(result["verdict"], tone),
        "words": display.visible(verdict_words(result)),
        "unscored": unscored,
        "why": display.visible(first_reason(result)) if unscored else "",
        "cost": cost_words(result),
    }
