"""Pick agents in a form: the theme's search field, which shows names and faces and never loads all agents."""

from __future__ import annotations

from typing import Any

from django import forms
from django.urls import reverse_lazy
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.site import SearchSelect
from agents.models import Agent

SEEN_COLUMNS = ("slug", "display_name", "avatar_color")  # of an agent, where it is picked


def face(agent: Agent) -> SafeString:
    """Return an agent as it is shown where it is picked: its dot, its name, and the slug that tells it from others of that name."""
    avatar = display.avatar(agent.display_name, agent.avatar_color)
    name = display.isolated(agent.display_name)
    return format_html('{} {} <span class="pl-subtle">{}</span>', avatar, name, agent.slug)


class AgentsSelect(SearchSelect):
    """The theme's search field for several agents; its values are their slugs."""

    class Media:
        js = (
            "admin/js/vendor/select2/select2.full.js",
            "admin/js/jquery.init.js",
            "kit/picks.js",
        )  # it comes after both

    def __init__(self) -> None:
        super().__init__({"data-ajax--url": reverse_lazy("admin:agents_agent_pick"), "data-picks": True})
        self.attrs["data-allow-clear"] = (
            "false"  # its button stands in a list without being an item, which screen readers stumble over
        )

    def optgroups(self, name: str, value: list[str], attrs: dict[str, Any] | None = None) -> list[Any]:
        """Return an option for each agent that is picked, in the order of picking; a slug that is no agent's is shown as it is."""
        value = [slug.replace("\x00", "") for slug in value]
        agents = {agent.slug: agent for agent in Agent.objects.filter(slug__in=value).only(*SEEN_COLUMNS)}
        options = []
        for index, slug in enumerate(value):
            option = self.create_option(name, slug, slug, True, index)
            if slug in agents:
                option["label"] = display.marked(agents[slug].display_name)
                option["attrs"]["data-html"] = escape(face(agents[slug]))
            options.append(option)
        return [(None, options, 0)]


class AgentsField(forms.MultipleChoiceField):
    """Agents that are picked, as a list of slugs in the order of picking; the model of the use case checks them."""

    widget = AgentsSelect

    def valid_value(self, value: Any) -> bool:
        return True
