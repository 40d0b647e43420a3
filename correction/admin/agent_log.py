"""What correcting lately did for an agent, on its own page: drafts that were held back, nudges, costs."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.transcript import transcript_url
from agents.llm.ledger import Totals
from agents.models import Agent, LLMCall
from correction.admin.display import Ending, against_threshold, attempt_badge, endings, source_badge
from correction.costs import CORRECTION, CostRow, get_cost_summary
from correction.models import CorrectionLog, InterventionLog, Outcome

SHOWN = 5
MOST_LOOKED_AT = 500  # newest rows of the agent's that are searched for what the panel shows
COST_WINDOW = "7d"
CORRECTED = (Outcome.CORRECTED, Outcome.PASSED_AFTER_RETRY, Outcome.FORCED_THROUGH)
READING = "agents.view_message"


def corrections_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """The last drafts that did not pass at once."""
    newest = CorrectionLog.objects.filter(agent=agent).order_by("-created_at", "-pk").values("pk")[:MOST_LOOKED_AT]
    held_back = CorrectionLog.objects.filter(pk__in=list(newest.values_list("pk", flat=True)), outcome__in=CORRECTED)
    held_back = held_back.select_related("message__channel").prefetch_related("dimension_results").order_by("-pk")
    rows = list(held_back[:SHOWN])
    ended = endings(rows)
    may_read = request.user.has_perm(READING)
    context = {
        "rows": [_log(log, ended[log.session], may_read=may_read) for log in rows],
        "looked_at": MOST_LOOKED_AT,
        "logs_url": display.list_url(CorrectionLog, agent__id__exact=agent.pk),
    }
    return SafeString(render_to_string("admin/correction/agent_corrections.html", context, request))


def _log(log: CorrectionLog, ending: Ending, *, may_read: bool) -> dict[str, Any]:
    return {
        "when": display.moment(log.created_at),
        "page": display.page_of(log, f"attempt {log.attempt}"),
        "outcome": attempt_badge(log, ending),
        "source": source_badge(log),
        "results": [against_threshold(result) for result in log.dimension_results.all()],
        "draft": display.visible(display.shortened(" ".join(log.judged_text.split()), 160)) if may_read else "",
        "said": display.link(transcript_url(log.message), "what was said") if log.message is not None else "",
    }


def nudges_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """The last nudges that it was shown."""
    newest = InterventionLog.objects.filter(agent=agent).order_by("-created_at", "-pk").values_list("pk", flat=True)
    fired = InterventionLog.objects.filter(pk__in=list(newest[:MOST_LOOKED_AT]), fired=True).select_related("channel")
    context = {
        "rows": [
            {
                "when": display.moment(log.created_at),
                "page": display.page_of(log, log.name.replace("_", " ")),
                "channel": display.visible(log.channel) if log.channel is not None else "",
                "nudge": display.folded(log.nudge, 120),
            }
            for log in fired.order_by("-pk")[:SHOWN]
        ],
        "logs_url": display.list_url(InterventionLog, agent__id__exact=agent.pk),
    }
    return SafeString(render_to_string("admin/correction/agent_nudges.html", context, request))


def costs_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """What its calls cost in the last seven days, by what they were for; the same sums as everywhere."""
    found = get_cost_summary(agent=agent, window=COST_WINDOW, by=("mechanism",))
    calls = {"agent__id__exact": agent.pk}
    context = {
        "rows": [_cost(row) for row in found.by["mechanism"]],
        "calls": f"{found.total.calls:,}",
        "total": _money(found.total),
        "correction": _money(found.correction),
        "calls_url": display.list_url(LLMCall, **calls),
        "slug": agent.slug,
    }
    return SafeString(render_to_string("admin/correction/agent_costs.html", context, request))


def _cost(row: CostRow) -> dict[str, Any]:
    used = row.totals
    name = (row.key or row.purpose or "other").replace("_", " ")
    return {
        "name": display.visible(name),
        "is_correction": row.purpose in CORRECTION,
        "calls": f"{used.calls:,}",
        "tokens": f"{used.input_tokens + used.cache_read_tokens + used.cache_write_tokens:,} · {used.output_tokens:,}",
        "cost": _money(used),
    }


def _money(used: Totals) -> SafeString:
    """Where no call has a price there is no sum, not even one of 0."""
    return display.money(
        used.cost_usd if used.unpriced < used.calls or not used.calls else None, unpriced=used.unpriced
    )
