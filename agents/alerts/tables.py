"""The tables of alerts as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from agents.alerts.models import Alert, Delivery, Receiver
from agents.kit.registry import Prune, Table


def _seen_alerts(before: datetime) -> QuerySet[Alert]:
    """Return alerts that were acknowledged and over by then, once their deliveries are gone.

    Those of drift stay: the falls they are about stay, and name them.
    """
    over = Alert.objects.filter(acknowledged_at__lt=before, ended_at__lt=before, deliveries=None)
    return over.exclude(kind=Alert.Kind.DRIFT)


TABLES = (
    Table(
        model=Alert,
        has_saved_views=True,
        operator="change",
        order=-2,
        tab_of="admin:review",
        title="All alerts",
        empty="Raised when a score or the gate's pass rate fell, the judge is down, a budget is reached or an evaluation failed. None is "
        "good news while a worker runs.",
        columns="title=alert kind agent of_build times created_at=raised state",
        filters="acknowledged_at kind agent build created_at",
        search="title*",
        fields=(("", "kind agent of_build times created_at=raised_at last_at=last_raised state deliveries_link"),),
        no_speech="title about page",
        typed="note build resolved_in resolved_after back_in",
        prune=Prune(rows=_seen_alerts),
    ),
    Table(
        model=Receiver,
        editor="*",
        tab_of="admin:review",
        title="Receivers",
        empty="Add one, and alerts are sent by e-mail, to a webhook, or to Slack, Teams and the like. Until then they are here, under the "
        "bell, and nowhere else.",
        columns="name channel where_to kinds_wanted agents_wanted is_active failures=failed_in_a_row",
        filters="is_active channel",
        search="name*",
        deleting="Nothing is sent to it any more. The log of what was sent stays, without its name. To keep it, clear active instead.",
        no_speech="kinds",
        typed="name address",
    ),
    Table(
        model=Delivery,
        tab_of="admin:review",
        title="Deliveries",
        empty="Each alert that is sent to a receiver leaves one, with every try.",
        columns="pk alert receiver status error tries tried_at=last_try created_at=queued",
        filters="status receiver created_at",
        fields=(("", "alert receiver status error answer_code tries tried_at=last_try created_at=queued message_id"),),
        no_speech="error",
        prune=Prune(rows=lambda before: Delivery.objects.filter(status__in=Delivery.FINAL, finished_at__lt=before)),
    ),
)
