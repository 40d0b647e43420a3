"""The way from a message in a chat to a new proposition of the agent."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils.safestring import SafeString

from agents.admin.chat import add_message_actions
from agents.kit.console import display
from agents.models import Agent, Message
from evaluation.drafting.admin.propositions import page_url


def rule_links(request: HttpRequest, agent: Agent, messages: list[Message]) -> dict[int, SafeString]:
    """Return the way from each message of the agent to the form of a new proposition, which is filled in with it."""
    links = {}
    for message in messages:
        if message.agent_id == agent.pk:
            url = page_url("new", agent.slug, from_message=str(message.pk))
            links[message.pk] = display.link(url, "Make this a rule", "say what its messages must keep")
    return links


add_message_actions("evaluation.change_proposition", rule_links)
