"""Notice that the judge is down: a chore that looks at the newest calls in the ledger, of all processes."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

from django.utils import timezone

from agents.alerts.raising import end_alerts, raise_alert
from agents.kit.alerting import AlertKind
from agents.kit.models import LLMCall

LATELY = timedelta(minutes=15)
IN_A_ROW = 5  # calls without an answer; then the judge is down
MOST_CALLS = 500
_Status = LLMCall.Status
NO_ANSWER = (_Status.TIMEOUT, _Status.UNAVAILABLE, _Status.RATE_LIMITED, _Status.REJECTED)


def check_alerts() -> str:
    """Raise an alert for each judge whose last five calls had no answer, and end that of a judge whose newest call was answered.

    Looks at the newest 500 calls of the last 15 minutes. Nothing changes for a judge without calls in that time, or whose newest call
    had no answer but not all of five. An answer that cannot be used is an answer.

    Returns:
        ``2 down``, for the log of chores; empty where none is.
    """
    calls = LLMCall.objects.filter(role="judge", created_at__gte=timezone.now() - LATELY).order_by("-created_at")
    statuses_of_judge: dict[tuple[str, str], list[str]] = defaultdict(list)  # the newest first
    for model, endpoint, status in calls.values_list("model", "endpoint", "status")[:MOST_CALLS]:
        statuses_of_judge[model, endpoint].append(status)
    down = 0
    for (model, endpoint), statuses in statuses_of_judge.items():
        about = f"{model} at {endpoint}"
        newest = statuses[0]
        last_calls = statuses[:IN_A_ROW]
        if newest not in NO_ANSWER:
            end_alerts(kind=AlertKind.JUDGE_DOWN, about=about)
        elif len(last_calls) == IN_A_ROW and all(status in NO_ANSWER for status in last_calls):
            reason = dict(_Status.choices).get(newest, newest)
            title = f"The judge {model} is down: its last {IN_A_ROW} calls had no answer, the newest: {reason}"
            raise_alert(kind=AlertKind.JUDGE_DOWN, about=about, title=title, lasts=True)
            down += 1
    return f"{down} down" if down else ""
