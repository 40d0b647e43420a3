"""What correcting has on the console's first page: what the gate did, what it cost, and whether it was ever observed."""

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
from correction.costs import any_budget, budgets_today
from correction.gate.statistics import GATE, PASSED_UNJUDGED, lately_at_the_gate
from correction.models import (
    AgentEvaluationConfig,
    CorrectionLog,
    GateDimensionResult,
    GateSession,
    Outcome,
    synthetic_logs,
)

HOURS, DAYS = 24, 7
OBSERVE = "manage.py configure defaults gate_adherence_enabled=on gate_mode=observe"


def gate_card(request: HttpRequest, answers: Answers) -> SafeString:
    """How many first drafts passed, what became of the others, and what is counted apart."""
    end = answers["end of the gate's sums"]
    lately = lately_at_the_gate(day=since(HOURS), week=since(24 * DAYS), end=end)
    day, week, synthetic = lately.day, lately.week, lately.synthetic_day
    note, rate = says_end(end), day.original_success_rate
    lines: list[object] = [note]
    if day.judged_count:
        lines.append(f"{share(day.original_pass_count, day.judged_count)} first drafts passed.")
    elif day.total_actions:
        lines.append(f"None of {day.total_actions:,} drafts could be judged.")
    elif not note:
        lines.append("No draft of an agent here came to the gate.")
    if unjudged := day.timeouts + day.overloads + day.errors + day.unscored + day.over_budget:
        url = _logs(outcome__in=",".join(PASSED_UNJUDGED.values()))
        lines.append(format_html("{} not checked, or only in part.", number_link(url, f"{unjudged:,}")))
    ended = (
        (Outcome.PASSED_AFTER_RETRY, day.passed_after_retry_count, "passed after a retry"),
        (Outcome.FORCED_THROUGH, day.forced_through_count, "forced through"),
        (Outcome.ABANDONED, day.abandoned, "given up by the agent"),
    )
    corrected = [
        format_html("{} {}", number_link(_logs(outcome__exact=outcome), f"{number:,}"), words)
        for outcome, number, words in ended
        if number
    ]
    if corrected:
        lines.append(format_html("{}.", format_html_join(", ", "{}", ((part,) for part in corrected))))
    apart = (
        (
            "observed",
            day.observed.total,
            f"{day.observed.passed:,} of {day.observed.total:,} observed would have passed",
        ),
        ("external", day.external.total, f"{share(day.external.passed, day.external.total)} of other programs passed"),
    )
    for source, number, sentence in apart:
        if number:
            lines.append(
                display.link(_logs(session__source__exact={"observed": "observe"}.get(source, source)), sentence)
            )
    if simulated := synthetic.total_actions + synthetic.observed.total:
        lines.append(f"{counted(simulated, 'draft')} in synthetic conversations.")
    before = f"{percent(week.original_success_rate)} of {week.judged_count:,}" if week.judged_count else "none judged"
    lines.append(
        format_html("{} days: {}", DAYS, display.link(_logs(hours=24 * DAYS, session__source__exact="gate"), before))
    )
    figure = percent(rate) if rate is None else number_link(_logs(session__source__exact="gate"), percent(rate))
    tone: display.Tone = "warning" if day.forced_through_count else "plain"
    return card("Gate pass rate", figure=figure, unit="in 24 h" if rate is not None else "", lines=lines, tone=tone)


def _logs(*, hours: int = HOURS, **filters: object) -> str:
    return display.list_url(CorrectionLog, **filters, created_at__gte=since(hours))


def spend_card(request: HttpRequest, answers: Answers) -> SafeString:
    """What today cost (UTC), and of which budget."""
    end = answers["end of the ledger's sums"]
    today, matrix = budgets_today(end=end, has_budgets=answers["budgets"]), display.list_url(AgentEvaluationConfig)
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    calls = {"created_at__gte": midnight}
    lines: list[object] = [says_end(end), f"{display.dollars(today.checking)} of it on checking and measuring."]
    if today.budget is None:
        lines.append(display.link(matrix, "No daily budget is set."))
    else:
        of = (
            f"{display.dollars(today.capped)} of {display.dollars(today.budget)} in {counted(today.budgets, 'budget')}."
        )
        used = f"{today.used_up} used up: its messages are sent unchecked." if today.used_up else ""
        nearly = f"{today.nearly} at 80 % or more." if today.nearly else ""
        lines += [display.link(matrix, of), used, nearly]
    if today.unpriced:
        url = display.list_url(LLMCall, cost_usd__isnull=True, **calls)
        lines.append(display.link(url, f"{counted(today.unpriced, 'unpriced call')}, in no amount."))
    return card(
        "Spend today",
        figure=number_link(display.list_url(LLMCall, **calls), display.dollars(today.total)),
        unit="UTC",
        lines=lines,
        tone="bad" if today.used_up else "warning" if today.nearly else "plain",
    )


def count_gate(request: HttpRequest) -> Questions:
    """Ask whether the gate observed, whether a person marked what it holds back, and whether it held anything back."""
    judged = CorrectionLog.objects.filter(~synthetic_logs(), session__source=GateSession.Source.GATE)
    return {
        "gate observed": Exists(GateSession.objects.filter(source=GateSession.Source.OBSERVE)),
        "gate marked": Exists(GateDimensionResult.objects.exclude(mark="")),
        "gate enforced": Exists(judged),
    }


def never_observed(request: HttpRequest, answers: Answers) -> SafeString | None:
    """How often the gate would be wrong is not known yet: it never observed, and no person looked at what it holds back."""
    if answers["gate observed"] or answers["gate marked"]:
        return None
    text = (
        "It holds messages back, and how often it is wrong is not known: have it observe some agents, and mark its alarms."
        if answers["gate enforced"]
        else "Every check is off until you turn it on. Observing judges messages after they were sent and holds nothing back."
    )
    may = request.user.has_perm("correction.change_agentevaluationconfig")
    return step(
        "The gate was never observed",
        text,
        command=OBSERVE,
        url=gate_url(None) if may else "",
        label="Open the gate of all agents",
    )


EXTERNAL = GateSession.Source.EXTERNAL
CHECKS_SHOWN = 5


def checks_list(request: HttpRequest, answers: Answers) -> SafeString | None:
    """List the last drafts that other programs had checked; None where there are none."""
    if not answers["checks of other programs"]:
        return None
    rows = _checks(request)
    more = [(_logs(session__source__exact="external"), "All checks")]
    return listing("Checks of other programs", heads=CHECK_HEADS, rows=rows, more=more)


CHECK_HEADS = ("Check", "Speaker", "Draft", "Outcome")


def _checks(request: HttpRequest) -> list[tuple[object, ...]]:
    sessions = GateSession.objects.filter(source=EXTERNAL).order_by("-created_at", "-pk")
    newest = CorrectionLog.objects.filter(session__in=list(sessions.values_list("pk", flat=True)[:CHECKS_SHOWN]))
    logs = newest.select_related("session__agent").order_by("-created_at", "-pk")[:CHECKS_SHOWN]
    may_read = request.user.has_perm("agents.view_message")
    return [
        (
            display.lines(display.page_of(log, f"attempt {log.attempt}"), display.moment(log.created_at)),
            agent_chip(log.session.agent) if log.session.agent else display.isolated(log.session.speaker),
            display.visible(display.shortened(log.judged_text, 80)) if may_read else display.EMPTY,
            attempt_badge(log),
        )
        for log in logs
    ]


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
