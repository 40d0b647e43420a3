"""What the console's first page shows of the judge."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.home import Answers, HomePart, add_home, card, number_link, percent, since
from agents.kit.llm.endpoints import model_of
from agents.kit.models import LLMCall
from agents.kit.ops.health import call_health
from agents.kit.ops.sums import LEDGER, end_for_page, says_end
from evaluation.admin.display import judge_badge
from evaluation.calibration.admin.trust import agreement_badge
from evaluation.calibration.agreement import calibration_of
from evaluation.calibration.models import LabelSet
from evaluation.models import Dimension, Method

ADHERENCE = Dimension.ADHERENCE


def judge_card(request: HttpRequest, answers: Answers) -> SafeString:
    """How the judge's calls went in the last 24 hours, the newest failure, and how well it agrees with people."""
    day = since(24)
    end, judge = answers["end of the ledger's sums"], model_of("judge")
    health = call_health(role="judge", since=day, end=end)
    lately = {"role": "judge", "created_at__gte": day.isoformat()}
    lines: list[object] = [judge_badge(judge), says_end(end)]
    if health.calls:
        failed = sum(health.failed.values())
        in_statuses = display.list_url(LLMCall, **lately, status__in=",".join(sorted(health.failed)))
        wrong = display.link(in_statuses, f"{failed:,} failed") if failed else "none failed"
        ok = display.link(display.list_url(LLMCall, **lately, status__exact="ok"), f"{health.ok:,} answered")
        mean = f", {health.mean_ms:,.0f} ms on average" if health.mean_ms is not None else ""
        lines.append(format_html("{}, {}{} in 24 h", ok, wrong, mean))
    elif end is None:
        lines.append("No calls in the last 24 hours.")
    if (last := health.last_failure) is not None:
        status, shown = display.page_of(last, last.get_status_display()), display.shortened(last.error, 60)
        lines.append(
            format_html("Last failure: {} {} {}", status, display.moment(last.created_at), display.visible(shown))
        )
    if request.user.has_perm("calibration.view_labelset"):
        agreement = calibration_of(judge, Method.PLUMBLINE.value).get(ADHERENCE.value)
        people = display.link(display.list_url(LabelSet), "Agreement with people:")
        lines.append(format_html("{} {}", people, agreement_badge(agreement, ADHERENCE.value)))
    share = health.ok / health.calls if health.calls else None
    return card(
        "Judge",
        figure=percent(share) if share is None else number_link(display.list_url(LLMCall, **lately), percent(share)),
        unit="of calls answered" if health.calls else "",
        lines=lines,
        tone="plain" if share is None else "good" if share >= 0.99 else "warning" if share >= 0.9 else "bad",
    )


add_home(
    HomePart(
        place="cards",
        order=60,
        permission="kit.view_llmcall",
        asks=lambda request: {"end of the ledger's sums": end_for_page(LEDGER)},
        render=judge_card,
    )
)
