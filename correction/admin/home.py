"""What correcting has on the console's first page: what the gate did, what it cost, what waits for a person, what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from django.db.models import Count, Q
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.home import HomePart, add_home, card, listing, number_link, percent, since, step
from agents.console.panels import table
from agents.models import LLMCall
from agents.ops.sums import LEDGER, end_for_page, says_end
from correction.admin.display import attempt_badge, endings, share
from correction.admin.matrix import config_url, gate_url
from correction.costs import BUDGETED, BudgetDay, budgets_today, spent_by_day
from correction.gate.statistics import GATE, PASSED_UNJUDGED, GateStatistics, get_recent_statistics
from correction.interventions.counts import ENOUGH, never_past_precondition
from correction.models import (
    AgentEvaluationConfig,
    BehaviorRequest,
    CorrectionLog,
    GateDimensionResult,
    Intervention,
    InterventionLog,
    Outcome,
    synthetic_logs,
)

HOURS, DAYS = 24, 7
NEWEST_NUDGES, MOST_NUDGES = 10_000, 1_000  # evaluations of a day that are looked through, nudges that are counted
MOST_STUCK = 5  # interventions that are named
CORRECTED = f"{Outcome.PASSED_AFTER_RETRY},{Outcome.FORCED_THROUGH}"
HEAR = "manage.py configure defaults behavior_requesters=anyone behavior_scope=person"
OBSERVE = "manage.py configure defaults gate_adherence_enabled=on gate_mode=observe"


def gate_cards(request: HttpRequest) -> SafeString:
    """How many first drafts passed, and what became of the others: two cards of the same figures."""
    end = end_for_page(GATE)
    first, recent = since(24 * DAYS), since(HOURS)
    day, week = get_recent_statistics(since=first, recent=recent, end=end)
    synthetic, _ = get_recent_statistics(since=first, recent=recent, end=end, synthetic=True)
    note = says_end(end)
    return format_html("{}{}", _pass_card(day, week, synthetic, note), _corrections_card(request, day, week, note))


def _pass_card(day: GateStatistics, week: GateStatistics, synthetic: GateStatistics, note: str) -> SafeString:
    """First drafts that passed, of those that were judged; what was observed, checked for others or simulated is counted apart."""
    lines: list[object] = [note]
    if day.judged_count:
        passed = number_link(
            _logs(source__exact="gate", outcome__exact=Outcome.PASSED), share(day.original_pass_count, day.judged_count)
        )
        lines.append(format_html("{} first drafts passed.", passed))
    elif day.total_actions:
        lines.append(f"None of {day.total_actions:,} drafts could be judged.")
    elif not note:
        lines.append("No draft of an agent here came to the gate.")
    unjudged = day.timeouts + day.overloads + day.errors + day.unscored + day.over_budget
    if unjudged:
        url = _logs(outcome__in=",".join(PASSED_UNJUDGED.values()))
        lines.append(format_html("{} not checked, or only in part.", number_link(url, f"{unjudged:,}")))
    if day.observed.total:
        passed = number_link(_logs(source__exact="observe"), share(day.observed.passed, day.observed.total))
        lines.append(format_html("Observed: {} would have passed.", passed))
    if day.external.total:
        passed = number_link(_logs(source__exact="external"), share(day.external.passed, day.external.total))
        lines.append(format_html("Checked for other programs: {} passed.", passed))
    if simulated := synthetic.total_actions + synthetic.observed.total:
        drafts = "draft" if simulated == 1 else "drafts"
        lines.append(format_html("In synthetic conversations: {} {}.", number_link(_logs(), f"{simulated:,}"), drafts))
    before = (
        f"{percent(week.original_success_rate)} of {week.judged_count:,}" if week.judged_count else "nothing judged"
    )
    lines.append(format_html("{} days: {}", DAYS, display.link(_logs(hours=24 * DAYS, source__exact="gate"), before)))
    rate = day.original_success_rate
    figure = percent(rate) if rate is None else number_link(_logs(source__exact="gate"), percent(rate))
    return card("Gate pass rate", figure=figure, unit="in 24 h" if rate is not None else "", lines=lines)


def _corrections_card(request: HttpRequest, day: GateStatistics, week: GateStatistics, note: str) -> SafeString:
    """Messages that were sent back and what became of them, and the nudges that were given."""
    forced = day.forced_through_count
    lines: list[object] = [
        note,
        format_html(
            "{} passed after a retry, {} forced through.",
            number_link(_logs(outcome__exact=Outcome.PASSED_AFTER_RETRY), f"{day.passed_after_retry_count:,}"),
            number_link(_logs(outcome__exact=Outcome.FORCED_THROUGH), f"{forced:,}"),
        ),
    ]
    if day.abandoned:
        url = _logs(outcome__exact=Outcome.ABANDONED)
        lines.append(format_html("{} given up by the agent.", number_link(url, f"{day.abandoned:,}")))
    if request.user.has_perm("correction.view_interventionlog"):
        day_ago = since(HOURS)
        nudges, more = _nudges(day_ago)
        word = "nudge" if nudges == 1 and not more else "nudges"
        url = display.list_url(InterventionLog, fired__exact=1, created_at__gte=day_ago)
        lines.append(format_html("{} {} given.", number_link(url, f"{nudges:,}{more}"), word))
    lines.append(
        format_html(
            "{} days: {} corrected, {} of them forced through.",
            DAYS,
            number_link(_logs(hours=24 * DAYS, outcome__in=CORRECTED), f"{_corrected(week):,}"),
            number_link(
                _logs(hours=24 * DAYS, outcome__exact=Outcome.FORCED_THROUGH), f"{week.forced_through_count:,}"
            ),
        )
    )
    return card(
        "Corrections",
        figure=number_link(_logs(outcome__in=CORRECTED), f"{_corrected(day):,}"),
        unit="message in 24 h" if _corrected(day) == 1 else "messages in 24 h",
        lines=lines,
        tone="warning" if forced else "plain",
    )


def _nudges(day_ago: datetime) -> tuple[int, str]:
    """How many nudges were given, and a ``+`` where there may be more: most evaluations give none, and all are rows of one table."""
    newest = InterventionLog.objects.filter(created_at__gte=day_ago).order_by("-created_at").values("fired")
    counts = newest[:NEWEST_NUDGES].aggregate(given=Count("fired", filter=Q(fired=True)), of=Count("fired"))
    more = counts["given"] > MOST_NUDGES or counts["of"] == NEWEST_NUDGES
    return min(counts["given"], MOST_NUDGES), "+" if more else ""


def _corrected(statistics: GateStatistics) -> int:
    return statistics.passed_after_retry_count + statistics.forced_through_count


def _logs(*, hours: int = HOURS, **filters: object) -> str:
    return display.list_url(CorrectionLog, **filters, created_at__gte=since(hours))


def spend_card(request: HttpRequest) -> SafeString:
    """What today cost (UTC), of which budget, and the last days."""
    end = end_for_page(LEDGER)
    today = budgets_today(end=end)
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    calls = {"created_at__gte": midnight}
    checks = display.list_url(LLMCall, **calls, purpose__in=",".join(BUDGETED))
    lines = [
        says_end(end),
        format_html("{} of it on checking and measuring.", number_link(checks, display.dollars(today.checking))),
        _against_budget(today),
        _unpriced(today, calls),
        _days_of_spending(midnight, end),
    ]
    return card(
        "Spend today",
        figure=number_link(display.list_url(LLMCall, **calls), display.dollars(today.total)),
        unit="UTC",
        lines=lines,
        tone="bad" if today.used_up else "warning" if today.nearly else "plain",
    )


def _against_budget(today: BudgetDay) -> SafeString:
    matrix = display.list_url(AgentEvaluationConfig)
    if today.budget is None:
        return display.link(matrix, "No daily budget is set.")
    of = f"{display.dollars(today.capped)} of {display.dollars(today.budget)}"
    budgets = "budget" if today.budgets == 1 else "budgets"
    state = ""
    if today.used_up:
        state = format_html(" {}", display.badge(f"{today.used_up} used up", "bad", "its messages are sent unchecked"))
    if today.nearly:
        state = format_html("{} {}", state, display.badge(f"{today.nearly} nearly", "warning", "80 % or more"))
    return format_html("{} in {} {}.{}", of, number_link(matrix, f"{today.budgets:,}"), budgets, state)


def _unpriced(today: BudgetDay, calls: Mapping[str, object]) -> SafeString | str:
    if not today.unpriced:
        return ""
    url = display.list_url(LLMCall, cost_usd__isnull=True, **calls)
    many = "call" if today.unpriced == 1 else "calls"
    return format_html("{} unpriced {}, in no amount.", number_link(url, f"{today.unpriced:,}"), many)


def _days_of_spending(midnight: datetime, end: datetime | None) -> SafeString | str:
    """What the last days cost together, and the most expensive of them."""
    first = midnight - timedelta(days=DAYS - 1)
    amounts = spent_by_day(since=first, days=DAYS, end=end)
    if not any(amounts):
        return ""
    url = display.list_url(LLMCall, created_at__gte=first)
    return display.link(
        url,
        f"{display.dollars(sum(amounts, Decimal(0)))} in {DAYS} days, at most {display.dollars(max(amounts))} a day",
    )


def never_observed(request: HttpRequest) -> SafeString | None:
    """How often the gate would be wrong is not known yet: it never observed."""
    if CorrectionLog.objects.filter(source=CorrectionLog.Source.OBSERVE).exists():
        return None
    if GateDimensionResult.objects.exclude(mark="").exists():
        return None  # a person looks at what it holds back
    text = (
        "It holds messages back, and how often it is wrong is not known: have it observe some agents, and mark its alarms."
        if CorrectionLog.objects.filter(~synthetic_logs(), source=CorrectionLog.Source.GATE).exists()
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


def people_unheard(request: HttpRequest) -> SafeString | None:
    """People who may not ask write to agents, and it was never decided who may."""
    if AgentEvaluationConfig.objects.filter(is_defaults=True, behavior_requesters__isnull=False).exists():
        return None
    refused = BehaviorRequest.objects.filter(
        status=BehaviorRequest.Status.CANCELLED,
        created_at__gte=since(24 * DAYS),
        error__contains="(behavior_requesters)",
    ).exclude(agent__evaluation_config__behavior_requesters__isnull=False)
    if not refused.exists():
        return None
    may = request.user.has_perm("correction.change_agentevaluationconfig")
    return step(
        "Requests of people who are no members do not count",
        "They wrote to agents in the last 7 days, and were not read for behaviour requests: by default only users who are members of the "
        "channel count, outsiders of a bridge do not. behavior_requesters decides, behavior_scope for whom a change then holds. A value of "
        "your own, also members, removes this step.",
        command=HEAR,
        url=config_url(None) if may else "",
        label="Change the defaults",
    )


def never_past(request: HttpRequest) -> SafeString | None:
    """Interventions that can hardly fire as they are written."""
    stuck = never_past_precondition()
    if not stuck:
        return None
    parts = [
        format_html(
            "{}: {}",
            display.link(display.list_url(InterventionLog, name=one.name), one.name),
            display.visible(display.shortened(one.why, 160)),
        )
        for one in stuck[:MOST_STUCK]
    ]
    more = f" And {len(stuck) - MOST_STUCK} more." if len(stuck) > MOST_STUCK else ""
    return step(
        "An intervention never got past its precondition"
        if len(stuck) == 1
        else "Interventions never got past their precondition",
        format_html(
            "In the last {} evaluations of each its function never held. {}{}",
            ENOUGH,
            format_html_join(" · ", "{}", ((p,) for p in parts)),
            more,
        ),
        url=display.list_url(Intervention),
        label="Interventions",
    )


CHECKS, CHECKS_AT_HOME = 20, 5


def checks_panel(request: HttpRequest, _token: object) -> SafeString:
    """The last drafts that other programs had checked, below the list of API tokens."""
    rows = _checks(request, CHECKS)
    return format_html(
        '<section class="pl-panel pl-below"><h2>Last checks of other programs</h2>{}<p class="pl-subtle">{}</p></section>',
        table(CHECK_HEADS, rows, label="Last checks of other programs"),
        display.link(_logs(source__exact="external"), "All of them")
        if rows
        else "None yet. A new token comes with an example that makes one.",
    )


def checks_list(request: HttpRequest) -> SafeString | None:
    """The same on the first page, once there are any."""
    rows = _checks(request, CHECKS_AT_HOME)
    more = [(_logs(source__exact="external"), "All checks")]
    return listing("Checks of other programs", heads=CHECK_HEADS, rows=rows, more=more) if rows else None


CHECK_HEADS = ("Check", "Speaker", "Draft", "Outcome")


def _checks(request: HttpRequest, most: int) -> list[tuple[object, ...]]:
    newest = CorrectionLog.objects.filter(source=CorrectionLog.Source.EXTERNAL).order_by("-created_at", "-pk")
    logs = list(newest.select_related("agent")[:most])
    ended, may_read = endings(logs), request.user.has_perm("agents.view_message")
    return [
        (
            display.lines(display.page_of(log, f"attempt {log.attempt}"), display.moment(log.created_at)),
            display.agent_chip(log.agent) if log.agent else display.isolated(log.speaker),
            display.visible(display.shortened(log.judged_text, 80)) if may_read else display.EMPTY,
            attempt_badge(log, ended[log.session]),
        )
        for log in logs
    ]


add_home(
    HomePart(place="lists", order=40, permission="correction.view_correctionlog", render=checks_list),
    HomePart(place="setup", order=70, permission="correction.view_correctionlog", render=never_observed),
    HomePart(place="setup", order=80, permission="correction.view_behaviorrequest", render=people_unheard),
    HomePart(place="setup", order=90, permission="correction.view_interventionlog", render=never_past),
    HomePart(place="cards", order=30, permission="correction.view_correctionlog", render=gate_cards),
    HomePart(place="cards", order=50, permission="agents.view_llmcall", render=spend_card),
)
