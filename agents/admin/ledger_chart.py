"""The calls of the ledger's list over time: how many a day or an hour, and how many of them failed."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta

from django.db.models import Count, Q, QuerySet
from django.db.models.functions import TruncHour
from django.utils import timezone
from django.utils.safestring import SafeString

from agents.admin import charts, display
from agents.admin.charts import Bar
from agents.models import LLMCall

MOST_BARS = 62  # the newest
MOST_HOURS = MOST_BARS * 24
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def calls_chart(calls: QuerySet[LLMCall], *, most: int | None) -> SafeString | None:
    """The newest calls as stacked bars, by day, or by hour where all are of two days; None where there is nothing to compare.

    Args:
        calls: What the list's filters leave.
        most: How many of the newest are looked at; None for all, where it is known that they are few.
    """
    older = list(calls.order_by("-pk").values_list("pk", flat=True)[most : most + 1]) if most is not None else []
    newest = calls.filter(pk__gt=older[0]) if older else calls
    counted = newest.order_by().annotate(start=TruncHour("created_at")).values("start")
    rows = counted.annotate(n=Count("pk"), failed=Count("pk", filter=~Q(status=LLMCall.Status.OK)))
    hours = {row["start"]: (row["n"] - row["failed"], row["failed"]) for row in rows.order_by("-start")[:MOST_HOURS]}
    if len(hours) < 2:
        return None
    by_hour = max(hours) - min(hours) < 2 * DAY
    found = hours if by_hour else _by_day(hours)
    starts = _starts(min(found), max(found), HOUR if by_hour else DAY)[-MOST_BARS:]
    bars = [_bar(start, found.get(start, (0, 0)), by_hour=by_hour) for start in starts]
    cut = f", of the newest {most:,}" if most is not None and older else ""
    label = f"Calls by {'hour' if by_hour else 'day'}{cut}"
    return charts.bars(bars, label=label, series=("ok", "failed"), unit="calls")


def _by_day(hours: dict[datetime, tuple[int, int]]) -> dict[datetime, tuple[int, int]]:
    days: dict[datetime, tuple[int, int]] = {}
    for start, (ok, failed) in hours.items():
        midnight = _midnight(timezone.localtime(start).date())
        before = days.get(midnight, (0, 0))
        days[midnight] = (before[0] + ok, before[1] + failed)
    return days


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min))


def _starts(first: datetime, last: datetime, step: timedelta) -> list[datetime]:
    """Every hour or day between two, also those in which nothing was called. Days begin at midnight, whatever the clocks do."""
    starts, at = [], first
    while at <= last:
        starts.append(at)
        at = at + step if step < DAY else _midnight(timezone.localtime(at).date() + DAY)
    return starts


def _bar(start: datetime, values: tuple[int, int], *, by_hour: bool) -> Bar:
    local = timezone.localtime(start)
    label = f"{local:%a %H:00}" if by_hour else f"{local.day} {local:%b}"
    return Bar(label=label, values=values, url=_day_url(local.date()))


def _day_url(day: date) -> str:
    return display.list_url(LLMCall, created_at_from=day, created_at_to=day)
