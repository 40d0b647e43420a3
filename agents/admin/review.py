"""Failures in the review queue: work of every app that failed lately, until it is dismissed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from django.contrib.auth import get_permission_codename
from django.db.models import CharField, Exists, F, OuterRef, Q, QuerySet, Value
from django.db.models.expressions import BaseExpression
from django.db.models.functions import Cast, Concat
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.display import agent_chip
from agents.kit.admin.access import user_of
from agents.kit.alerting import AlertKind, pages_with_alerts
from agents.kit.console import display
from agents.kit.console.home import FAILURE_DAYS, MOST_COUNTED, count_of_work, since
from agents.kit.console.logs import READING
from agents.kit.console.panels import facts
from agents.kit.console.review import (
    ASSIGNING,
    Decision,
    Named,
    ReviewKind,
    Waits,
    add_review,
    name_agents,
    numbers,
)
from agents.kit.models import ReviewItem
from agents.kit.work.queues import work_models
from agents.models import Agent, Run, about_watched_agents

FAILURES = "failures"
WENT_WRONG = ("failed", "errored")
MOST_LEFT_OUT = 1_000  # newest alerts that are looked through


def failures(request: HttpRequest, agent: str, keys: Collection[str] | None) -> Iterable[Waits]:
    """Return work that failed in the last days and was not dismissed, newest first, of the tables that the user may view.

    Args:
        agent: Slug; only what is of this agent, so that tables without agents are left out. Empty = all.
        keys: Only these keys of the queue; None = all.

    Returns:
        One more than is counted at most, by which one sees that there are more.
    """
    tables: list[QuerySet[Any, Any]] = []
    for model in _viewable_work(request):
        if agent and not _has_agent(model):
            continue
        rows = _failed_rows_of(model)
        if agent:
            rows = rows.filter(agent__slug=agent)
        if keys is not None:
            rows = rows.filter(key__in=keys)
        # SQLite allows no LIMIT in a part of a UNION itself.
        newest = rows.order_by("-created_at").values("pk")[: MOST_COUNTED + 1]
        slug = F("agent__slug") if _has_agent(model) else Value("")
        waiting = model._default_manager.order_by().filter(pk__in=newest)
        tables.append(waiting.values_list(_queue_key(model), "created_at", slug))
    if not tables:
        return []
    first, *others = tables
    waiting_items = [Waits(key, at, slug or "") for key, at, slug in first.union(*others, all=True)]
    waiting_items.sort(key=lambda item: item.at or timezone.now(), reverse=True)
    return waiting_items[: MOST_COUNTED + 1]


def _failed_rows_of(model: type[Any]) -> QuerySet[Any]:
    """Return the rows of a table of work that failed in the last days, with their `key` in the queue.

    Those that were dismissed are left out, and evaluations that an alert is about: it is in the queue itself. So is what is of agents
    that are not watched, and turns in synthetic channels.
    """
    lately = since(24 * FAILURE_DAYS)
    options = model._meta
    page = Concat(Value(f"{options.app_label}/{options.model_name}/"), Cast("pk", CharField()), Value("/change/"))
    dismissed = ReviewItem.objects.filter(kind=FAILURES, dismissed_at__gte=lately, key=OuterRef("key"))
    alerted = pages_with_alerts(kind=AlertKind.EVALUATION_FAILED, since=lately, most=MOST_LEFT_OUT)
    failed = model._default_manager.filter(status__in=WENT_WRONG, created_at__gte=lately)
    waiting: QuerySet[Any] = failed.annotate(key=_queue_key(model), page=page).filter(
        ~Exists(dismissed), ~Q(page__in=alerted)
    )
    if _has_agent(model):
        waiting = waiting.filter(about_watched_agents())
    if model is Run:
        waiting = waiting.exclude(channel__synthetic=True)
    return waiting


def _queue_key(model: type[Any]) -> Concat:
    """Return the key in the queue of rows of a table, as an expression."""
    return Concat(Value(f"{model._meta.label_lower}/"), Cast("pk", CharField()))


def count_failures(request: HttpRequest) -> BaseExpression:
    """Return how many failed, as an expression; the dismissed ones among them."""
    lately = since(24 * FAILURE_DAYS)
    counts = [count_of_work(model, *WENT_WRONG, since=lately) for model in _viewable_work(request)]
    return sum(counts, start=Value(0))


def _viewable_work(request: HttpRequest) -> list[type[Any]]:
    """Return the tables of work that the user may view."""
    viewable = []
    for model in work_models():
        permission = f"{model._meta.app_label}.{get_permission_codename('view', model._meta)}"
        if display.has_page(model) and request.user.has_perm(permission):
            viewable.append(model)
    return viewable


def _has_agent(model: type[Any]) -> bool:
    return any(field.name == "agent" and field.related_model is Agent for field in model._meta.get_fields())


def failed_rows(keys: Collection[str]) -> dict[str, Any]:
    """Return rows of work by their keys in the queue, such as ``agents.run/12``, with a query for each table among them.

    A key of no row is left out.
    """
    rows: dict[str, Any] = {}
    for model in work_models():
        name = model._meta.label_lower
        own = numbers([key.removeprefix(f"{name}/") for key in keys if key.startswith(f"{name}/")])
        if own:
            rows |= {f"{name}/{row.pk}": row for row in model._default_manager.filter(pk__in=own)}
    return rows


def _line(row: Any) -> SafeString:
    return format_html("{} {} {}", str(row._meta.verbose_name).capitalize(), row.pk, display.status_badge(row))


def _show(request: HttpRequest, row: Any) -> SafeString:
    """Return what is needed to decide about a failure; its error may quote messages."""
    why: object = "needs the permission to view messages"
    if request.user.has_perm(READING):
        why = display.block(row.error)
    return facts(
        ("What", display.visible(row)),
        ("Queued", display.moment(row.created_at)),
        ("Ended", display.moment(row.finished_at)),
        ("Tries", f"{row.attempt:,}"),
        ("Why", why),
    )


def _dismiss(request: HttpRequest, row: Any, note: str) -> None:
    """Dismiss a failure; a ValueError where it is dismissed already. The note is not kept: this kind asks for none."""
    item, _ = ReviewItem.objects.get_or_create(kind=FAILURES, key=f"{row._meta.label_lower}/{row.pk}")
    rows = ReviewItem.objects.filter(pk=item.pk, dismissed_at=None)
    if not rows.update(dismissed_at=timezone.now(), dismissed_by=user_of(request)):
        item.refresh_from_db()
        raise ValueError(f"it was dismissed by {item.dismissed_by or 'a user who is gone'} meanwhile.")


def _undo_dismissal(request: HttpRequest, row: Any) -> None:
    rows = ReviewItem.objects.filter(kind=FAILURES, key=f"{row._meta.label_lower}/{row.pk}")
    rows.update(dismissed_at=None, dismissed_by=None)


def _agents_named(slugs: Collection[str]) -> dict[str, Named]:
    """Return agents by slug as the queue shows them, in the order of their names."""
    agents = Agent.objects.filter(slug__in=slugs).only("slug", "display_name", "avatar_color").order_by("display_name")
    return {agent.slug: Named(agent.display_name, agent_chip(agent)) for agent in agents}


name_agents(_agents_named)
add_review(
    ReviewKind(
        name=FAILURES,
        title="Failures",
        one="failure to look at",
        many="failures to look at",
        order=50,
        permissions=(ASSIGNING,),
        fills=f"turns, evaluations and other work that failed in the last {FAILURE_DAYS} days, until it is dismissed.",
        waiting=failures,
        count=count_failures,
        counts_exactly=False,
        find=failed_rows,
        line=_line,
        show=_show,
        decisions=(Decision("dismiss", "Dismiss", "d", "is dismissed", _dismiss, _undo_dismissal, main=True),),
    )
)
