"""The console's pages for what was measured, and what measuring adds to the pages of agents and messages."""

from agents.adminsite import Extension, extend
from agents.models import Agent, Message
from evaluation.admin import runs, scores
from evaluation.admin.baselines import baseline_column, baseline_panel, capture_baseline
from evaluation.admin.scores import judgement_notes

__all__ = ["runs", "scores"]

extend(
    Agent,
    Extension(
        permission="evaluation.view_baseline",
        columns=(baseline_column,),
        prefetch=("baselines", "traits"),
        panels=(baseline_panel,),
    ),
)
extend(Agent, Extension(permission="evaluation.add_evaluationrun", actions=(capture_baseline,)))
extend(Message, Extension(permission="evaluation.view_evaluationscore", notes=(judgement_notes,)))
