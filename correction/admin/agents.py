"""Add to the pages and charts of agents: settings in effect, last corrections, costs, actions and markers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.admin.access import user_of
from agents.kit.console import display
from agents.kit.console.charts import MOST_OF_A_KIND, Marker, MarkerSource, add_markers
from agents.kit.console.forms import confirmed, report_done
from agents.kit.console.panels import table
from agents.kit.console.site import Select
from agents.kit.models import LLMCall
from agents.kit.text.wording import counted
from agents.models import Agent
from correction.admin.config import history_url
from correction.admin.display import (
    attempt_badge,
)
from correction.admin.matrix import config_url, gate_url, row_of
from correction.config.configure import (
    ConfigChange,
    changes_of,
    copy_config,
    gate_from_now_on,
)
from correction.config.settings import (
    GATE_DIMENSIONS,
    SETTINGS,
    ResolvedConfig,
    resolve_all,
    resolve_config,
)
from correction.costs import CORRECTION, CostSums, get_cost_summary
from correction.models import AgentEvaluationConfig, CorrectionLog, GateMode, GateSession, Outcome
from evaluation.change.admin.drift_overview import Step
from evaluation.change.overview import AgentDrift
from evaluation.wording import judge_label


def config_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """Show the agent's settings in effect, one line per mechanism, in one query."""
    row = row_of(agent, resolve_config(agent))
    context = {
        "agent": agent,
        "row": row,
        "some_on": any(cell["is_on"] for cell in row["cells"]),
        "edit_url": config_url(agent),
        "history_url": history_url(agent),
        "logs_url": display.list_url(CorrectionLog, session__agent__id__exact=agent.pk),
        "may_change": request.user.has_perm("correction.change_agentevaluationconfig"),
    }
    return SafeString(render_to_string("admin/correction/agent_config.html", context, request))


CORRECTIONS_SHOWN = 5
MOST_LOOKED_AT = 500  # newest rows of the agent's that are searched for what the panel shows
COST_WINDOW = "7d"
CORRECTED = (Outcome.CORRECTED, Outcome.PASSED_AFTER_RETRY, Outcome.FORCED_THROUGH)
READ_PERMISSION = "agents.view_message"


def corrections_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """Show the agent's last 5 drafts that did not pass at once, of its newest 500 gate sessions; their text only to who may read it."""
    newest = GateSession.objects.filter(agent=agent).order_by("-created_at", "-pk").values_list("pk", flat=True)
    logs = CorrectionLog.objects.filter(session__in=list(newest[:MOST_LOOKED_AT]), outcome__in=CORRECTED)
    logs = logs.select_related("session__message__channel").prefetch_related("dimension_results")
    context = {
        "logs": [(log, attempt_badge(log)) for log in logs.order_by("-pk")[:CORRECTIONS_SHOWN]],
        "may_read": request.user.has_perm(READ_PERMISSION),
        "most": MOST_LOOKED_AT,
        "all_url": display.list_url(CorrectionLog, session__agent__id__exact=agent.pk),
    }
    return SafeString(render_to_string("admin/correction/agent_corrections.html", context, request))


def costs_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """Show what the agent's calls cost in the last seven days, a row for each mechanism, and in all; correction has a badge.

    What the cache read and wrote counts among the tokens in.
    """
    summary = get_cost_summary(agent=agent, window=COST_WINDOW, by=("mechanism",))
    rows = []
    for costs in summary.by["mechanism"]:
        purpose = costs.key or costs.purpose or "other"
        name = display.visible(purpose.replace("_", " "))
        if costs.purpose in CORRECTION:
            badge = display.badge("correction", "plain", "looks at messages before they are sent")
            name = format_html("{} {}", name, badge)
        tokens_in = costs.input_tokens + costs.cache_read_tokens + costs.cache_write_tokens
        rows.append((name, f"{costs.calls:,}", f"{tokens_in:,} · {costs.output_tokens:,}", _money_of(costs)))
    context = {
        "table": table(("For", "Calls", "Tokens in · out", "US dollars"), rows, label="Costs of the last 7 days"),
        "calls": f"{summary.total.calls:,}",
        "total": _money_of(summary.total),
        "correction": _money_of(summary.correction),
        "calls_url": display.list_url(LLMCall, agent__id__exact=agent.pk),
        "slug": agent.slug,
    }
    return SafeString(render_to_string("admin/correction/agent_costs.html", context, request))


def _money_of(costs: CostSums) -> SafeString:
    """Return the dollars; where no call has a price there is no sum, not even one of 0."""
    has_sum = costs.unpriced < costs.calls or costs.calls == 0
    return display.money(costs.cost_usd if has_sum else None, unpriced=costs.unpriced)


class CopyForm(forms.Form):
    """Whose settings the others get."""

    source: Any = forms.ModelChoiceField(
        queryset=Agent.objects.listed().order_by("display_name"),
        widget=Select,
        label="from",
        help_text="its own settings, and what it leaves to the defaults; what the chosen agents had set is replaced",
    )


@admin.action(description="Copy corrections from another agent")
@confirmed("Copy corrections", "What these agents had set themselves is replaced.", form=CopyForm)
def copy_corrections(model_admin: Any, request: HttpRequest, queryset: QuerySet[Agent], form: CopyForm) -> None:
    """Give the chosen agents the settings of one agent, itself passed over, and say what their gates do from now on."""
    source = form.cleaned_data["source"]
    targets = [agent for agent in queryset if agent.pk != source.pk]
    before = _configs_in_effect(queryset)
    copy_config(source=source, targets=targets, user=user_of(request))
    report_done(
        model_admin,
        request,
        "agent",
        f"set as {source}",
        done=len(targets),
        chosen=len(queryset),
        why="it is copied from",  # said of the source, which is skipped if it was chosen
    )
    after = _configs_in_effect(Agent.objects.filter(pk__in=[agent.pk for agent in targets]))
    agents_by_sentence = Counter(gate_from_now_on(before[pk], config) for pk, config in after.items())
    for sentence, agents in agents_by_sentence.items():
        if sentence:
            model_admin.message_user(request, f"{sentence} It holds for {counted(agents, 'agent')}.", messages.INFO)


def _configs_in_effect(agents: QuerySet[Agent]) -> dict[int, ResolvedConfig]:
    """Return the configurations of these agents by their keys."""
    return {agent.pk: config for agent, config in resolve_all(agents.select_related("evaluation_config"))}


CONFIGURE_PERMISSION = "correction.change_agentevaluationconfig"


def gate_steps(request: HttpRequest, drifts: Sequence[AgentDrift]) -> dict[int, list[Step]]:
    """Return by agent that drifted the step to check at the gate what fell, or to enforce what it only observes.

    Without those whose gate enforces it already or whose fallen dimension has no gate; empty for users who may not change
    configurations. Two queries for any number of agents.
    """
    fallen_dimensions: dict[int, str] = {}
    for drift in drifts:
        if drift.state == "drifted" and drift.main is not None and drift.main.dimension in GATE_DIMENSIONS:
            fallen_dimensions[drift.agent.pk] = drift.main.dimension
    if not fallen_dimensions or not request.user.has_perm(CONFIGURE_PERMISSION):
        return {}
    agents = Agent.objects.filter(pk__in=fallen_dimensions).select_related("evaluation_config")
    steps: dict[int, list[Step]] = {}
    for agent, config in resolve_all(agents):
        step = _gate_step(agent, config, fallen_dimensions[agent.pk])
        if step is not None:
            steps[agent.pk] = [step]
    return steps


def _gate_step(agent: Agent, config: ResolvedConfig, dimension: str) -> Step | None:
    """Return the next step towards enforcing a dimension: first to observe it, then to enforce it; None where that is done."""
    if config.gate_is_off or dimension not in config.gate_dimensions:
        why = f"the gate does not check {dimension}: observing blocks nothing"
        if config.gate_mode == GateMode.ENFORCE and not config.gate_is_off:
            why += f"; {', '.join(config.gate_dimensions)}, enforced until now, would only be observed, too"
        return Step("Observe it at the gate", gate_url(agent, gate_mode=GateMode.OBSERVE, add=dimension), why)
    if config.gate_mode == GateMode.OBSERVE:
        why = f"the gate only observes {dimension}; look at its false alarms first"
        return Step("Enforce it at the gate", gate_url(agent, gate_mode=GateMode.ENFORCE), why)
    return None


def gate_in_chat(agent: Agent) -> forms.ChoiceField:
    """Return the field that chooses the gate's mode for a turn of a chat."""
    config = resolve_config(agent)
    now = GateMode.OFF.value if config.gate_is_off else config.gate_mode
    return forms.ChoiceField(
        label="Gate",
        choices=[
            ("", f"as configured ({now})"),
            ("off", "off: nothing is judged"),
            ("observe", "observe: judged after it is sent"),
            ("enforce", "enforce: judged before it is sent"),
        ],
        help_text=f"judged by {judge_label(str(settings.JUDGE_MODEL))}, a call for each dimension of a draft",
        required=False,
        widget=Select,
    )


def gate_overrides(agent: Agent, mode: str) -> dict[str, Any]:
    """Return the overrides of a mode, for every message; where no dimension is enabled adherence is checked."""
    overrides: dict[str, Any] = {"gate_mode": mode}
    if mode == GateMode.OBSERVE:
        overrides["observe_sample_rate"] = 1
    if mode != GateMode.OFF and not resolve_config(agent).gate_dimensions:
        overrides["gate_adherence_enabled"] = True
    return overrides


NAMED_CHANGES = 3  # differences named of one change


def config_changes(agents: Collection[int], since: datetime, until: datetime) -> list[Marker]:
    """Return marks for a chart: the changes of these agents' configurations and of the defaults between two moments; in one query.

    The newest 30 at most; one that changed nothing has no mark.
    """
    history: Any = AgentEvaluationConfig.history
    rows = history.filter(Q(agent__in=agents) | Q(is_defaults=True), history_date__lte=until)
    rows = rows.select_related("history_user", "agent").defer("agent__system_prompt", "agent__description")
    # More than are shown: each needs the one before it.
    newest = list(rows.order_by("-history_id")[: 2 * MOST_OF_A_KIND])
    changed_agents = {row.agent_id: row.agent for row in newest}  # None: the defaults
    markers: list[Marker] = []
    for change in changes_of(newest):
        if change.at < since or len(markers) == MOST_OF_A_KIND:
            break
        summary = _summary_of_change(change)
        if summary:
            agent = changed_agents[change.agent_id]
            title = f"{agent.display_name if agent is not None else 'Defaults'}: {summary}"
            markers.append(Marker(at=change.at, title=title, url=history_url(agent), kind="config"))
    return markers


def _summary_of_change(change: ConfigChange) -> str:
    """Return what was changed, by whom; empty where nothing was, as in the row that begins a history.

    At most three settings are named: ``gate mode off → observe and 2 more by anna``.
    """
    by = f" by {change.user}" if change.user else ""
    if change.kind == "deleted":
        return f"corrections deleted{by}"
    if not change.changes:
        return ""
    changes = []
    for name, (before, after) in change.changes.items():
        setting = SETTINGS[name]
        changes.append(f"{setting.label} {setting.show_stored(before)} → {setting.show_stored(after)}")
    summary = ", ".join(changes[:NAMED_CHANGES])
    if len(changes) > NAMED_CHANGES:
        summary += f" and {len(changes) - NAMED_CHANGES} more"
    return f"{summary}{by}"


add_markers(MarkerSource(permission="correction.view_agentevaluationconfig", find=config_changes))
