"""The console's pages of comparisons and drift, and what they add to the pages of agents, imports, evaluations and schedules."""

from agents.kit.console.site import extend
from agents.models import Agent, Import
from evaluation.admin.display import MEASURE
from evaluation.change.admin import alerts, changes, comparison, drift, evaluations, home, sentinel
from evaluation.change.admin.baselines import (
    baseline_column,
    baseline_panel,
    capture_baseline,
    fill_now,
    imported_panel,
)
from evaluation.change.admin.drift import drift_panel, position_panel
from evaluation.change.admin.drift_overview import change_panel, run_buttons
from evaluation.change.admin.evaluations import alerts_buttons, compare, compare_buttons, fill_unseen, new_alerts
from evaluation.change.admin.sentinel import held_panel, sentinel_cost_panel
from evaluation.models import EvaluationRun, EvaluationSchedule

__all__ = ["alerts", "changes", "comparison", "drift", "evaluations", "home", "sentinel"]

extend(
    Agent,
    "change.view_baseline",
    columns=(baseline_column,),
    fill=fill_now,
    panels=(change_panel,),
    anchors=(("change", "Change"),),
)
extend(
    Agent,
    "change.view_baseline",
    tab="history",
    sections=(baseline_panel,),
    anchors=(("baselines", "Baselines"),),
)
extend(
    Agent,
    "evaluation.view_evaluationrun",
    order=-1,
    tab="history",
    panels=(drift_panel,),
    anchors=(("drift", "Drift over time"),),
)
extend(Agent, "evaluation.add_evaluationrun", actions=(capture_baseline,), buttons=(run_buttons,))
extend(
    Agent,
    "evaluation.view_evaluationrun",
    tab="history",
    sections=(position_panel,),
    anchors=(("by-position", "Drift by position"),),
)
extend(
    EvaluationRun,
    "evaluation.view_evaluationrun",
    actions=(compare,),
    buttons=(compare_buttons,),
    panels=(held_panel,),
)
extend(EvaluationSchedule, "change.view_judgesentinel", panels=(sentinel_cost_panel,))
extend(
    EvaluationSchedule,
    "evaluation.view_evaluationschedule",
    columns=(new_alerts,),
    fill=fill_unseen,
    buttons=(alerts_buttons,),
)
extend(Import, MEASURE, panels=(imported_panel,))
