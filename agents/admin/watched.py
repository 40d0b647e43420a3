"""Lists in which no example stands among the team's own work."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from agents.kit.console import display
from agents.kit.console.paging import PagedList
from agents.models import Agent, about_watched_agents

MOST_LINKED = 20  # agents


class WatchedList(PagedList):
    """A list of rows about watched agents, as on the first page, or about none; filtered by an agent it has all of that agent."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        self.rows_of_all_agents: QuerySet[Any] = super().get_queryset(request, exclude_parameters)
        is_of_one_agent = any(name.startswith("agent__") for name in self.params)
        if is_of_one_agent:
            return self.rows_of_all_agents
        return self.rows_of_all_agents.filter(about_watched_agents())

    def get_results(self, request: HttpRequest) -> None:
        """Set also, of an empty list, the names and addresses of the examples whose rows it leaves out."""
        super().get_results(request)
        self.left_out = []
        if not self.result_list:
            agents = Agent.objects.filter(pk__in=self.rows_of_all_agents.order_by().values("agent"), synthetic=False)
            for agent in agents.order_by("display_name", "pk")[:MOST_LINKED]:
                url = self.get_query_string({"agent__id__exact": agent.pk})
                self.left_out.append((display.isolated(agent.display_name), url))
