"""The console's pages for corrections, and what correcting adds to the pages of agents and messages."""

from agents.admin.chat import add_choice
from agents.kit.console.site import extend
from agents.kit.models import ApiToken
from agents.models import Agent, Message, Run
from correction.admin import agents, config, home, logs, review
from correction.admin.agents import (
    config_panel,
    copy_corrections,
    corrections_panel,
    costs_panel,
    gate_in_chat,
    gate_overrides,
    gate_steps,
)
from correction.admin.gate import gate_buttons
from correction.admin.matrix import gate_url
from correction.admin.sessions import gate_notes, gate_panel, run_panel
from correction.admin.tokens import example_of_check
from evaluation.change.admin.drift_overview import add_steps
from evaluation.change.admin.home import RowButton, add_row_button

__all__ = ["agents", "config", "home", "logs", "review"]

add_steps(gate_steps)
add_row_button(RowButton("Set the gate", "correction.view_agentevaluationconfig", gate_url))
add_choice("gate_mode", gate_in_chat, gate_overrides)
extend(
    Agent,
    "correction.view_agentevaluationconfig",
    tab="gate",
    sections=(config_panel,),
    buttons=(gate_buttons,),
    anchors=(("config", "Corrections"),),
)
extend(
    Agent,
    "correction.view_correctionlog",
    tab="gate",
    sections=(corrections_panel,),
    anchors=(("corrections", "Last corrections"),),
)
extend(Agent, "kit.view_llmcall", order=2, tab="history", sections=(costs_panel,), anchors=(("costs", "Costs"),))
extend(Agent, "correction.change_agentevaluationconfig", actions=(copy_corrections,))
extend(ApiToken, "kit.add_apitoken", sections=(example_of_check,))
extend(
    Message,
    "correction.view_correctionlog",
    panels=(gate_panel,),
    notes=(gate_notes,),
)
extend(Run, "correction.view_correctionlog", panels=(run_panel,))
