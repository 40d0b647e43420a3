"""The queue of behaviour requests: what people asked agents to do differently, and what is decided about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.access import user_of
from agents.admin.transcript import transcript_url
from agents.console import display
from agents.console.display import Tone, word_diff
from agents.console.forms import confirmed
from agents.console.site import GrowingTextarea, NumberInput, ReadOnlyAdmin, TextInput
from agents.models import Agent, LLMCall, Message
from agents.persona import TraitValue, render_persona, values_of
from correction.behavior.applying import (
    APPLICABLE,
    RETRIABLE,
    BehaviorError,
    apply_request,
    reject_request,
    retry_request,
    revert_request,
)
from correction.behavior.effects import plan_request, queue_effect, result_of
from correction.behavior.rules import as_value, name_key, stored_trait
from correction.models import BehaviorEffect, BehaviorRequest
from correction.models.behavior import MESSAGES, MOST_MESSAGES, UNFINISHED
from evaluation.admin.display import judge_badge, meter
from evaluation.models import is_heuristic

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
_TIERS = {"gate": "Does it ask for a change?", "extract": "Which change?", "map": "As which trait?"}
DECIDING = ("correction.change_behaviorrequest", "agents.change_agent")  # it changes a persona
MEASURING = ("correction.view_behaviorrequest", "evaluation.add_evaluationrun")
READING = "agents.view_message"  # the words, and what was made of them: the tiers quote
MOST_EFFECTS = 5  # shown
MOST_REFUSALS = 10  # of an action, said one by one
Post = Mapping[str, str]


def status_badge(row: BehaviorRequest) -> SafeString:
    """Where it stands; the title says whether a person or the policy decided."""
    by = row.reviewed_by.get_username() if row.reviewed_by else ("automatically" if row.automatic else "")
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
    return [
        {
            "question": question,
            "answers": [
                (display.visible(name.replace("_", " ")), display.visible(_said(value)))
                for name, value in result.items()
            ],
            "call": display.page_of(called, "its call") if (called := getattr(row, f"{tier}_call")) else "",
        }
        for tier, question in _TIERS.items()
        if isinstance(result := getattr(row, f"{tier}_result"), dict)
    ]


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value in (None, "") else str(value)


def persona_diff(row: BehaviorRequest) -> SafeString | None:
    """What the change does, or did, to the persona's traits as generator and judge read them; None where nothing is known."""
    before, after = stored_trait(row.trait_before), stored_trait(row.trait_after)
    if row.persona_version_before and row.persona_version:
        samples = [values_of(row.persona_version_before), values_of(row.persona_version)]
    elif after is not None and row.agent is not None:
        now = [as_value(trait) for trait in row.agent.traits.all()]
        replaced = {name_key(trait.name) for trait in (before, after) if trait is not None}
        samples = [now, [*(trait for trait in now if name_key(trait.name) not in replaced), after]]
    else:
        return None
    return word_diff(*(render_persona(system_prompt="", traits=traits).strip() for traits in samples))


def marks(rows: Iterable[BehaviorRequest]) -> SafeString:
    """Beside a message: what it asked of whom, and what became of it."""
    shown = [row for row in rows if row.status not in (Status.NO_REQUEST, Status.QUEUED, Status.RUNNING)]
    lines = ((status_badge(row), change(row), display.page_of(row, "behaviour request")) for row in shown)
    return format_html_join(" ", '<span class="pl-gate">{} {} {}</span>', lines)


class TraitForm(forms.Form):
    """The trait as it is to be. Prefilled with what was proposed."""

    name = forms.CharField(
        max_length=120, widget=TextInput, help_text="as the persona calls it; at most 120 characters"
    )
    description = forms.CharField(
        max_length=4000, required=False, widget=GrowingTextarea, help_text="what it means and how it shows"
    )
    strength = forms.FloatField(
        min_value=0, max_value=1, widget=NumberInput, help_text="0 = stop doing this, 0.5 = usual, 1 = always"
    )
    sentiment = forms.FloatField(
        min_value=-1, max_value=1, required=False, widget=NumberInput,
        help_text="how the persona feels about it: -1 hates it, 1 loves it; empty = 0",
    )  # fmt: skip

    prefix = "trait"


def may_decide(request: HttpRequest) -> bool:
    """Whether the user may decide about requests: the rights to change them, and to change agents."""
    return request.user.has_perms(DECIDING)


def _apply_edited(row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> str:
    form = TraitForm(post)
    if not form.is_valid():
        raise BehaviorError("; ".join(f"{name}: {' '.join(map(str, said))}" for name, said in form.errors.items()))
    given = form.cleaned_data
    apply_request(request=row, user=user, trait=TraitValue(**{**given, "sentiment": given["sentiment"] or 0.0}))
    return "is applied as you wrote it"


def _apply(row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> str:
    apply_request(request=row, user=user)
    return "is applied"


def _reject(row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> str:
    reject_request(request=row, user=user, why=post.get("why", "").strip()[:1000])
    return "is rejected"


def _revert(row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> str:
    revert_request(request=row, user=user, anyway=post.get("anyway") == "1")
    return "is reverted: the trait is what it was before"


def _retry(row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> str:
    retry_request(request=row)
    return "is queued again: a worker (manage.py work) takes it"


def _measure(row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> str:
    text = post.get("messages", "").strip() or str(MESSAGES)
    if not (text.isascii() and text.isdecimal() and len(text) <= 3 and 1 <= int(text) <= MOST_MESSAGES):
        raise ValueError(f"messages {text[:20]!r}: allowed: a whole number from 1 to {MOST_MESSAGES}")
    effect = queue_effect(request=row, messages=int(text), user=user)
    return f"will be evaluated. Evaluation {effect.pk} is queued: a worker (manage.py work) judges it"


# What a button of a request's page does; returns what is said when it is done.
ACTS: dict[str, Callable[[BehaviorRequest, AbstractBaseUser, Post], str]] = {
    "apply": _apply,
    "apply_edited": _apply_edited,
    "reject": _reject,
    "revert": _revert,
    "retry": _retry,
    "measure": _measure,
}


@admin.action(description="Apply as proposed", permissions=["decide"])
@confirmed(
    "Apply as proposed",
    "Those that wait for a person change their agent's persona, each as a version of its own that can be reverted. It holds in all "
    "channels from the agent's next turn on. The others are skipped.",
)
def apply_chosen(model_admin: Any, request: HttpRequest, queryset: QuerySet[BehaviorRequest]) -> None:
    """Those that wait for a person. What was rejected or dropped is applied on its own page only, where its reason stands."""
    user = user_of(request)
    _decide(model_admin, request, queryset, "applied", lambda row: apply_request(request=row, user=user, waiting=True))


@admin.action(description="Reject", permissions=["decide"])
@confirmed(
    "Reject",
    "The agents stay as they are, and these requests are closed without a reason. A reason is given on a request's own page.",
)
def reject_chosen(model_admin: Any, request: HttpRequest, queryset: QuerySet[BehaviorRequest]) -> None:
    _decide(model_admin, request, queryset, "rejected", lambda row: reject_request(request=row, user=user_of(request)))


@admin.action(description="Try again", permissions=["decide"])
def retry_chosen(model_admin: Any, request: HttpRequest, queryset: QuerySet[BehaviorRequest]) -> None:
    _decide(model_admin, request, queryset, "queued again", lambda row: retry_request(request=row))


def _decide(
    model_admin: Any,
    request: HttpRequest,
    queryset: QuerySet[BehaviorRequest],
    what: str,
    carry_out: Callable[[BehaviorRequest], object],
) -> None:
    done, refused = 0, []
    for row in queryset.select_related("agent").order_by("created_at", "pk"):  # as they were asked for
        try:
            carry_out(row)
        except BehaviorError as error:
            refused.append(f"Behaviour request {row.pk} was skipped: {error}")
        else:
            done += 1
    if done:
        model_admin.message_user(request, f"{done} {what}.", messages.SUCCESS)
    if len(refused) > MOST_REFUSALS:
        refused[MOST_REFUSALS:] = [f"{len(refused) - MOST_REFUSALS} more were skipped."]
    for said in refused:
        model_admin.message_user(request, said, messages.WARNING)


def page_context(request: HttpRequest, row: BehaviorRequest) -> dict[str, Any]:
    """What the template shows."""
    may_read = request.user.has_perm(READING)
    message = row.message
    may = may_decide(request) and row.agent is not None
    applicable, initial = may and row.status in APPLICABLE, row.trait_after or {"strength": 0.5}

    def url(act: str, allowed: bool) -> str:
        return reverse(f"admin:correction_behaviorrequest_{act}", args=[row.pk]) if allowed else ""

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
        "form": TraitForm(initial=initial) if applicable else None,
        "apply_url": url("apply", applicable and bool(row.trait_after)),
        "edited_url": url("apply_edited", applicable),
        "reject_url": url("reject", may and row.status == Status.PENDING_REVIEW),
        "revert_url": url("revert", may and row.status == Status.APPLIED),
        "retry_url": url("retry", may and row.status in RETRIABLE),
        "waits": row.status in (Status.QUEUED, Status.RUNNING),
    }


def _decided(row: BehaviorRequest) -> SafeString | str:
    if row.reviewed_by and row.reviewed_at:
        return format_html("{}, {}", display.isolated(row.reviewed_by), display.moment(row.reviewed_at))
    return "automatically" if row.automatic else ""


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
    by_message: dict[int, list[BehaviorRequest]] = {}
    rows = BehaviorRequest.objects.filter(message__in=messages).select_related("reviewed_by").order_by("pk")
    for row in rows.defer("gate_result", "extract_result", "map_result", "error"):
        if row.message_id is not None:
            by_message.setdefault(row.message_id, []).append(row)
    return {pk: shown for pk, group in by_message.items() if (shown := marks(group))}


def effect_panel(request: HttpRequest, row: BehaviorRequest) -> SafeString | None:
    """The panel; None on the page of a request that changed nothing."""
    if row.status not in (Status.APPLIED, Status.REVERTED):
        return None
    effects = list(BehaviorEffect.objects.filter(request=row).select_related("requested_by")[:MOST_EFFECTS])
    plan = plan_request(request=row) if row.agent is not None else None
    under_way = any(effect.status in UNFINISHED for effect in effects)
    may = request.user.has_perms(MEASURING) and not under_way and plan is not None and not plan.why_not
    context: dict[str, Any] = {
        "measure_url": reverse("admin:correction_behaviorrequest_measure", args=[row.pk]) if may else "",
        "messages": MESSAGES,
        "most": MOST_MESSAGES,
        "effects": [_effect(effect) for effect in effects],
        "command": f"manage.py measure_behavior {row.pk}",
    }
    if plan is not None:
        context["plan"] = {
            "since": f"{plan.after} of {plan.wanted} messages since",
            "before": plan.before,
            "waits": plan.waits,
            "claim": display.visible(plan.claim.replace("{{agent_name}}", plan.plan.agent.display_name)),
            "estimate": str(plan.estimate),
            "paid": bool(plan.estimate.calls),
            "judge": judge_badge(plan.judge),
            "heuristic": is_heuristic(plan.judge),
            "reworded": plan.expected == "otherwise",
        }
    return SafeString(render_to_string("admin/correction/behavior/effect.html", context, request))


def _effect(effect: BehaviorEffect) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "state": display.status_badge(effect),
        "when": display.moment(effect.created_at),
        "by": display.isolated(effect.requested_by) if effect.requested_by else "",
        "judge": judge_badge(effect.judge),
        "error": display.visible(effect.error),
        "again": effect.attempt > 1,
        "waits": effect.status in UNFINISHED,
        "calls": display.link(display.list_url(LLMCall, work_id=effect.work_id), "the calls it made"),
    }
    if (result := result_of(effect)) is not None:
        tones: dict[bool | None, Tone] = {True: "good", False: "warning", None: "plain"}
        unscored = result.before_unscored + result.after_unscored
        shown["result"] = {
            "samples": [
                {"name": "before", "mean": meter(result.mean_before), "scored": result.before_scored},
                {"name": "after", "mean": meter(result.mean_after), "scored": result.after_scored},
            ],
            "difference": display.visible(result.difference_words),
            "verdict": display.badge(result.verdict, tones[result.as_requested]),
            "words": display.visible(result.verdict_words),
            "unscored": unscored,
            "why": display.visible(result.first_reason) if unscored else "",
            "cost": result.cost_words,
        }
    return shown


@admin.register(BehaviorRequest)
class BehaviorRequestAdmin(ReadOnlyAdmin[BehaviorRequest]):
    list_select_related = ("agent", "message", "reviewed_by")
    ordering = ("-created_at", "-pk")
    actions = (apply_chosen, reject_chosen, retry_chosen)  # type: ignore[assignment]  # a log of which people decide

    def has_decide_permission(self, request: HttpRequest) -> bool:
        """For the actions on several (``permissions=["decide"]``)."""
        return may_decide(request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[BehaviorRequest]:
        long = ("gate_result", "extract_result", "map_result")
        rows = super().get_queryset(request)
        is_list = request.resolver_match is not None and (request.resolver_match.url_name or "").endswith("changelist")
        return rows.defer(*long, "agent__system_prompt", "agent__sample_lines") if is_list else rows

    def get_panels(self, request: HttpRequest, obj: BehaviorRequest) -> list[SafeString]:
        shown = render_to_string("admin/correction/behavior/request.html", page_context(request, obj), request)
        effect = effect_panel(request, obj)
        return [SafeString(shown), *([effect] if effect else []), *super().get_panels(request, obj)]

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.act_view)
        own = [
            path(f"<int:pk>/{name}/", view, kwargs={"act": name}, name=f"correction_behaviorrequest_{name}")
            for name in ACTS
        ]
        return [*own, *super().get_urls()]

    def act_view(self, request: HttpRequest, pk: int, act: str) -> HttpResponse:
        """Do what a button of the request's page says; the page says what came of it."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_view_permission(request) or not request.user.has_perms(
            MEASURING if act == "measure" else DECIDING
        ):
            raise PermissionDenied
        row = get_object_or_404(BehaviorRequest.objects.select_related("agent"), pk=pk)
        try:
            done = ACTS[act](row, user_of(request), request.POST)
        except ValueError as error:  # a BehaviorError is one
            self.message_user(request, f"Nothing was changed: {error}", messages.ERROR)
        else:
            self.log_change(request, row, f"{act} pressed")
            self.message_user(request, f"Behaviour request {pk} {done}.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:correction_behaviorrequest_change", args=[pk]))

    def get_list_display(self, request: HttpRequest) -> Any:
        """Without the words, and what quotes them, for who may not read messages."""
        columns = super().get_list_display(request)
        if request.user.has_perm(READING):
            return columns
        return ["place" if name == "said" else name for name in columns if name != "reason"]

    @admin.display(description="time", ordering="created_at")
    def when(self, row: BehaviorRequest) -> SafeString:
        return display.lines(display.moment(row.created_at), f"#{row.pk}")

    state = display.column("status", status_badge, ordering="status")
    changed = display.column("change", change, ordering="trait_name")

    @admin.display(description="message")
    def said(self, row: BehaviorRequest) -> SafeString:
        if row.message is None:
            return display.EMPTY
        return display.link(transcript_url(row.message), display.shortened(row.message.text, 70) or "a message")

    @admin.display(description="message")
    def place(self, row: BehaviorRequest) -> SafeString:
        return display.link(transcript_url(row.message), "a message") if row.message else display.EMPTY

    @admin.display(description="why")
    def reason(self, row: BehaviorRequest) -> SafeString:
        return display.folded(row.why or row.error, 70) if row.why or row.error else display.EMPTY
