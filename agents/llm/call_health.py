"""How the calls of a role went lately: from the sums of the ledger, and the newest one that failed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, Q

from agents.llm.requests import Role
from agents.models import LLMCall
from agents.ops.sums import LEDGER, read


@dataclass(frozen=True, slots=True, kw_only=True)
class CallHealth:
    """Calls since a moment.

    Attributes:
        failed: By status, those that did not end ``ok``.
        mean_ms: Mean milliseconds of all of them; None when there were none.
        last_failure: The newest call that failed; None when none did.
    """

    ok: int
    failed: dict[str, int]
    mean_ms: float | None
    last_failure: LLMCall | None

    @property
    def calls(self) -> int:
        return self.ok + sum(self.failed.values())


def call_health(*, role: Role, since: datetime) -> CallHealth:
    """What became of the calls of a role since then; a second query only when some failed."""
    of_role, by_status = Q(role=role), {"status": F("status")}
    calls: Counter[str] = Counter()
    milliseconds = 0
    for row in read(
        LEDGER, LEDGER.tables[0], start=since, raw_keys=by_status, keys=by_status, raw_where=of_role, where=of_role
    ):
        calls[row["k_status"]] += row["s_calls"]
        milliseconds += row["s_latency_ms"]
    number, ok = calls.total(), calls.pop(LLMCall.Status.OK, 0)
    failed = {status: count for status, count in calls.most_common() if count}
    last = None
    if failed:
        rows = LLMCall.objects.filter(of_role, created_at__gte=since).exclude(status=LLMCall.Status.OK)
        last = rows.order_by("-created_at").first()
    return CallHealth(ok=ok, failed=failed, mean_ms=milliseconds / number if number else None, last_failure=last)
