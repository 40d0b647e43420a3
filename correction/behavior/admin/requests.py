"""The queue of behaviour requests: what people asked agents to do differently, and what is decided about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Prefetch, QuerySet, prefetch_related_objects
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.chat import add_message_actions
from agents.admin.personas import MAY_RUN
from agents.admin.transcript import transcript_url
from agents.kit.admin.access import user_of
from agents.kit.console import display
from agents.kit.console.display import word_diff
from agents.kit.console.filters import number_in
from agents.kit.console.forms import report_done
from agents.kit.console.site import (
    GrowingTextarea,
    NumberInput,
    ReadOnlyAdmin,
    TextInput,
    console_action,
    console_page,
    extend,
    page_to_return_to,
)
from agents.kit.models import LLMCall
from agents.models import Agent, Message
from agents.personas.persona import TraitLike, TraitValue, render_persona, values_of
from correction.behavior.admin.lines import DECIDING, EFFECT_TONES, change, person_url, status_badge, stored_strength
from correction.behavior.admin.people import person_context
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
from correction.behavior.models import MESSAGES, MOST_MESSAGES, UNFINISHED, BehaviorEffect, BehaviorRequest
from correction.behavior.scope import holds_in, messages_within, person_of, traits_in
from correction.behavior.shared import adopt_shared_request, shared_requests
from correction.behavior.signs import name_key
from correction.behavior.trait_change import stored_trait
from evaluation.models import is_heuristic

Status = BehaviorRequest.Status
TIERS = {"gate": "Does it ask for a change?", "extract": "Which change?", "map": "As which trait?"}
MEASURING = ("behavior.view_behaviorrequest", "evaluation.add_evaluationrun")
READING = "agents.view_message"  # the words, and what was made of them: the tiers quote
MOST_EFFECTS = 5  # shown
MOST_OF_WHY = 160  # characters of a reason beside a message
_SHOWN = ("reviewed_by", "message__channel", "message__user")  # of a request in a line


def persona_diff(row: BehaviorRequest) -> SafeString | None:
    """Return the change of the persona's traits as generator and judge read them; None where nothing is known.

    From the recorded versions; where there are none, from the stored trait before and after among the traits as they are now.
    """
    if row.persona_version_before and row.persona_version:
        return _diff_of_traits(values_of(row.persona_version_before), values_of(row.persona_version))
    before, after = stored_trait(row.trait_before), stored_trait(row.trait_after)
    if after is None or row.agent is None:
        return None
    current = traits_in(row.agent, row.scope_key)
    changed_names = {name_key(trait.name) for trait in (before, after) if trait is not None}
    others = [trait for trait in current if name_key(trait.name) not in changed_names]
    if not row.applied_at:  # a proposal
        return _diff_of_traits(current, [*others, after])
    if before is None:
        return _diff_of_traits(others, [*others, after])
    return _diff_of_traits([*others, before], [*others, after])


def _diff_of_traits(before: Sequence[TraitLike], after: Sequence[TraitLike]) -> SafeString | None:
    """Return the words that differ between two lists of traits."""
    text_before = render_persona(system_prompt="", traits=before).strip()
    text_after = render_persona(system_prompt="", traits=after).strip()
    return word_diff(text_before, text_after)


def marks(rows: Iterable[BehaviorRequest], user: User | AnonymousUser) -> SafeString:
    """Return the line at a message: what of it was heard as a request, where that holds, and what became of it.

    Nothing of one that is not read yet, or that asked for nothing.

    Args:
        user: Who reads it.
    """
    lines = []
    for row in rows:
        if row.status not in (Status.NO_REQUEST, Status.QUEUED, Status.RUNNING):
            lines.append((_heard(row, user), status_badge(row), display.page_of(row, "behaviour request")))
    return format_html_join(" ", '<span class="pl-gate">{} {} {}</span>', lines)


def _heard(row: BehaviorRequest, user: User | AnonymousUser) -> SafeString:
    """Say which trait was heard as a request and where it holds; of one without a trait why nothing came of it."""
    if not row.trait_name:
        why = display.shortened(row.why or row.error, MOST_OF_WHY)
        outcome = "Heard as a request:"
        if row.status == Status.CANCELLED:
            outcome = "Not heard as a request:"
        elif row.status in RETRIABLE:
            outcome = "Could not be read for requests:"
        return format_html(
            '{} <span class="pl-text" dir="auto">{}</span>', outcome, display.visible(why or "no reason")
        )
    before, after = stored_strength(row.trait_before), stored_strength(row.trait_after)
    strength = f"{before} → {after}" if before else after
    if row.operation == BehaviorRequest.Operation.STOP:
        strength += ", stopped"
    return format_html(
        "Heard as a request: <bdi>{}</bdi> (strength {}), <bdi>{}</bdi>.",
        display.visible(row.trait_name),
        strength or "not known",
        display.visible(_place(row, user)),
    )


def _place(row: BehaviorRequest, user: User | AnonymousUser) -> str:
    """Return where a request holds, as this user would say it at the message."""
    message = row.message
    is_own = message is not None and message.user_id is not None and message.user_id == user.pk
    if message is not None and message.channel.is_scratch and row.scope_key:
        return "for you, in this conversation" if is_own else "in this conversation"
    if is_own and row.scope_key.startswith("user:"):
        return "for you"
    return holds_in(row)


def may_undo(user: User | AnonymousUser, row: BehaviorRequest) -> bool:
    """Return whether the user may undo a request: who may decide; of one that does not change the persona also its author."""
    if user.has_perms(DECIDING):
        return True
    is_own = row.message is not None and row.message.user_id == user.pk
    return is_own and bool(row.scope_key) and user.has_perm(MAY_RUN)


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


@admin.action(description="Try again", permissions=["decide"])
def retry_chosen(model_admin: Any, request: HttpRequest, queryset: QuerySet[BehaviorRequest]) -> None:
    """Queue those again that failed, and say how many; the others are left as they are (a person decides them elsewhere)."""
    done = 0
    rows = queryset.order_by("created_at", "pk")
    for row in rows:
        with suppress(BehaviorError):
            retry_request(request=row)
            done += 1
    why = "only a request that failed can be tried again"
    report_done(model_admin, request, "behaviour request", "queued again", done=done, chosen=len(rows), why=why)


def why_text(row: BehaviorRequest) -> str:
    """Return why a request waits, or what became of it; of one that a person applied since, that it had waited, and why."""
    if row.why and row.status in (Status.APPLIED, Status.REVERTED):
        return f"It had waited for a person: {'; '.join(row.why.splitlines())}"
    return row.why


def page_context(request: HttpRequest, row: BehaviorRequest) -> dict[str, Any]:
    """Return the values of the template; an address is empty where the user may not decide, or the status does not allow it.

    No one may decide where the agent was deleted. Only tiers that answered are shown.
    """
    may_decide = request.user.has_perms(DECIDING) and row.agent is not None
    may_apply = may_decide and row.status in APPLICABLE

    def url(act: str, is_allowed: bool) -> str:
        return reverse(f"admin:behavior_behaviorrequest_{act}", args=[row.pk]) if is_allowed else ""

    person = person_of(row)
    tiers = []
    for tier, question in TIERS.items():
        result = getattr(row, f"{tier}_result")
        if result is not None:
            tiers.append((question, result, getattr(row, f"{tier}_call")))
    return {
        "row": row,
        "may_read": request.user.has_perm(READING),
        "state": status_badge(row),
        "change": change(row),
        "why": why_text(row),
        "holds": holds_in(row),
        "person_url": person_url(person) if person else "",
        "where": transcript_url(row.message) if row.message else "",
        "tiers": tiers,
        "diff": persona_diff(row),
        "calls": display.link(display.list_url(LLMCall, work_id=row.work_id), "the calls it made"),
        # Where nothing was proposed a person may write a trait of their own.
        "form": TraitForm(initial=row.trait_after or {"strength": 0.5}) if may_apply else None,
        "apply_url": url("apply", may_apply and bool(row.trait_after)),
        "edited_url": url("apply_edited", may_apply),
        "reject_url": url("reject", may_decide and row.status == Status.PENDING_REVIEW),
        "revert_url": url("revert", may_decide and row.status == Status.APPLIED),
        "retry_url": url("retry", may_decide and row.status in RETRIABLE),
        "waits": row.status in (Status.QUEUED, Status.RUNNING),
    }


def request_panel(request: HttpRequest, row: BehaviorRequest) -> SafeString:
    """Return the request and how it was read, without the buttons, for the review queue."""
    undecidable = dict.fromkeys(("form", "apply_url", "edited_url", "reject_url", "revert_url", "retry_url"))
    context = page_context(request, row) | undecidable
    return SafeString(render_to_string("admin/behavior/request.html", context, request))


def agent_behavior_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """Return the panel of the agent's page: how many of its requests have which status, and the newest applied, and what several people
    asked for themselves. Three queries.

    Messages that asked for nothing, which are nearly all, are not counted, nor read.
    """
    statuses = (Status.PENDING_REVIEW, Status.APPLIED, Status.REJECTED, Status.REVERTED, Status.DETECTED, Status.FAILED)
    requests = BehaviorRequest.objects.filter(agent=agent, status__in=statuses).order_by()
    count_of = dict(requests.values_list("status").annotate(Count("pk")))
    counts = []
    for status in statuses:
        if status in count_of:
            url = display.list_url(BehaviorRequest, agent__id__exact=agent.pk, status__exact=status.value)
            counts.append({"label": status.label, "count": f"{count_of[status]:,}", "url": url})
    applied = BehaviorRequest.objects.filter(agent=agent, status=Status.APPLIED).select_related(*_SHOWN)
    may_adopt = request.user.has_perms(DECIDING)
    context = {
        "shared": shared_requests(agent=agent),
        "adopt_url": reverse("admin:behavior_behaviorrequest_adopt", args=[agent.pk]) if may_adopt else "",
        "counts": counts,
        "newest": [(row, change(row)) for row in applied.order_by("-applied_at")[:3]],
        "url": display.list_url(BehaviorRequest, agent__id__exact=agent.pk),
    }
    return SafeString(render_to_string("admin/behavior/agent.html", context, request))


def behavior_notes(request: HttpRequest, messages: list[Message]) -> dict[int, SafeString]:
    """Return the transcript's marks beside messages that asked for a change, by the message's key. One query for a page."""
    notes = {}
    for pk, requests in _requests_at(messages).items():
        note = marks(requests, request.user)
        if note:  # empty where none of them asked for anything
            notes[pk] = note
    return notes


def chat_actions(request: HttpRequest, agent: Agent, messages: list[Message]) -> dict[int, SafeString]:
    """Return what a chat shows at messages besides their marks: that one is not read yet, Apply and Undo."""
    actions = {}
    for pk, requests in _requests_at(messages).items():
        parts = []
        for row in requests:
            if row.status in (Status.QUEUED, Status.RUNNING):
                parts.append(format_html('<span class="pl-subtle">{}</span>', "It is not read for requests yet."))
            elif row.status == Status.APPLIED and row.agent_id is not None and may_undo(request.user, row):
                parts.append(_chat_button("undo", "Undo", row))
            elif row.status == Status.PENDING_REVIEW and row.agent_id is not None and request.user.has_perms(DECIDING):
                parts.append(_chat_button("apply", "Apply", row))
        actions[pk] = format_html_join(" ", "{}", ((part,) for part in parts))
    return actions


def _chat_button(act: str, label: str, row: BehaviorRequest) -> SafeString:
    """Return a button of the chat's form, which has the token and leads back to the chat."""
    url = reverse(f"admin:behavior_behaviorrequest_{act}", args=[row.pk])
    html = '<button class="pl-button pl-small" type="submit" form="chat-act" formaction="{}">{}</button>'
    return format_html(html, url, label)


def _requests_at(messages: Sequence[Message]) -> dict[int, list[BehaviorRequest]]:
    """Return the requests that were read in these messages, by the message's key. One query, also where it is asked again for the same."""
    rows = BehaviorRequest.objects.select_related(*_SHOWN).order_by("pk")
    rows = rows.defer("gate_result", "extract_result", "map_result")
    prefetch_related_objects(messages, Prefetch("behavior_requests", rows))
    by_message: dict[int, list[BehaviorRequest]] = {}
    for message in messages:
        requests = list(message.behavior_requests.all())
        if requests:
            by_message[message.pk] = requests
    return by_message


def effect_panel(request: HttpRequest, row: BehaviorRequest) -> SafeString | None:
    """Return the panel of effects; None on the page of a request that was never applied.

    Its button to judge is there only for users who may, while no evaluation is under way, and where there are messages to judge.
    """
    if row.status not in (Status.APPLIED, Status.REVERTED):
        return None
    effects = list(BehaviorEffect.objects.filter(request=row).select_related("requested_by")[:MOST_EFFECTS])
    context = {
        "measure_url": "",
        "messages": MESSAGES,
        "most": MOST_MESSAGES,
        "effects": [_effect(effect) for effect in effects],
        "request": row,
    }
    if row.agent is not None and messages_within(row) is not None:
        plan = plan_request(request=row)
        context["plan"] = plan
        context["claim"] = plan.claim.replace("{{agent_name}}", plan.plan.agent.display_name)
        context["heuristic"] = is_heuristic(plan.judge)
        is_under_way = any(effect.status in UNFINISHED for effect in effects)
        if request.user.has_perms(MEASURING) and not is_under_way and not plan.why_not:
            context["measure_url"] = reverse("admin:behavior_behaviorrequest_measure", args=[row.pk])
    return SafeString(render_to_string("admin/behavior/effect.html", context, request))


def _effect(effect: BehaviorEffect) -> dict[str, Any]:
    """Return an effect as the template shows it; without a result where it was not judged (yet)."""
    values = {
        "row": effect,
        "waits": effect.status in UNFINISHED,
        "result": None,
        "verdict": "",
        "unscored": 0,
        "calls": display.link(display.list_url(LLMCall, work_id=effect.work_id), "the calls it made"),
    }
    result = result_of(effect)
    if result is not None:
        values["result"] = result
        values["verdict"] = display.badge(result.verdict, EFFECT_TONES[result.as_requested])
        values["unscored"] = result.before_unscored + result.after_unscored
    return values


@admin.register(BehaviorRequest)
class BehaviorRequestAdmin(ReadOnlyAdmin[BehaviorRequest]):
    list_select_related = ("agent", "message__channel", "message__user", "reviewed_by")
    ordering = ("-created_at", "-pk")
    actions = (retry_chosen,)  # type: ignore[assignment]  # a log of which people decide

    def has_decide_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may use the actions on several (``permissions=["decide"]``)."""
        return request.user.has_perms(DECIDING)

    def get_queryset(self, request: HttpRequest) -> QuerySet[BehaviorRequest]:
        long = ("gate_result", "extract_result", "map_result")
        rows = super().get_queryset(request)
        is_list = request.resolver_match is not None and (request.resolver_match.url_name or "").endswith("changelist")
        return rows.defer(*long, "agent__system_prompt", "agent__sample_lines") if is_list else rows

    def get_panels(self, request: HttpRequest, obj: BehaviorRequest) -> list[SafeString]:
        html = render_to_string("admin/behavior/request.html", page_context(request, obj), request)
        panels = [SafeString(html)]
        effect = effect_panel(request, obj)
        if effect:
            panels.append(effect)
        return [*panels, *super().get_panels(request, obj)]

    @console_action("apply", *DECIDING)
    def apply_view(self, request: HttpRequest, row: BehaviorRequest) -> str:
        apply_request(request=row, user=user_of(request))
        return f"Behaviour request {row.pk} is applied."

    @console_action("apply_edited", *DECIDING)
    def apply_edited_view(self, request: HttpRequest, row: BehaviorRequest) -> str:
        form = TraitForm(request.POST)
        if not form.is_valid():
            errors = [f"{name}: {' '.join(map(str, messages))}" for name, messages in form.errors.items()]
            raise BehaviorError("; ".join(errors))
        cleaned = form.cleaned_data
        trait = TraitValue(**{**cleaned, "sentiment": cleaned["sentiment"] or 0.0})
        apply_request(request=row, user=user_of(request), trait=trait)
        return f"Behaviour request {row.pk} is applied as you wrote it."

    @console_action("reject", *DECIDING)
    def reject_view(self, request: HttpRequest, row: BehaviorRequest) -> str:
        reject_request(request=row, user=user_of(request), why=request.POST.get("why", "").strip()[:1000])
        return f"Behaviour request {row.pk} is rejected."

    @console_action("revert", *DECIDING)
    def revert_view(self, request: HttpRequest, row: BehaviorRequest) -> str:
        revert_request(request=row, user=user_of(request), anyway=request.POST.get("anyway") == "1")
        return f"Behaviour request {row.pk} is reverted: the trait is what it was before."

    @console_page("<int:pk>/undo/", "behavior.view_behaviorrequest", post=True)
    def undo_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Undo an applied request from the conversation in which it was made, and lead back there (``next``).

        Raises:
            PermissionDenied: The user may neither decide about it nor made it.
        """
        row = get_object_or_404(BehaviorRequest.objects.select_related("agent", *_SHOWN), pk=pk)
        if not may_undo(request.user, row):
            raise PermissionDenied
        try:
            revert_request(request=row, user=user_of(request))
        except BehaviorError as problem:
            self.message_user(request, f"Nothing was undone: {str(problem).rstrip('.')}.", messages.ERROR)
        else:
            self.log_change(request, row, "undo pressed")
            self.message_user(
                request, f"{row.agent} behaves as before the request “{row.trait_name}”.", messages.SUCCESS
            )
        return HttpResponseRedirect(page_to_return_to(request, request.POST, self.url("change", row)))

    @console_action("retry", *DECIDING)
    def retry_view(self, request: HttpRequest, row: BehaviorRequest) -> str:
        retry_request(request=row)
        return f"Behaviour request {row.pk} is queued again: a worker (manage.py work) takes it."

    @console_action("measure", *MEASURING)
    def measure_view(self, request: HttpRequest, row: BehaviorRequest) -> str:
        text = request.POST.get("messages", "").strip() or str(MESSAGES)
        number = number_in({"messages": text}, "messages")
        if number is None or not 1 <= number <= MOST_MESSAGES:
            raise ValueError(f"messages {text[:20]!r}: allowed: a whole number from 1 to {MOST_MESSAGES}")
        effect = queue_effect(request=row, messages=number, user=user_of(request))
        return f"Behaviour request {row.pk} will be evaluated. Evaluation {effect.pk} is queued: a worker (manage.py work) judges it."

    @console_page("person/<str:person>/")
    def person_view(self, request: HttpRequest, person: str) -> HttpResponse:
        """Show what a person asked of agents (a key of `correction.behavior.scope.person_of`)."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = person_context(request, person)
        title = f"Requests of {display.marked(context['name'])}"
        return self.page(request, "admin/behavior/person.html", title, **context)

    @console_page("agent/<int:pk>/adopt/", *DECIDING, post=True)
    def adopt_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Make what several people asked for the persona's own, and return to the agent's page."""
        agent = get_object_or_404(Agent, pk=pk)
        name = request.GET.get("name", "")
        stops = request.GET.get("stops") == "1"
        try:
            trait = adopt_shared_request(agent=agent, name=name, stops=stops, user=user_of(request))
        except BehaviorError as problem:
            self.message_user(request, f"Nothing was changed: {problem}.", messages.ERROR)
        else:
            self.message_user(
                request, f"{trait.name} is a trait of the persona now; the versions undo it.", messages.SUCCESS
            )
        return HttpResponseRedirect(f"{display.page_url(agent)}?tab=persona")

    def get_list_display(self, request: HttpRequest) -> Any:
        """Leave out the words, and what quotes them, for users who may not read messages."""
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
        why = why_text(row) or row.error
        return display.folded(why, 70) if why else display.EMPTY


extend(
    Agent,
    "behavior.view_behaviorrequest",
    order=3,
    tab="persona",
    sections=(agent_behavior_panel,),
    anchors=(("requests", "Requests"),),
)
extend(Message, "behavior.view_behaviorrequest", notes=(behavior_notes,))
add_message_actions("behavior.view_behaviorrequest", chat_actions)
