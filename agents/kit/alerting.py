"""Alerts for every app: raise, end and acknowledge them without knowing who sends them.

The app that stores and sends alerts declares what is called here, in its `apps.py`: ``alerting = {"raise_alert":
"agents.alerts.raising.raise_alert"}``. Where no such app is installed, nothing happens and nothing is sent.

An app that keeps the state of its alerts in rows of its own declares a function for their kind, ``alert_observers = {"drift": "…"}``. It is
called in the transaction that acknowledges or reopens alerts, with their ids and the new `acknowledged_at`, `acknowledged_by` and `note`.

An app that knows what an alert rests on declares what shows it on the alert's card and page, ``alert_evidence = {"drift": "…"}``: a
function of the request and the alert's id that returns HTML, empty where there is nothing to show.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import QuerySet
from django.utils.module_loading import import_string

from agents.kit.capability import declared


class AlertKind(models.TextChoices):
    DRIFT = "drift", "drift"
    GATE_PASS_RATE = "gate_pass_rate", "gate pass rate fell"
    JUDGE_DOWN = "judge_down", "judge down"
    JUDGE_CHANGED = "judge_changed", "judge changed"
    BUDGET = "budget", "budget reached"
    EVALUATION_FAILED = "evaluation_failed", "evaluation failed"


def raise_alert(
    *,
    kind: str,
    about: str,
    title: str,
    agent: models.Model | None = None,
    page: models.Model | None = None,
    lasts: bool = False,
    build: str = "",
    reopens: int | None = None,
) -> int | None:
    """Tell people of something, once: while an alert of the kind and object is open, it only counts up.

    Call it in the transaction that stores what the alert is about. It only writes rows; workers send them.

    Args:
        kind: One of `AlertKind`.
        about: The object, e.g. ``evaluation of michael``, at most 300 characters. It is not shown.
        title: One sentence without what anybody said, at most 300 characters; longer ones are cut.
        agent: Whose alert it is; None = of the installation.
        page: A row whose page in the console shows it.
        lasts: Whether it lasts until `end_alerts` is called; else it is something that happened.
        build: The build that it is of, a tag such as ``build=41``; empty = not known, or of none.
        reopens: Id of an alert that came back in this build (see `came_back`): it is opened again instead of a new one. Where it is open
            it only counts up.

    Returns:
        The id of the alert that is open now: a new one, or the one that was. None where no app has alerts, and for agents that no alert
        is about: an experiment's, and the examples beside a team's own.
    """
    fields = {"kind": kind, "about": about, "title": title, "agent": agent, "page": page, "lasts": lasts}
    alert = _call_declared("raise_alert", **fields, build=build, reopens=reopens)
    return None if alert is None else int(alert.pk)


def came_back(pk: int, *, build: str) -> bool | None:
    """Return whether an alert that a build resolves came back in a build, a tag such as ``build=43``.

    True in the build that resolves it and in later ones, False in earlier ones. None where that is not known: nothing resolves it, `build`
    is empty, or no app has alerts.
    """
    is_back: bool | None = _call_declared("came_back", pk=pk, build=build)
    return is_back


def end_alerts(*, kind: str, still: Iterable[str] = (), about: str | None = None) -> int:
    """Note that what lasted is over: of a kind the object `about`, or (None) all but the objects in `still`; return how many ended."""
    return _call_declared("end_alerts", kind=kind, still=still, about=about) or 0


def acknowledge_alerts(ids: Collection[int], *, user: Any, note: str = "") -> int:
    """Note who has seen these alerts; those acknowledged before stay as they are. Returns how many were new."""
    return _call_declared("acknowledge_alerts", ids=ids, user=user, note=note) or 0


def pages_with_alerts(*, kind: str, since: datetime, most: int) -> QuerySet[Any, Any] | set[str]:
    """Return the pages, as stored by `raise_alert`, of the newest `most` alerts raised since a moment, for a condition on rows.

    Empty where no app has alerts.
    """
    pages: QuerySet[Any, Any] | None = _call_declared("pages_with_alerts", kind=kind, since=since, most=most)
    return set() if pages is None else pages


def alert_url(pk: int) -> str:
    """Return where the console shows an alert; empty where no app has alerts."""
    return _call_declared("alert_url", pk=pk) or ""


def _call_declared(name: str, **arguments: Any) -> Any:
    """Call the declared function; None where there is none."""
    path = declared("alerting").get(name)
    return None if path is None else import_string(path)(**arguments)
