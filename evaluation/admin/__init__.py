"""The console's pages for what was measured, and what measuring adds to the pages of agents and messages."""

from agents.console.logs import register_pages
from agents.console.site import extend
from agents.models import Agent, Channel, Import, Message
from evaluation.admin import drift, experiments, home, jobs, labels, propositions, review, runs, schedules, scores
from evaluation.admin.baselines import baseline_column, baseline_panel, capture_baseline, fill_now, imported_panel
from evaluation.admin.display import MEASURE
from evaluation.admin.drift import drift_panel, position_panel
from evaluation.admin.drift_overview import change_panel, run_buttons
from evaluation.admin.lineups import lineup_panel
from evaluation.admin.scores import judgement_notes

__all__ = ["drift", "experiments", "home", "jobs", "labels", "propositions", "review", "runs", "schedules", "scores"]

register_pages("evaluation")
extend(
    Agent,
    "evaluation.view_baseline",
    columns=(baseline_column,),
    fill=fill_now,
    panels=(change_panel,),
    sections=(baseline_panel,),
    anchors=(("change", "Change"), ("baselines", "Baselines")),
)
extend(Agent, "evaluation.view_evaluationrun", panels=(drift_panel,), anchors=(("drift", "Drift over time"),))
extend(Agent, "evaluation.add_evaluationrun", actions=(capture_baseline,), buttons=(run_buttons,))
extend(
    Agent, "evaluation.view_evaluationrun", sections=(position_panel,), anchors=(("by-position", "Drift by position"),)
)
extend(Import, MEASURE, panels=(imported_panel,))
extend(Channel, "evaluation.view_lineuprun", panels=(lineup_panel,))
extend(Message, "evaluation.view_evaluationscore", notes=(judgement_notes,))
extend(Message, labels.CHOOSING[0], panels=(lambda request, message: labels.choose_link(request, message=message.pk),))
