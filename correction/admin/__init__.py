"""The console's pages for corrections, and what correcting adds to the pages of agents and messages."""

from agents.admin.chat import add_choice
from agents.console.logs import register_pages
from agents.console.site import extend
from agents.models import Agent, ApiToken, Message, Run
from correction.admin import agents, behavior, config, home, interventions, logs, review
from correction.admin.agents import (
    config_panel,
    copy_corrections,
    corrections_panel,
    costs_panel,
    gate_in_chat,
    gate_overrides,
    gate_steps,
    nudges_panel,
)
from correction.admin.behavior import agent_behavior_panel, behavior_notes
from correction.admin.gate import gate_buttons
from correction.admin.home import checks_panel
from correction.admin.sessions import gate_notes, gate_panel, run_panel
from evaluation.admin.drift_overview import add_steps

__all__ = ["agents", "behavior", "config", "home", "interventions", "logs", "review"]

register_pages("correction")
add_steps(gate_steps)
add_choice("gate_mode", gate_in_chat, gate_overrides)
extend(
    Agent,
    "correction.view_agentevaluationconfig",
    sections=(config_panel,),
    buttons=(gate_buttons,),
    anchors=(("config", "Corrections"),),
)
extend(
    Agent,
    "correction.view_correctionlog",
    sections=(corrections_panel,),
    anchors=(("corrections", "Last corrections"),),
)
extend(Agent, "correction.view_interventionlog", sections=(nudges_panel,), anchors=(("nudges", "Nudges"),))
extend(Agent, "agents.view_llmcall", sections=(costs_panel,), anchors=(("costs", "Costs"),))
extend(Agent, "correction.change_agentevaluationconfig", actions=(copy_corrections,))
extend(Agent, "correction.view_behaviorrequest", sections=(agent_behavior_panel,), anchors=(("requests", "Requests"),))
extend(ApiToken, "correction.view_correctionlog", panels=(checks_panel,))
extend(
    Message,
    "correction.view_correctionlog",
    panels=(gate_panel,),
    notes=(gate_notes,),
)
extend(Message, "correction.view_behaviorrequest", notes=(behavior_notes,))
extend(Run, "correction.view_correctionlog", panels=(run_panel,))
