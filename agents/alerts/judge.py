"""Notice that the judge is down: a chore that looks at the newest calls in the ledger, of all processes."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

from django.utils import timezone

from agents.alerts.raising import end_alerts, raise_alert
from agents.kit.alerting import AlertKind
from agents.kit.models import LLMCall

LATELY = timedelta(minutes=15)
IN_A_ROW = 5  # failed calls of a judge that say that it is down
MOST_CALLS = 500
_Status = LLMCall.Status
NO_ANSWER = (_Status.TIMEOUT, _Status.UNAVAILABLE, _Status.RATE_LIMITED, _Status.REJECTED)


def check_alerts() -> str:
    """Raise an alert for each judge whose last calls all had no answer, and end those of judges that answer again."""
    newest = LLMCall.objects.filter(role="judge", created_at__gte=timezone.now() - LATELY).order_by("-created_at")
    calls: dict[tuple[str, str], list[str]] = defaultdict(list)
    for model, endpoint, status in newest.values_list("model", "endpoint", "status")[:MOST_CALLS]:
        calls[model, endpoint].append(status)
    down = 0
    for (model, endpoint), statuses in calls.items():
        about = f"{model} at {endpoint}"
        if statuses[0] not in NO_ANSWER:
            end_alerts(kind=AlertKind.JUDGE_DOWN, about=about)
        elif len(statuses) >= IN_A_ROW and set(statuses[:IN_A_ROW]) <= set(NO_ANSWER):
            words = dict(_Status.choices).get(statuses[0], statuses[0])
            title = f"The judge {model} is down: its last {IN_A_ROW} calls had no answer, the newest: {words}"
            raise_alert(kind=AlertKind.JUDGE_DOWN, about=about, title=title, lasts=True)
            down += 1
    return f"{down} down" if down else ""
