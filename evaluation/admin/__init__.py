"""The console's pages for what was measured, and what measuring adds to the pages of agents and messages."""

from agents.adminsite import Extension, extend
from agents.models import Agent, Channel, Message
from evaluation.admin import alerts, drafts, labels, runs, schedules, scores
from evaluation.admin.baselines import baseline_column, baseline_panel, capture_baseline, capture_real_baseline
from evaluation.admin.drift_chart import drift_panel
from evaluation.admin.lineups import lineup_panel
from evaluation.admin.scores import judgement_notes

__all__ = ["alerts", "drafts", "labels", "runs", "schedules", "scores"]

extend(
    Agent,
    Extension(
        permission="evaluation.view_baseline",
        columns=(baseline_column,),
        prefetch=("baselines", "traits"),
        panels=(baseline_panel,),
    ),
)
extend(Agent, Extension(permission="evaluation.add_evaluationrun", actions=(capture_baseline, capture_real_baseline)))
extend(Agent, Extension(permission="evaluation.view_evaluationschedule", panels=(drift_panel,)))
extend(Channel, Extension(permission="evaluation.view_lineuprun", panels=(lineup_panel,)))
extend(Message, Extension(permission="evaluation.view_evaluationscore", notes=(judgement_notes,)))
