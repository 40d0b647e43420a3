"""The console's pages for corrections, and what correcting adds to the pages of agents and messages."""

from agents.adminsite import Extension, extend
from agents.models import Agent, Message, Run
from correction.admin import behavior, config, interventions, logs, observed
from correction.admin.agent_actions import copy_corrections, switch_mechanism
from correction.admin.agent_panel import config_panel
from correction.admin.behavior_page import agent_behavior_panel, behavior_notes
from correction.admin.notes import gate_notes, gate_panel, run_panel

__all__ = ["behavior", "config", "interventions", "logs", "observed"]

extend(Agent, Extension(permission="correction.view_agentevaluationconfig", panels=(config_panel,)))
extend(
    Agent,
    Extension(permission="correction.change_agentevaluationconfig", actions=(switch_mechanism, copy_corrections)),
)
extend(Message, Extension(permission="correction.view_correctionlog", panels=(gate_panel,), notes=(gate_notes,)))
extend(Run, Extension(permission="correction.view_correctionlog", panels=(run_panel,)))
extend(Agent, Extension(permission="correction.view_behaviorrequest", panels=(agent_behavior_panel,)))
extend(Message, Extension(permission="correction.view_behaviorrequest", notes=(behavior_notes,)))
