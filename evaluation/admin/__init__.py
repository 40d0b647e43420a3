"""The console's pages for what was measured, and what measuring adds to the pages of agents and messages."""

from agents.console.site import Extension, extend
from agents.models import Agent, Channel, Message
from evaluation.admin import alerts, home, labels, propositions, runs, schedules, scores
from evaluation.admin.agent_story import run_buttons, story_panel, turn_panel
from evaluation.admin.baselines import (
    NEWEST_BASELINES,
    baseline_column,
    baseline_panel,
    capture_baseline,
    capture_real_baseline,
)
from evaluation.admin.drift_chart import drift_panel
from evaluation.admin.lineups import lineup_panel
from evaluation.admin.notes import judgement_notes

__all__ = ["alerts", "home", "labels", "propositions", "runs", "schedules", "scores"]

extend(
    Agent,
    Extension(
        permission="evaluation.view_baseline",
        columns=(baseline_column,),
        prefetch=(NEWEST_BASELINES, "traits"),
        panels=(story_panel, baseline_panel),
        anchors=(("story", "Then and now"), ("baselines", "Baselines")),
    ),
)
extend(
    Agent,
    Extension(
        permission="evaluation.add_evaluationrun",
        actions=(capture_baseline, capture_real_baseline),
        buttons=(run_buttons,),
    ),
)
extend(
    Agent,
    Extension(
        permission="evaluation.view_evaluationschedule",
        panels=(drift_panel,),
        anchors=(("drift", "Drift over time"),),
    ),
)
extend(
    Agent,
    Extension(
        permission="evaluation.view_evaluationrun", panels=(turn_panel,), anchors=(("by-turn", "Drift by turn"),)
    ),
)
extend(Channel, Extension(permission="evaluation.view_lineuprun", panels=(lineup_panel,)))
extend(Message, Extension(permission="evaluation.view_evaluationscore", notes=(judgement_notes,)))
