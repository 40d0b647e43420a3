"""Raise, end and acknowledge alerts, for `agents.kit.alerting`. It writes rows in the transaction of the caller; workers send them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Model, Q, QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.module_loading import import_string
from django.utils.text import capfirst

from agents.alerts.models import LONGEST_BUILD, Alert, Delivery, Receiver
from agents.builds import tag_name, tag_of
from agents.kit.capability import declared
from agents.kit.text.storable import storable
from agents.kit.work.queues import wake_workers
from agents.models import Agent, about_watched_agents

NOT_RESOLVED = {"resolved_at": None, "resolved_by": None, "resolved_in": "", "resolved_after": ""}


def raise_alert_if_watched(*, agent: Agent | None = None, **alert: Any) -> Alert | None:
    """Raise an alert, see `raise_alert`; None for an agent that is not watched, as in demonstrations and experiments."""
    if agent is not None and not Agent.objects.watched().filter(pk=agent.pk).exists():
        return None
    return raise_alert(agent=agent, **alert)


def raise_alert(
    *,
    kind: str,
    about: str,
    title: str,
    agent: Agent | None = None,
    page: Model | None = None,
    lasts: bool = False,
    build: str = "",
    reopens: int | None = None,
) -> Alert:
    """Raise an alert, and queue it for its receivers; where one of the kind and object is open, only count that one up.

    Not even counted is what lasts, while the alert of it has not ended. A newer title and page replace the older. The arguments:
    `agents.kit.alerting.raise_alert`.

    Returns:
        The alert that is open now: a new one, or the one that was.
    """
    now = timezone.now()
    about = about[:300]
    address = "" if page is None else f"{page._meta.app_label}/{page._meta.model_name}/{page.pk}/change/"
    fields: dict[str, Any] = {
        "title": capfirst(" ".join(title.split()))[:300],
        "page": address,
        "ended_at": None if lasts else now,
    }
    if len(build) > LONGEST_BUILD:
        build = ""
    with transaction.atomic():
        if reopens is not None:
            reopened = _raise_again(reopens, build=build, fields=fields)
            if reopened is not None:
                return reopened
        open_alerts = Alert.objects.select_for_update().filter(Alert.open(), kind=kind, about=about)
        alert = open_alerts.first()
        if alert is None:
            try:
                with transaction.atomic():
                    alert = Alert.objects.create(kind=kind, about=about, agent=agent, build=build, **fields)
            except IntegrityError:  # another process was faster
                return open_alerts.get()
            queue_deliveries(alert)
            return alert
        lasts_since_then = lasts and alert.ended_at is None
        if not lasts_since_then:
            open_alerts.update(times=F("times") + 1, last_at=now, **fields)
            alert.refresh_from_db()
    return alert


def _raise_again(pk: int, *, build: str, fields: Mapping[str, Any]) -> Alert | None:
    """Reopen the alert with this key where a build resolved it, and queue it for its receivers; where it is open only count it up.

    Returns:
        The alert; None where it was acknowledged without a build, or is gone.
    """
    alert = Alert.objects.select_for_update().filter(pk=pk).first()
    if alert is None:
        return None
    is_resolved = alert.resolved_at is not None
    if alert.acknowledged_at is not None and not is_resolved:
        return None
    back_in = " ".join(tag_name(tag_of(build)).split())  # one line, for the subject of an e-mail
    title = f"Back in {back_in}: {fields['title']}"[:300]
    columns = {**fields, "title": title, "times": F("times") + 1, "last_at": timezone.now()}
    if is_resolved:
        columns |= {"acknowledged_at": None, "acknowledged_by": None, "note": "", "resolved_at": None}
        columns |= {"build": build, "back_in": build}
    try:
        with transaction.atomic():
            Alert.objects.filter(pk=pk).update(**columns)
    except IntegrityError:  # another alert of the same object is open
        return None
    alert.refresh_from_db()
    if is_resolved:
        queue_deliveries(alert)
    return alert


def end_alerts(*, kind: str, still: Iterable[str] = (), about: str | None = None) -> int:
    """Note that what lasted is over; return how many alerts ended.

    Args:
        still: Objects that still last, whose alerts stay as they are.
        about: The one object that is over; None = all of the kind.
    """
    over = Alert.objects.filter(kind=kind, ended_at__isnull=True).exclude(about__in=list(still))
    if about is not None:
        over = over.filter(about=about)
    return over.update(ended_at=timezone.now())


def unacknowledged() -> QuerySet[Alert]:
    """Return the alerts that nobody has acknowledged, newest first; those of the examples only where a team has no agents of its own."""
    return Alert.objects.filter(about_watched_agents(), acknowledged_at__isnull=True).order_by("-pk")


def acknowledge(alerts: QuerySet[Alert], *, user: Any, note: str = "") -> int:
    """Note who has seen these alerts; those acknowledged before stay as they are. Returns how many were new."""
    state = {"acknowledged_at": timezone.now(), "acknowledged_by": user, "note": note_to_store(note)}
    with transaction.atomic():
        waiting = Alert.objects.select_for_update().filter(pk__in=alerts.values("pk"), acknowledged_at__isnull=True)
        return write_state_and_tell_observers(dict(waiting.order_by("pk").values_list("pk", "kind")), state)


def note_to_store(note: str) -> str:
    """Return a note as the database takes it: at most 500 characters."""
    text: str = storable(note)
    return text.strip()[:500]


def acknowledge_alerts(*, ids: Collection[int], user: Any, note: str = "") -> int:
    """Note who has seen the alerts of these ids, see `acknowledge`."""
    return acknowledge(Alert.objects.filter(pk__in=ids), user=user, note=note)


def acknowledge_build(*, build: str, user: Any, note: str = "", ids: Collection[int] | None = None) -> int:
    """Note who has seen the alerts of a build, such as ``build=41``, that wait in the review queue; return how many.

    Args:
        ids: Only these: what a person was shown. None = all that wait now.
    """
    if not build:
        return 0
    waiting = unacknowledged().filter(build=build)
    if ids is not None:
        waiting = waiting.filter(pk__in=ids)
    return acknowledge(waiting, user=user, note=note)


def acknowledged_together(alert: Alert) -> QuerySet[Alert]:
    """Return the alerts of the same build that were acknowledged at once with this one, itself among them; none where it is not so.

    What a build resolves is not among them, and has none: that was said of it alone.
    """
    if not alert.build or alert.acknowledged_at is None or alert.resolved_at is not None:
        return Alert.objects.none()
    return Alert.objects.filter(build=alert.build, acknowledged_at=alert.acknowledged_at, resolved_at__isnull=True)


def reopen_together(alert: Alert) -> int:
    """Take the acknowledgement of `acknowledged_together` back; return of how many that was done, see `reopen`."""
    return sum(reopen(acknowledged) for acknowledged in acknowledged_together(alert))


def reopen(alert: Alert) -> bool:
    """Take an acknowledgement back, with its note, and that a build resolves it; return whether that was done.

    False where the alert is not acknowledged, or a newer alert of the same object is open: only one may be open at a time.
    """
    state = {"acknowledged_at": None, "acknowledged_by": None, "note": ""}
    try:
        with transaction.atomic():
            rows = Alert.objects.select_for_update().filter(pk=alert.pk, acknowledged_at__isnull=False)
            return bool(write_state_and_tell_observers(dict(rows.values_list("pk", "kind")), state, **NOT_RESOLVED))
    except IntegrityError:
        return False


def write_state_and_tell_observers(kinds: Mapping[int, str], state: Mapping[str, Any], **more: Any) -> int:
    """Write the columns of a state to alerts, and call what apps declare to observe alerts of a kind (`alert_observers`).

    Args:
        kinds: Id to kind of each alert.
        more: Columns that observers do not get.

    Returns:
        How many alerts were changed.
    """
    changed = Alert.objects.filter(pk__in=kinds).update(**state, **more)
    for kind, observer in declared("alert_observers").items():
        ids = [pk for pk, alert_kind in kinds.items() if alert_kind == kind]
        if ids:
            import_string(observer)(ids, **state)
    return changed


def pages_with_alerts(*, kind: str, since: datetime, most: int) -> QuerySet[Alert, Any]:
    """Return the pages of the newest alerts of a kind that were raised since then."""
    raised = Alert.objects.filter(kind=kind, last_at__gte=since).order_by("-last_at")
    return raised.values("page")[:most]


def alert_url(*, pk: int) -> str:
    """Return the page of an alert in the console."""
    return reverse("admin:alerts_alert_change", args=[pk])


def remove_alerts(agents: Sequence[Agent]) -> dict[str, int]:
    """Remove the alerts of the example agents, which would stay without a name."""
    rows = Alert.objects.filter(agent__in=agents)
    removed = {str(Alert._meta.verbose_name_plural): rows.count()}
    rows.delete()
    return removed


def queue_deliveries(alert: Alert) -> None:
    """Make a delivery for each active receiver that asked for alerts of this kind and agent; workers send them after the commit.

    A receiver that names no kinds, or no agents, asked for all. An alert of no agent goes to receivers of any agents.
    """
    active = Receiver.objects.filter(is_active=True)  # one that is left alone for a while is sent it later
    if alert.agent_id is not None:
        active = active.filter(Q(agents=alert.agent_id) | Q(agents=None))
    receivers = [receiver for receiver in active.distinct() if not receiver.kinds or alert.kind in receiver.kinds]
    Delivery.objects.bulk_create([Delivery(alert=alert, receiver=receiver) for receiver in receivers])
    if receivers:
        transaction.on_commit(wake_workers)
