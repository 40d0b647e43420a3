"""Add to the console's first page what the gate did, what it cost, and whether it was ever observed."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db.models import Exists
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.display import agent_chip
from agents.kit.console import display
from agents.kit.console.home import (
    Answers,
    HomePart,
    Questions,
    add_home,
    card,
    listing,
    number_link,
    percent,
    since,
    step,
)
from agents.kit.models import LLMCall
from agents.kit.ops.sums import LEDGER, end_for_page, says_end
from agents.kit.text.wording import counted
from correction.admin.display import attempt_badge, share
from correction.admin.matrix import gate_url
from correction.costs import BudgetDay, any_budget, budgets_today
from correction.gate.statistics import GATE, PASSED_UNJUDGED, GateStatistics, lately_at_the_gate
from correction.models import (
    AgentEvaluationConfig,
    CorrectionLog,
    GateDimensionResult,
    GateSession,
    Outcome,
    synthetic_logs,
)

HOURS_SHOWN = 24  # the last ones, whose pass rate is shown
DAYS_COMPARED = 7  # the last ones, with whose pass rate that is compared
OBSERVE = "manage.py configure defaults gate_adherence_enabled=on gate_mode=observe"


def gate_card(request: HttpRequest, answers: Answers) -> SafeString:
    """Return the card on the last 24 hours: how many first drafts passed, what became of the others, what is counted apart, and the week.

    The rate has no link where nothing was judged; the card is a warning where a message was forced through.
    """
    end = answers["end of the gate's sums"]
    lately = lately_at_the_gate(day=since(HOURS_SHOWN), week=since(24 * DAYS_COMPARED), end=end)
    day = lately.day
    note = says_end(end)
    lines: list[object] = [
        note,
        _judged_line(day, note),
        _unjudged_line(day),
        _corrected_line(day),
        _observed_line(day),
        _external_line(day),
        _synthetic_line(lately.synthetic_day),
        _week_line(lately.week),
    ]
    rate = percent(day.original_success_rate)
    tone: display.Tone = "warning" if day.forced_through_count else "plain"
    if day.original_success_rate is None:
        return card("Gate pass rate", figure=rate, unit="", lines=lines, tone=tone)
    figure = number_link(_logs_url(session__source__exact="gate"), rate)
    return card("Gate pass rate", figure=figure, unit="in 24 h", lines=lines, tone=tone)


def _judged_line(day: GateStatistics, note: object) -> str:
    """Say how many first drafts passed; nothing where a note says that the sums are not complete."""
    if day.judged_count:
        return f"{share(day.original_pass_count, day.judged_count)} first drafts passed."
    if day.total_actions:
        return f"None of {day.total_actions:,} drafts could be judged."
    return "" if note else "No draft of an agent here came to the gate."


def _unjudged_line(day: GateStatistics) -> object:
    """Say how many drafts were let through unjudged."""
    unjudged = day.timeouts + day.overloads + day.errors + day.unscored + day.over_budget
    if not unjudged:
        return ""
    url = _logs_url(outcome__in=",".join(PASSED_UNJUDGED.values()))
    return format_html("{} not checked, or only in part.", number_link(url, f"{unjudged:,}"))


def _corrected_line(day: GateStatistics) -> object:
    """Say how many messages whose first draft failed ended how, each number a link to its log; empty where there are none."""
    endings = (
        (Outcome.PASSED_AFTER_RETRY, day.passed_after_retry_count, "passed after a retry"),
        (Outcome.FORCED_THROUGH, day.forced_through_count, "forced through"),
        (Outcome.ABANDONED, day.abandoned, "given up by the agent"),
    )
    phrases = []
    for outcome, number, words in endings:
        if number:
            link = number_link(_logs_url(outcome__exact=outcome), f"{number:,}")
            phrases.append((format_html("{} {}", link, words),))
    if not phrases:
        return ""
    return format_html("{}.", format_html_join(", ", "{}", phrases))


def _observed_line(day: GateStatistics) -> object:
    """Say how many observed messages would have passed."""
    if not day.observed.total:
        return ""
    sentence = f"{day.observed.passed:,} of {day.observed.total:,} observed would have passed"
    return display.link(_logs_url(session__source__exact="observe"), sentence)


def _external_line(day: GateStatistics) -> object:
    """Say how many drafts of other programs passed."""
    if not day.external.total:
        return ""
    sentence = f"{share(day.external.passed, day.external.total)} of other programs passed"
    return display.link(_logs_url(session__source__exact="external"), sentence)


def _synthetic_line(synthetic_day: GateStatistics) -> str:
    """Say how many drafts of simulations were checked."""
    simulated = synthetic_day.total_actions + synthetic_day.observed.total
    return f"{counted(simulated, 'draft')} in synthetic conversations." if simulated else ""


def _week_line(week: GateStatistics) -> SafeString:
    """Say how many first drafts passed in the week, for comparison."""
    rate = "none judged"
    if week.judged_count:
        rate = f"{percent(week.original_success_rate)} of {week.judged_count:,}"
    url = _logs_url(hours=24 * DAYS_COMPARED, session__source__exact="gate")
    return format_html("{} days: {}", DAYS_COMPARED, display.link(url, rate))


def _logs_url(*, hours: int = HOURS_SHOWN, **filters: object) -> str:
    """Return the address of the gate's log of the last hours."""
    return display.list_url(CorrectionLog, **filters, created_at__gte=since(hours))


def spend_card(request: HttpRequest, answers: Answers) -> SafeString:
    """Return the card on what today (UTC) cost, and of which budgets; red where one is used up, a warning where one is by 80 %."""
    end = answers["end of the ledger's sums"]
    today = budgets_today(end=end, has_budgets=answers["budgets"])
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    all_calls_url = display.list_url(LLMCall, created_at__gte=midnight)
    lines: list[object] = [
        says_end(end),
        f"{display.dollars(today.checking)} of it on checking and measuring.",
        *_budget_lines(today),
    ]
    if today.unpriced:
        url = display.list_url(LLMCall, cost_usd__isnull=True, created_at__gte=midnight)
        lines.append(display.link(url, f"{counted(today.unpriced, 'unpriced call')}, in no amount."))
    tone: display.Tone = "plain"
    if today.used_up:
        tone = "bad"
    elif today.nearly:
        tone = "warning"
    figure = number_link(all_calls_url, display.dollars(today.total))
    return card("Spend today", figure=figure, unit="UTC", lines=lines, tone=tone)


def _budget_lines(today: BudgetDay) -> list[object]:
    """Say how much of the budgets is spent, how many are used up, and how many more are by 80 %; or that none is set."""
    matrix_url = display.list_url(AgentEvaluationConfig)
    if today.budget is None:
        return [display.link(matrix_url, "No daily budget is set.")]
    spent = f"{display.dollars(today.capped)} of {display.dollars(today.budget)} in {counted(today.budgets, 'budget')}."
    lines: list[object] = [display.link(matrix_url, spent)]
    if today.used_up:
        lines.append(f"{today.used_up} used up: its messages are sent unchecked.")
    if today.nearly:
        lines.append(f"{today.nearly} at 80 % or more.")
    return lines


def count_gate(request: HttpRequest) -> Questions:
    """Ask whether the gate observed, whether a person marked one of its alarms, and whether it judged a draft."""
    judged = CorrectionLog.objects.filter(~synthetic_logs(), session__source=GateSession.Source.GATE)
    return {
        "gate observed": Exists(GateSession.objects.filter(source=GateSession.Source.OBSERVE)),
        "gate marked": Exists(GateDimensionResult.objects.exclude(mark="")),
        "gate enforced": Exists(judged),
    }


def never_observed(request: HttpRequest, answers: Answers) -> SafeString | None:
    """Advise to observe where it is not known how often the gate is wrong: it never observed, and no person marked an alarm.

    None where one of them is the case. The button is there for users who may change configurations, the command for all.
    """
    if answers["gate observed"] or answers["gate marked"]:
        return None
    text = "Every check is off until you turn it on. Observing judges messages after they were sent and blocks none."
    if answers["gate enforced"]:
        text = "It blocks messages, and how often it is wrong is not known: have it observe some agents, and mark its alarms."
    may_change = request.user.has_perm("correction.change_agentevaluationconfig")
    return step(
        "The gate was never observed",
        text,
        command=OBSERVE,
        url=gate_url(agent=None) if may_change else "",
        label="Open the gate of all agents",
    )


EXTERNAL = GateSession.Source.EXTERNAL
CHECKS_SHOWN = 5


def checks_list(request: HttpRequest, answers: Answers) -> SafeString | None:
    """List the last drafts that other programs had checked; None where there are none."""
    if not answers["checks of other programs"]:
        return None
    rows = _checks(request)
    more = [(_logs_url(session__source__exact="external"), "All checks")]
    return listing("Checks of other programs", heads=CHECK_HEADS, rows=rows, more=more)


CHECK_HEADS = ("Check", "Speaker", "Draft", "Outcome")


def _checks(request: HttpRequest) -> list[tuple[object, ...]]:
    """Return the rows of the last 5 drafts that other programs had checked, the newest first; their text only to who may read it."""
    sessions = GateSession.objects.filter(source=EXTERNAL).order_by("-created_at", "-pk")
    newest = list(sessions.values_list("pk", flat=True)[:CHECKS_SHOWN])
    logs = CorrectionLog.objects.filter(session__in=newest).select_related("session__agent")
    may_read = request.user.has_perm("agents.view_message")
    rows: list[tuple[object, ...]] = []
    for log in logs.order_by("-created_at", "-pk")[:CHECKS_SHOWN]:
        attempt = display.page_of(log, f"attempt {log.attempt}")
        rows.append(
            (
                display.lines(attempt, display.moment(log.created_at)),
                agent_chip(log.session.agent) if log.session.agent else display.isolated(log.session.speaker),
                display.visible(display.shortened(log.judged_text, 80)) if may_read else display.EMPTY,
                attempt_badge(log),
            )
        )
    return rows


add_home(
    HomePart(
        place="lists",
        order=40,
        permission="correction.view_correctionlog",
        asks=lambda request: {"checks of other programs": Exists(GateSession.objects.filter(source=EXTERNAL))},
        render=checks_list,
    ),
    HomePart(
        place="setup", order=70, permission="correction.view_correctionlog", asks=count_gate, render=never_observed
    ),
    HomePart(
        place="cards",
        order=30,
        permission="correction.view_correctionlog",
        asks=lambda request: {"end of the gate's sums": end_for_page(GATE)},
        render=gate_card,
    ),
    HomePart(
        place="cards",
        order=50,
        permission="kit.view_llmcall",
        asks=lambda request: {"end of the ledger's sums": end_for_page(LEDGER), "budgets": any_budget()},
        render=spend_card,
    ),
)
