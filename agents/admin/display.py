"""Agents as columns, on pages, and as a filter of templates."""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.columns import VALUE_DISPLAYS
from agents.kit.templatetags.display import register as templates
from agents.models import Agent


def agent_chip(agent: Agent | None) -> SafeString:
    """Return an agent's dot and name, linked to its page."""
    if agent is None:
        return display.EMPTY
    return format_html(
        '<span class="pl-chip">{}{}</span>',
        display.avatar(agent.display_name, agent.avatar_color),
        display.page_of(agent, agent.display_name),
    )


VALUE_DISPLAYS[Agent] = agent_chip
templates.filter("agent_chip", agent_chip)
