"""The editor of propositions in the console, and the page that asks for suggestions."""

from agents.kit.console.site import extend
from agents.models import Agent
from evaluation.admin.display import MEASURE
from evaluation.drafting.admin import chat, jobs, propositions, review
from evaluation.drafting.admin.jobs import suggest_buttons

__all__ = ["chat", "jobs", "propositions", "review"]

extend(Agent, MEASURE, buttons=(suggest_buttons,))
