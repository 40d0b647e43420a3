"""Alerts in the console: the list, acknowledging with a note, receivers and what was sent to them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.module_loading import import_string
from django.utils.safestring import SafeString

from agents.admin.watched import WatchedList
from agents.alerts.delivery import payload, send_test
from agents.alerts.models import Alert, Delivery, Receiver
from agents.alerts.raising import (
    acknowledge,
    acknowledge_build,
    acknowledged_together,
    reopen,
    reopen_together,
    unacknowledged,
)
from agents.alerts.resolving import resolution_words, resolve
from agents.alerts.webhook import secret_of
from agents.builds import first_said_with_tag, tag_name, tag_of
from agents.kit.admin.access import user_of
from agents.kit.alerting import AlertKind
from agents.kit.capability import declared
from agents.kit.console import display
from agents.kit.console.forms import confirmed, report_done
from agents.kit.console.home import MOST_COUNTED, Answers, CountUpTo, HomePart, add_home
from agents.kit.console.panels import facts, table
from agents.kit.console.review import Decision, ReviewKind, Waits, add_review, by_key, newest, numbers
from agents.kit.console.site import ModelAdmin, ReadOnlyAdmin, TextInput, console_action
from agents.kit.models.deliveries import MOST_TRIES
from agents.kit.text.wording import counted
from agents.models import Agent

if TYPE_CHECKING:
    ReceiverModelForm = forms.ModelForm[Receiver]
else:
    ReceiverModelForm = forms.ModelForm

DELIVERIES_SHOWN = 10
ALERTS_UNDER_BELL = 5  # the newest
BUILDS_OFFERED = 20  # the newest of an agent, to resolve an alert in
MOST_OF_BUILD = 1_000  # alerts of a build that are acknowledged at once


class NoteForm(forms.Form):
    note = forms.CharField(
        max_length=500,
        required=False,
        widget=TextInput,
        help_text="For your colleagues: what you do about it. May be empty.",
    )


def alert_state(alert: Alert) -> SafeString:
    """Return whether it is resolved or acknowledged, by whom, when and with what note; or whether it lasts or came back."""
    if alert.resolved_at is not None:
        by = display.isolated(alert.resolved_by) if alert.resolved_by else ""
        badge = display.badge(f"resolved in {resolution_words(alert)}", "good")
        return display.lines(badge, display.moment(alert.resolved_at), by, display.visible(alert.note))
    state = display.acknowledgement(alert, lasts=alert.ended_at is None)
    if alert.back_in and alert.acknowledged_at is None:
        return display.lines(state, display.badge(f"back in {tag_name(tag_of(alert.back_in))}", "bad"))
    return state


def build_tag(alert: Alert) -> SafeString | str:
    """Return the build that an alert is of, as a tag; a dash where there is none."""
    return display.tags(dict([tag_of(alert.build)])) if alert.build else display.EMPTY


def reopened_text(alert: Alert) -> str:
    """Return that an open alert came back, and in which build; empty of others."""
    if not alert.back_in or alert.acknowledged_at is not None:
        return ""
    came_back = f"Reopened: back in {tag_name(tag_of(alert.back_in))}."
    if not alert.resolved_after:  # that was taken back since
        return came_back
    by = f" by {alert.resolved_by}" if alert.resolved_by else ""
    return f"{came_back} It was resolved in {resolution_words(alert)}{by}."


def evidence_of(request: HttpRequest, alert: Alert) -> SafeString:
    """Return what shows that an alert is right, from the app that declares it (`alert_evidence`); empty where there is none."""
    path = declared("alert_evidence").get(alert.kind)
    return import_string(path)(request, alert.pk) if path else SafeString("")


def waiting_of_build(alert: Alert) -> list[int]:
    """Return the ids of the newest `MOST_OF_BUILD` alerts of an alert's build that wait; none for one of no build."""
    if not alert.build:
        return []
    return list(unacknowledged().filter(build=alert.build).values_list("pk", flat=True)[:MOST_OF_BUILD])


def label_for_build(alert: Alert) -> str:
    """Return the button that acknowledges the alerts of a build, with their number; empty where this one is alone."""
    waiting = len(waiting_of_build(alert))
    if waiting < 2:
        return ""
    which = "all" if waiting < MOST_OF_BUILD else "the newest"
    return f"Acknowledge {which} {waiting:,} of {display.shortened(tag_name(tag_of(alert.build)), 40)}"


def shown_of_build(alert: Alert) -> SafeString:
    """Return the hidden input that names the alerts `label_for_build` counts: one raised after the page was opened is not among them."""
    return format_html('<input type="hidden" name="shown" value="{}">', ",".join(map(str, waiting_of_build(alert))))


def review_fields(alert: Alert) -> SafeString:
    """Return the inputs of an alert in the review queue."""
    return shown_of_build(alert) + resolving_fields(alert)


def resolving_fields(alert: Alert) -> SafeString:
    """Return the input for the build that resolves an alert, with the agent's later builds to choose from; empty for one of no build."""
    if not alert.build or alert.agent_id is None:
        return SafeString("")
    key, value = tag_of(alert.build)
    began = {tag[1]: at for (_, tag), at in first_said_with_tag([alert.agent_id]).items() if tag[0] == key}
    own_began = began.get(value)
    later = [build for build, at in began.items() if own_began is None or at > own_began]
    later.sort(key=lambda build: began[build], reverse=True)
    context = {"key": key, "later": [build for build in later if build != value][:BUILDS_OFFERED]}
    return render_to_string("admin/alerts/alert/resolving.html", context)


def page_url(alert: Alert) -> str:
    """Return the page of this console that shows what it is about; its own where there is none."""
    if not alert.page:
        return reverse("admin:alerts_alert_change", args=[alert.pk])
    return f"{reverse('admin:index')}{alert.page}"


def next_pages(alert: Alert) -> list[SafeString]:
    """Return links to what an alert is about, by its name, and to what changed in the agent that drifted."""
    app_label, _, rest = alert.page.partition("/")  # such as evaluation/run/12/change/
    model_name = rest.partition("/")[0]
    links = []
    try:
        model = apps.get_model(app_label, model_name)
        links.append(display.link(page_url(alert), f"the {model._meta.verbose_name}"))
    except LookupError:  # it has no page
        pass
    if alert.agent is not None and alert.kind == AlertKind.DRIFT:
        changed = f"what changed in {alert.agent.display_name}, and what to do"
        links.append(display.link(f"{display.page_url(alert.agent)}#change", changed))
    return links


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin[Alert]):
    list_select_related = ("agent", "acknowledged_by", "resolved_by")
    own_filters: ClassVar = {"acknowledged_at": ("acknowledged_at", admin.EmptyFieldListFilter)}
    actions = ("acknowledge",)  # type: ignore[assignment]

    def has_acknowledge_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("alerts.change_alert")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[WatchedList]:
        return WatchedList

    def get_panels(self, request: HttpRequest, obj: Alert) -> list[SafeString]:
        may_acknowledge = self.has_acknowledge_permission(request)
        context: dict[str, Any] = {
            "alert": obj,
            "pages": next_pages(obj),
            "evidence": evidence_of(request, obj),
            "reopened": reopened_text(obj),
            "resolution": resolution_words(obj) if obj.resolved_at is not None else "",
            "may": may_acknowledge,
        }
        for action in ("acknowledge_one", "acknowledge_build", "resolve_one", "take_back_one", "take_back_build"):
            context[f"{action}_url"] = reverse(f"admin:alerts_alert_{action}", args=[obj.pk])
        if may_acknowledge and obj.acknowledged_at is None:
            context["label_for_build"] = label_for_build(obj)
            context["shown_of_build"] = shown_of_build(obj)
        elif may_acknowledge:
            context["together"] = acknowledged_together(obj).count()
        if may_acknowledge and obj.resolved_at is None:
            context["resolving"] = resolving_fields(obj)
        return [*super().get_panels(request, obj), render_to_string("admin/alerts/alert/page.html", context, request)]

    @admin.action(description="Acknowledge", permissions=["acknowledge"])
    @confirmed("Acknowledge", "They leave the first page and the bell, and stay in this list.", form=NoteForm)
    def acknowledge(self, request: HttpRequest, queryset: QuerySet[Alert], form: NoteForm) -> None:
        done = acknowledge(queryset, user=user_of(request), note=form.cleaned_data["note"])
        report_done(self, request, "alert", "acknowledged", done=done, chosen=queryset.count())

    @console_action("acknowledge", "alerts.change_alert")
    def acknowledge_one(self, request: HttpRequest, alert: Alert) -> str:
        _acknowledge(request, alert, request.POST.get("note", ""))
        return "Acknowledged."

    @console_action("acknowledge-build", "alerts.change_alert")
    def acknowledge_build(self, request: HttpRequest, alert: Alert) -> str:
        done = _acknowledge_build(request, alert, request.POST.get("note", ""))
        return f"{counted(done, 'alert')} acknowledged."

    @console_action("resolve", "alerts.change_alert")
    def resolve_one(self, request: HttpRequest, alert: Alert) -> str:
        _resolve(request, alert, request.POST.get("note", ""))
        return "Resolved. It reopens by itself if it comes back in that build or a later one."

    @console_action("take-back-build", "alerts.change_alert")
    def take_back_build(self, request: HttpRequest, alert: Alert) -> str:
        return f"{counted(_undo_build(request, alert), 'alert')} new again."

    @console_action("take-back", "alerts.change_alert")
    def take_back_one(self, request: HttpRequest, alert: Alert) -> str:
        _undo_acknowledgement(request, alert)
        return "It is new again."

    state = display.column("state", alert_state, ordering="acknowledged_at")
    of_build = display.column("build", build_tag, ordering="build")

    @admin.display(description="sent to")
    def deliveries_link(self, alert: Alert) -> SafeString:
        return display.link(display.list_url(Delivery, alert__id__exact=alert.pk), "its deliveries")


class ReceiverForm(ReceiverModelForm):
    """A receiver; the model checks, field by field, what can be sent to."""

    kinds = forms.MultipleChoiceField(
        choices=AlertKind.choices, required=False, widget=forms.CheckboxSelectMultiple, help_text="none = all"
    )

    class Meta:
        model = Receiver
        fields = ("name", "is_active", "channel", "address", "kinds", "agents")


@admin.register(Receiver)
class ReceiverAdmin(ModelAdmin[Receiver]):
    form = ReceiverForm
    autocomplete_fields = ("agents",)
    fieldsets = (
        (None, {"fields": ("name", "is_active", "channel", "address")}),
        ("What is sent", {"fields": ("kinds", "agents")}),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Receiver | None = None) -> Any:
        """Return the groups of fields; the address of a webhook can be a secret, for those who may change it."""
        if obj is None or self.has_change_permission(request, obj):
            return super().get_fieldsets(request, obj)
        return [(None, {"fields": ("name", "is_active", "channel", "where_to", "kinds_wanted", "agents_wanted")})]

    def get_readonly_fields(self, request: HttpRequest, obj: Receiver | None = None) -> Any:
        return ("where_to", "kinds_wanted", "agents_wanted")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Receiver]:
        return (
            super()
            .get_queryset(request)
            .prefetch_related(Prefetch("agents", Agent.objects.only("slug", "display_name")))
        )

    def get_panels(self, request: HttpRequest, obj: Receiver) -> list[SafeString]:
        """Add what a webhook is sent (the newest alert, else a test) and what became of deliveries.

        The signing secret is only for those who may change the receiver.
        """
        stored = Receiver.objects.get(pk=obj.pk)  # a form that was refused has put what was typed into `obj`
        may_change = self.has_change_permission(request, obj)
        newest_alert = Alert.objects.select_related("agent").order_by("-pk").first()
        context = {
            "receiver": stored,
            "may": may_change,
            "console_url": settings.CONSOLE_URL,
            "is_webhook": stored.channel == Receiver.Channel.WEBHOOK,
            "secret": secret_of(stored.salt.hex) if may_change else "",
            "payload": json.dumps(payload(newest_alert), indent=2, ensure_ascii=False),
            "is_test": newest_alert is None,
            "test": reverse("admin:alerts_receiver_test", args=[obj.pk]),
            "log": _delivery_log(stored),
            "all": display.list_url(Delivery, receiver__id__exact=obj.pk),
        }
        panel = render_to_string("admin/alerts/alert/receiver.html", context, request)
        return [*super().get_panels(request, obj), panel]

    @console_action("test", "alerts.change_receiver")
    def test(self, request: HttpRequest, receiver: Receiver) -> str:
        if not receiver.is_active:
            raise ValueError("it is not active: nothing is sent to it")
        send_test(receiver)
        return "A test alert waits for a worker. Load this page again in a few seconds to see what became of it."

    def response_post_save_add(self, request: HttpRequest, obj: Receiver) -> HttpResponseRedirect:
        """Lead to the page of the new receiver: the test is there."""
        return HttpResponseRedirect(self.url("change", obj))

    def save_model(self, request: HttpRequest, obj: Receiver, form: Any, change: bool) -> None:
        if not change:
            obj.created_by = user_of(request)
        if "address" in form.changed_data:
            obj.failures = 0
            obj.retry_at = None
        super().save_model(request, obj, form, change)

    where_to = display.column("to", lambda receiver: display.isolated(receiver.where))

    @admin.display(description="kinds")
    def kinds_wanted(self, receiver: Receiver) -> str:
        names = dict(AlertKind.choices)
        return ", ".join(str(names.get(kind, kind)) for kind in receiver.kinds) or "all"

    @admin.display(description="agents")
    def agents_wanted(self, receiver: Receiver) -> SafeString | str:
        names = [display.isolated(agent.display_name) for agent in receiver.agents.all()]
        if not names:
            return "all"
        return SafeString(", ".join(names))


def _delivery_log(receiver: Receiver) -> SafeString:
    """Return a table of the ten newest deliveries to a receiver, with when one that failed is tried next; empty without any."""
    rows = []
    for delivery in receiver.deliveries.select_related("alert").order_by("-pk")[:DELIVERIES_SHOWN]:
        next_try = SafeString("")
        if delivery.status == Delivery.Status.PENDING and delivery.tries:
            # No worker takes it before: what waits has no lease.
            next_try = format_html("next try {}", display.moment(delivery.lease_expires_at))
        about = display.page_of(delivery.alert) if delivery.alert else "test"
        outcome = display.lines(display.status_badge(delivery), display.visible(delivery.error), next_try)
        answer = delivery.answer_code or display.EMPTY
        tries = f"{delivery.tries} of {MOST_TRIES}"
        rows.append((about, outcome, answer, tries, display.moment(delivery.tried_at)))
    return table(("Alert", "Outcome", "Answer", "Tries", "Last try"), rows, label="Deliveries")


# -- the review queue
def _waiting(request: HttpRequest, agent: str, keys: Collection[str] | None) -> Iterable[Waits]:
    return newest(unacknowledged(), agent, keys)


def _show(request: HttpRequest, alert: Alert) -> SafeString:
    """Return what is needed to decide about an alert: what it is of, and what shows it."""
    rows: list[tuple[str, object]] = [
        ("Kind", alert.get_kind_display()),
        ("Raised", display.moment(alert.created_at)),
        ("How often", f"{alert.times:,}"),
    ]
    if alert.build:
        rows.append(("Build", build_tag(alert)))
    if alert.ended_at is None:
        rows.append(("Still so", "yes"))
    rows.append(("See", SafeString(" · ".join(next_pages(alert))) or display.EMPTY))
    reopened = reopened_text(alert)
    if reopened:
        reopened = format_html('<p class="pl-reason">{}</p>', display.visible(reopened))
    return format_html("{}{}{}", reopened, evidence_of(request, alert), facts(*rows))


def _acknowledge(request: HttpRequest, alert: Alert, note: str) -> None:
    """Acknowledge an alert; a ValueError where a build was typed that resolves it, or another person was faster."""
    _refuse_named_build(request)
    if not acknowledge(Alert.objects.filter(pk=alert.pk), user=user_of(request), note=note):
        raise ValueError("it is acknowledged already")


def _refuse_named_build(request: HttpRequest) -> None:
    """Raise a ValueError where the form names a build that resolves an alert: Enter in that field presses the first button."""
    if request.POST.get("in_build", "").strip():
        raise ValueError("a build is named that resolves it: press Resolve, or clear it")


def _acknowledge_build(request: HttpRequest, alert: Alert, note: str) -> int:
    """Acknowledge the alerts of an alert's build that the form shows; return how many. A ValueError as in `_acknowledge`."""
    _refuse_named_build(request)
    alert_ids = numbers(request.POST.get("shown", "").split(",")[:MOST_OF_BUILD])
    done = acknowledge_build(build=alert.build, user=user_of(request), note=note, ids=alert_ids)
    if not done:
        raise ValueError("none of those shown waits any more")
    return done


def _undo_build(request: HttpRequest, alert: Alert) -> int:
    """Take back what was acknowledged at once with an alert; return how many. A ValueError where that cannot be done any more."""
    done = reopen_together(alert)
    if not done:
        raise ValueError("they are not acknowledged, or the same was raised again since")
    return done


def _resolve(request: HttpRequest, alert: Alert, note: str) -> None:
    """Resolve an alert in the build that the form names; a ValueError where that is not allowed, or was done before."""
    if not resolve(alert, in_build=request.POST.get("in_build", ""), user=user_of(request), note=note):
        raise ValueError("it is resolved already")


def _undo_acknowledgement(request: HttpRequest, alert: Alert) -> None:
    """Take an acknowledgement back; a ValueError where that cannot be done any more."""
    if not reopen(alert):
        raise ValueError("it is not acknowledged, or the same was raised again since")


add_review(
    ReviewKind(
        name="alerts",
        title="Alerts",
        one="alert to acknowledge",
        many="alerts to acknowledge",
        order=10,
        permissions=("alerts.change_alert",),
        fills="raised when a score or the gate's pass rate fell, the judge is down, a budget is reached or an evaluation failed.",
        waiting=_waiting,
        count=lambda request: CountUpTo(unacknowledged()),
        find=partial(by_key, Alert.objects.select_related("agent", "resolved_by")),
        line=lambda alert: display.visible(alert.title),
        show=_show,
        note="For your colleagues: what you do about it.",
        fields=review_fields,
        decisions=(
            Decision(
                "acknowledge", "Acknowledge", "a", "is acknowledged", _acknowledge, _undo_acknowledgement, main=True
            ),
            Decision(
                "acknowledge_build",
                "Acknowledge all of its build",
                "b",
                "and all others of its build are acknowledged",
                _acknowledge_build,
                _undo_build,
                label_for=label_for_build,
            ),
            Decision(
                "resolve",
                "Resolve in this build",
                "r",
                "is resolved; it reopens by itself if it comes back",
                _resolve,
                _undo_acknowledgement,
                label_for=lambda alert: "Resolve" if alert.build else "",
            ),
        ),
    )
)


def bell(request: HttpRequest, answers: Answers) -> SafeString:
    """Return the bell of the header: how many alerts nobody has acknowledged (up to "100+"), and the five newest. One query."""
    alerts = list(unacknowledged().only("title", "created_at")[: MOST_COUNTED + 1])
    context = {
        "number": display.count_up_to(len(alerts), MOST_COUNTED),
        "newest": alerts[:ALERTS_UNDER_BELL],
        "all": display.list_url(Alert),
        "waiting": display.list_url(Alert, acknowledged_at__isempty=1),
    }
    return render_to_string("admin/alerts/alert/bell.html", context)


add_home(HomePart(place="header", order=10, permission="alerts.view_alert", render=bell))
