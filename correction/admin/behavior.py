"""The queue of behaviour requests: what people asked agents to do differently, and what somebody decides of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.access import user_of
from agents.admin.transcript import transcript_url
from agents.console import display
from agents.console.display import Tone, word_diff
from agents.console.filters import AgentFilter, DateRangeFilter, RecentValuesFilter
from agents.console.forms import confirmed
from agents.console.site import GrowingTextarea, NumberInput, ReadOnlyAdmin, TextInput
from agents.models import Agent, LLMCall, Message
from agents.persona import TraitValue, render_persona
from correction.behavior.applying import (
    APPLICABLE,
    RETRIABLE,
    BehaviorError,
    apply_request,
    reject_request,
    retry_request,
    revert_request,
)
from correction.behavior.effects import (
    RequestedChange,
    cost_words,
    difference_words,
    estimate_words,
    first_reason,
    plan_as_json,
    plan_request,
    queue_effect,
    verdict_words,
)
from correction.behavior.rules import name_key
from correction.models import BehaviorEffect, BehaviorRequest
from correction.models.behavior import UNFINISHED
from evaluation.admin.display import judge_badge, meter
from evaluation.change.before_after import MESSAGES, MOST_MESSAGES
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


DECIDING = ("correction.change_behaviorrequest", "agents.change_agent")  # it changes a persona
Post = Mapping[str, str]


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


class Act(NamedTuple):
    """One way to decide: what it does, and what is said when it is done."""

    carry_out: Callable[[BehaviorRequest, AbstractBaseUser, Post], object]
    done: str


def may_decide(request: HttpRequest) -> bool:
    """Whether the user may decide about requests: the rights to change them, and to change agents."""
    return request.user.has_perms(DECIDING)


def trait_form(row: BehaviorRequest, post: Post | None = None) -> TraitForm:
    """The form of the proposed trait; of an empty one where none was proposed."""
    proposed = row.trait_after if isinstance(row.trait_after, dict) else {"strength": 0.5}
    return TraitForm(post, initial=proposed)


def refused_by(act: Act, row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> str:
    """Do it; why it could not be done, or nothing."""
    try:
        act.carry_out(row, user, post)
    except BehaviorError as error:
        return f"Nothing was changed: {error}"
    return ""


def _apply(row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> object:
    return apply_request(request=row, user=user)


def _apply_edited(row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> object:
    form = trait_form(row, post)
    if not form.is_valid():
        raise BehaviorError("; ".join(f"{name}: {' '.join(map(str, said))}" for name, said in form.errors.items()))
    given = form.cleaned_data
    trait = TraitValue(
        name=given["name"],
        description=given["description"],
        sentiment=given["sentiment"] or 0.0,
        strength=given["strength"],
    )
    return apply_request(request=row, user=user, trait=trait)


def _reject(row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> object:
    return reject_request(request=row, user=user, why=post.get("why", "").strip()[:1000])


def _revert(row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> object:
    return revert_request(request=row, user=user, anyway=post.get("anyway") == "1")


def _retry(row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> object:
    return retry_request(request=row)


ACTS: dict[str, Act] = {
    "apply": Act(_apply, "is applied"),
    "apply_edited": Act(_apply_edited, "is applied as you wrote it"),
    "reject": Act(_reject, "is rejected"),
    "revert": Act(_revert, "is reverted: the trait is what it was before"),
    "retry": Act(_retry, "is queued again: a worker (manage.py work) takes it"),
}


NAMED = 10  # refusals that are told one by one


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
    for said in refused[:NAMED]:
        model_admin.message_user(request, said, messages.WARNING)
    if len(refused) > NAMED:
        model_admin.message_user(request, f"{len(refused) - NAMED} more were skipped.", messages.WARNING)


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


@admin.register(BehaviorRequest)
class BehaviorRequestAdmin(ReadOnlyAdmin[BehaviorRequest]):
    list_display = ("when", "who", "state", "changed", "sure", "said", "judge_mark", "reason")
    list_display_links = ("when",)
    list_filter = (
        "status",
        "operation",
        "confidence",
        "automatic",
        ("judge", RecentValuesFilter),
        ("agent", AgentFilter),
        ("created_at", DateRangeFilter),
    )
    list_select_related = ("agent", "message", "reviewed_by")
    search_fields = ("trait_name",)
    search_help_text = "name of a trait"
    ordering = ("-created_at", "-pk")
    actions = (apply_chosen, reject_chosen, retry_chosen)  # type: ignore[assignment]  # a log of which people decide
    fieldsets: ClassVar = (
        (
            "As it is stored",
            {
                "fields": (
                    *("created", "started", "finished", "applied", "reviewed", "reverted"),
                    *("attempt", "lease_owner", "automatic"),
                ),
                "classes": ("collapse",),
            },
        ),
    )

    created = display.time_of("created_at")
    started = display.time_of("started_at")
    finished = display.time_of("finished_at")
    applied = display.time_of("applied_at")
    reviewed = display.time_of("reviewed_at")
    reverted = display.time_of("reverted_at")

    def has_decide_permission(self, request: HttpRequest) -> bool:
        """For the actions on several (``permissions=["decide"]``)."""
        return may_decide(request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[BehaviorRequest]:
        long = ("gate_result", "extract_result", "map_result")
        found = super().get_queryset(request)
        is_list = request.resolver_match is not None and (request.resolver_match.url_name or "").endswith("changelist")
        return found.defer(*long, "agent__system_prompt", "agent__sample_lines") if is_list else found

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
        measure = self.admin_site.admin_view(partial(measure_view, self))
        own.append(path("<int:pk>/measure/", measure, name="correction_behaviorrequest_measure"))
        return [*own, *super().get_urls()]

    def act_view(self, request: HttpRequest, pk: int, act: str) -> HttpResponse:
        """Apply, reject, revert or try again; the page of the request says what came of it."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_view_permission(request) or not may_decide(request):
            raise PermissionDenied
        row = BehaviorRequest.objects.select_related("agent").filter(pk=pk).first()
        if row is None:
            raise Http404(f"There is no behaviour request {pk}.")
        said = ACTS[act]
        if problem := refused_by(said, row, user_of(request), request.POST):
            self.message_user(request, problem, messages.ERROR)
        else:
            self.log_change(request, row, f"{act} pressed")
            self.message_user(request, f"Behaviour request {pk} {said.done}.", messages.SUCCESS)
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

    who = display.column("agent", lambda row: display.agent_chip(row.agent), ordering="agent")
    state = display.column("status", status_badge, ordering="status")
    changed = display.column("change", change, ordering="trait_name")

    @admin.display(description="confidence", ordering="confidence")
    def sure(self, row: BehaviorRequest) -> SafeString:
        return display.visible(row.confidence) if row.confidence else display.EMPTY

    @admin.display(description="message")
    def said(self, row: BehaviorRequest) -> SafeString:
        if row.message is None:
            return display.EMPTY
        return display.link(transcript_url(row.message), display.shortened(row.message.text, 70) or "a message")

    @admin.display(description="message")
    def place(self, row: BehaviorRequest) -> SafeString:
        return display.link(transcript_url(row.message), "a message") if row.message else display.EMPTY

    @admin.display(description="judge", ordering="judge")
    def judge_mark(self, row: BehaviorRequest) -> SafeString:
        return judge_badge(row.judge) if row.judge else display.EMPTY

    @admin.display(description="why")
    def reason(self, row: BehaviorRequest) -> SafeString:
        return display.folded(row.why or row.error, 70) if row.why or row.error else display.EMPTY
