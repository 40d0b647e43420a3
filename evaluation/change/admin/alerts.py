"""The falls that were found: their list and pages, and what shows them on the cards and pages of alerts."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Case, QuerySet, Value, When
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.watched import WatchedList
from agents.kit.admin.access import user_of
from agents.kit.alerting import alert_url
from agents.kit.console import display
from agents.kit.console.forms import report_done
from agents.kit.console.site import ReadOnlyAdmin
from evaluation.admin.display import judged_by, meter
from evaluation.calibration.admin.trust import not_usable, trust
from evaluation.calibration.passport import passports
from evaluation.change.admin.drift import dimension_chart
from evaluation.change.admin.drift_overview import PERMISSIONS, change_card
from evaluation.change.evidence import JudgeAndProcedure
from evaluation.change.models import Change, DriftAlert
from evaluation.change.over_time import acknowledge_drifts
from evaluation.change.overview import drift_at


# -- what shows a fall
def evidence_of_alert(request: HttpRequest, alert_id: int) -> SafeString:
    """Return what shows the newest fall of an alert, see `evidence_of_fall`; empty where none is of this alert."""
    fall = DriftAlert.objects.filter(alert_id=alert_id).order_by("-pk").first()
    return evidence_of_fall(request, fall, _change_that_shows(fall)) if fall is not None else SafeString("")


def evidence_of_fall(request: HttpRequest, fall: DriftAlert, change: Change | None) -> SafeString:
    """Return the sentence of a fall with messages from before and since, as the drift overview has them.

    Empty for those who may not see the overview; the messages are left out for those who may not view messages.

    Args:
        change: The stored change that shows the fall; None where the agent had no baseline.
    """
    if not request.user.has_perms(PERMISSIONS):
        return SafeString("")
    run = change.evaluation_run if change is not None else None
    drift = None
    if run is not None:
        drift = drift_at(run, fall.dimension, quotes=request.user.has_perm("agents.view_message"))
    context = {
        "card": change_card(drift) if drift is not None else None,
        "later_than": fall.evaluation_run_id if run is not None and run.pk != fall.evaluation_run_id else None,
    }
    return SafeString(render_to_string("admin/change/drift/evidence.html", context))


def _change_that_shows(fall: DriftAlert) -> Change | None:
    """Return the stored change of the evaluation in which a fall was noticed, or else of the first one since it began.

    None without any: then the agent had no baseline.
    """
    noticed_first = Case(When(evaluation_run=fall.evaluation_run_id, then=Value(0)), default=Value(1))
    rows = Change.objects.filter(
        agent=fall.agent_id,
        judge=fall.judge,
        procedure=fall.procedure,
        dimension=fall.dimension,
        proposition="",
        measured_at__gte=fall.since,
    )
    return rows.select_related("evaluation_run__agent").order_by(noticed_first, "measured_at", "pk").first()


# -- list and pages
@admin.register(DriftAlert)
class DriftAlertAdmin(ReadOnlyAdmin[DriftAlert]):
    own_filters: ClassVar = {"acknowledged": ("acknowledged_at", admin.EmptyFieldListFilter)}
    list_select_related = ("agent", "schedule", "acknowledged_by")
    actions = ("acknowledge",)  # type: ignore[assignment]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[WatchedList]:
        return WatchedList

    def get_panels(self, request: HttpRequest, obj: DriftAlert) -> list[SafeString]:
        """Return the panels of an alert: its fields, what shows it, what to do, and the agent's scores in its dimension by its judge."""
        panels = super().get_panels(request, obj)
        judged = JudgeAndProcedure(judge=obj.judge, procedure=obj.procedure)
        change = _change_that_shows(obj)
        chart = None
        if change is None or not change.result.of_words:  # else scores over time are of something else
            chart = dimension_chart(request, obj.agent, obj.dimension, judged)
        judge_passports = passports(obj.judge, obj.procedure, [obj.dimension], agent=obj.agent.slug)
        context: dict[str, Any] = {
            "evidence": evidence_of_fall(request, obj, change),
            "not_usable": not_usable(judge_passports),
            "trust": trust(judge_passports, request.user),
            "changed": display.link(
                f"{display.page_url(obj.agent)}#change", f"what changed in {obj.agent.display_name}, and what to do"
            ),
            "waiting": self._acknowledge_link(request, obj),
        }
        panels.append(render_to_string("admin/change/drift/alert.html", {**context, "chart": chart}))
        return panels

    def _acknowledge_link(self, request: HttpRequest, alert: DriftAlert) -> SafeString | str:
        """Return the way to the alert that was sent, for those who may acknowledge it; empty when there is nothing to do."""
        if alert.acknowledged_at is not None or alert.alert_id is None:
            return ""
        if not self.has_acknowledge_permission(request):
            return ""
        url = alert_url(alert.alert_id)
        return display.link(url, "acknowledge the alert") if url else ""

    def has_acknowledge_permission(self, request: HttpRequest) -> bool:
        if request.user.has_perm("alerts.change_alert"):
            return True
        return request.user.has_perm("change.change_driftalert")  # where nothing sends alerts

    @admin.action(description="Acknowledge", permissions=["acknowledge"])
    def acknowledge(self, request: HttpRequest, queryset: QuerySet[DriftAlert]) -> None:
        done = acknowledge_drifts(queryset, user=user_of(request))
        report_done(self, request, "alert", "acknowledged", done=done, chosen=queryset.count())

    @admin.display(description="fell from, to")
    def change(self, alert: DriftAlert) -> SafeString:
        return format_html('<span class="pl-pair">{} → {}</span>', f"{alert.before:.1f}", meter(alert.after))

    judge_mark = display.column("judge", judged_by, ordering="judge")

    state = display.column("state", display.acknowledgement, ordering="acknowledged_at")
