"""What the console's first page shows of the judge."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.home import Answers, HomePart, add_home, card, number_link, percent, since
from agents.kit.llm.endpoints import model_of
from agents.kit.models import LLMCall
from agents.kit.ops.health import CallHealth, call_health
from agents.kit.ops.sums import LEDGER, end_for_page, says_end
from evaluation.admin.display import judge_badge
from evaluation.calibration.admin.trust import SEE, passport_badges
from evaluation.calibration.models import JudgeCalibration
from evaluation.models import Dimension, Method

ADHERENCE = Dimension.ADHERENCE


def judge_card(request: HttpRequest, answers: Answers) -> SafeString:
    """Return the card of the configured judge: how its calls went in the last 24 hours, and its passport.

    The share of answered calls decides the colour; without calls there is none. The passport is shown to those who may see judges.

    Args:
        answers: With the end of the ledger's sums: up to when calls are counted; None: up to now.
    """
    since_yesterday = since(24)
    end = answers["end of the ledger's sums"]
    judge = model_of("judge")
    health = call_health(role="judge", since=since_yesterday, end=end)
    filters = {"role": "judge", "created_at__gte": since_yesterday.isoformat()}
    lines: list[object] = [judge_badge(judge), says_end(end)]
    if health.calls:
        lines.append(_calls_line(health, filters))
    elif end is None:
        lines.append("No calls in the last 24 hours.")
    failure = health.last_failure
    if failure is not None:
        status = display.page_of(failure, failure.get_status_display())
        error = display.visible(display.shortened(failure.error, 60))
        lines.append(format_html("Last failure: {} {} {}", status, display.moment(failure.created_at), error))
    if request.user.has_perm(SEE):
        badges = passport_badges(judge, Method.PLUMBLINE.value, [ADHERENCE.value])
        judges = display.link(display.list_url(JudgeCalibration), "Passport:")
        lines.append(format_html("{} {}", judges, badges[ADHERENCE.value]))
    if not health.calls:
        return card("Judge", figure=percent(None), unit="", lines=lines, tone="plain")
    share = health.ok / health.calls
    figure = number_link(display.list_url(LLMCall, **filters), percent(share))
    return card("Judge", figure=figure, unit="of calls answered", lines=lines, tone=_tone(share))


def _calls_line(health: CallHealth, filters: dict[str, str]) -> SafeString:
    """Return how many calls were answered and how many failed, with links to them, and how long they took."""
    ok = display.link(display.list_url(LLMCall, **filters, status__exact="ok"), f"{health.ok:,} answered")
    failed_calls = sum(health.failed.values())
    failed: SafeString | str = "none failed"
    if failed_calls:
        failed_url = display.list_url(LLMCall, **filters, status__in=",".join(sorted(health.failed)))
        failed = display.link(failed_url, f"{failed_calls:,} failed")
    # None: nothing to average
    mean = "" if health.mean_ms is None else f", {health.mean_ms:,.0f} ms on average"
    return format_html("{}, {}{} in 24 h", ok, failed, mean)


def _tone(share_answered: float) -> display.Tone:
    if share_answered >= 0.99:
        return "good"
    return "warning" if share_answered >= 0.9 else "bad"


add_home(
    HomePart(
        place="cards",
        order=60,
        permission="kit.view_llmcall",
        asks=lambda request: {"end of the ledger's sums": end_for_page(LEDGER)},
        render=judge_card,
    )
)
