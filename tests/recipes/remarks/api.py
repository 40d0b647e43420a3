"""Remarks over the API."""

from __future__ import annotations

from agents.api.filters import of_agent
from agents.kit.api.filters import InTime
from agents.kit.api.pagination import Log
from agents.kit.api.rows import Row
from agents.kit.api.views import Rows

from .models import Remark


class RemarkRow(Row, table=Remark, columns=("id", "agent", "text", "created_at")):
    """What somebody noticed about an agent."""


class RemarkFilters(InTime):
    agent = of_agent()


class Remarks(Rows):
    """Remarks, newest first."""

    queryset = Remark.objects.select_related("agent")
    answer_class = RemarkRow
    pagination_class = Log
    filterset_class = RemarkFilters
