"""Add to the console's first page what today cost, and whether the gate was ever observed."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db.models import Exists
from django.http import HttpRequest
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.home import (
    Answers,
    HomePart,
    Questions,
    add_home,
    card,
    number_link,
    step,
)
from agents.kit.models import LLMCall
from agents.kit.ops.sums import LEDGER, end_for_page, says_end
from agents.kit.text.wording import counted
from agents.models import about_watched_agents
from correction.admin.matrix import gate_url
from correction.costs import BudgetDay, any_budget, budgets_today
from correction.models import (
    AgentEvaluationConfig,
    CorrectionLog,
    GateDimensionResult,
    GateSession,
    synthetic_logs,
)

OBSERVE = "manage.py configure defaults gate_adherence_enabled=on gate_mode=observe"


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
    """Ask of the watched agents whether the gate observed, whether a person marked one of its alarms, and whether it judged a draft."""
    logs = CorrectionLog.objects.filter(
        ~synthetic_logs(), about_watched_agents("session__agent"), session__source=GateSession.Source.GATE
    )
    observed = GateSession.objects.filter(about_watched_agents(), source=GateSession.Source.OBSERVE)
    marked = GateDimensionResult.objects.filter(about_watched_agents("log__session__agent")).exclude(mark="")
    return {
        "gate observed": Exists(observed),
        "gate marked": Exists(marked),
        "gate enforced": Exists(logs),
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


add_home(
    HomePart(
        place="setup", order=70, permission="correction.view_correctionlog", asks=count_gate, render=never_observed
    ),
    HomePart(
        place="cards",
        order=50,
        permission="kit.view_llmcall",
        asks=lambda request: {"end of the ledger's sums": end_for_page(LEDGER), "budgets": any_budget()},
        render=spend_card,
    ),
)
