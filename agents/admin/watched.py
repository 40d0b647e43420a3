"""Lists in which no example stands among the team's own work."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from agents.kit.console.paging import PagedList
from agents.models import about_watched_agents


class WatchedList(PagedList):
    """A list of rows about watched agents, as on the first page, or about none; filtered by an agent it has all of that agent."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request, exclude_parameters)
        is_of_one_agent = any(name.startswith("agent__") for name in self.params)
        return rows if is_of_one_agent else rows.filter(about_watched_agents())
