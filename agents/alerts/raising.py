"""Raise, end and acknowledge alerts. It only writes rows, in the transaction of the caller; workers send them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Model, Q, QuerySet
from django.utils import timezone
from django.utils.text import capfirst

from agents.alerts.models import Alert, Delivery, Receiver
from agents.kit.work.queues import wake_workers
from agents.models import Agent


def raise_alert(
    *, kind: str, about: str, title: str, agent: Agent | None = None, page: Model | None = None, lasts: bool = False
) -> Alert:
    """Tell people of something, once: while an alert of the kind and object is open, it only counts up.

    Call it in the transaction that stores what the alert is about. Nothing is sent here.

    Args:
        kind: One of `AlertKind`.
        about: The object, e.g. ``evaluation of michael``, at most 300 characters. It is not shown.
        title: One sentence without what anybody said, at most 300 characters; longer ones are cut.
        agent: Whose alert it is; None = of the installation.
        page: A row whose page in the console shows it.
        lasts: Whether it lasts until `end_alerts` is called; else it is something that happened.

    Returns:
        The alert that is open now: a new one, or the one that was.
    """
    now, key = timezone.now(), {"kind": kind, "about": about[:300]}
    where = "" if page is None else f"{page._meta.app_label}/{page._meta.model_name}/{page.pk}/change/"
    fields: dict[str, Any] = {
        "title": capfirst(" ".join(title.split()))[:300],
        "page": where,
        "ended_at": None if lasts else now,
    }
    with transaction.atomic():
        there = Alert.objects.select_for_update().filter(Alert.open(), **key)
        if (alert := there.first()) is None:
            try:
                with transaction.atomic():
                    alert = Alert.objects.create(agent=agent, **key, **fields)
            except IntegrityError:  # another process was faster
                return there.get()
            queue_deliveries(alert)
        elif not (lasts and alert.ended_at is None):
            there.update(times=F("times") + 1, last_at=now, **fields)
            alert.refresh_from_db()
    return alert


def end_alerts(*, kind: str, still: Iterable[str] = (), about: str | None = None) -> int:
    """Note that what lasted is over: that object, or all of a kind but those that still last; return how many ended."""
    lasting = Alert.objects.filter(kind=kind, ended_at__isnull=True).exclude(about__in=list(still))
    return (lasting if about is None else lasting.filter(about=about)).update(ended_at=timezone.now())


def acknowledge(alerts: QuerySet[Alert], *, user: Any, note: str = "") -> int:
    """Note who has seen these alerts; those acknowledged before stay as they are. Returns how many were new."""
    new = Alert.objects.filter(pk__in=alerts.values("pk"), acknowledged_at__isnull=True)
    return new.update(acknowledged_at=timezone.now(), acknowledged_by=user, note=note.strip()[:500])


def reopen(alert: Alert) -> bool:
    """Take an acknowledgement back. False where a newer alert of the same object is open."""
    rows = Alert.objects.filter(pk=alert.pk, acknowledged_at__isnull=False)
    try:
        with transaction.atomic():
            return bool(rows.update(acknowledged_at=None, acknowledged_by=None, note=""))
    except IntegrityError:
        return False


def remove_alerts(agents: Sequence[Agent]) -> dict[str, int]:
    """Remove the alerts of the example agents, which would stay without a name."""
    rows = Alert.objects.filter(agent__in=agents)
    removed = {str(Alert._meta.verbose_name_plural): rows.count()}
    rows.delete()
    return removed


def queue_deliveries(alert: Alert) -> None:
    """Make a delivery for each receiver that asked for such alerts."""
    wanted = Receiver.objects.filter(is_active=True)
    if alert.agent_id is not None:
        wanted = wanted.filter(Q(agents=alert.agent_id) | Q(agents=None))
    receivers = [one for one in wanted.distinct() if not one.kinds or alert.kind in one.kinds]
    Delivery.objects.bulk_create([Delivery(alert=alert, receiver=receiver) for receiver in receivers])
    if receivers:
        transaction.on_commit(wake_workers)
