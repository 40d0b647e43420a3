"""Changes of corrections as markers on charts over time."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.urls import reverse

from agents.admin.chart_values import Marker
from agents.admin.markers import MOST_OF_A_KIND, MarkerSource, add_markers
from agents.models import Agent
from correction.admin.display import label_of, setting
from correction.admin.matrix import target_of
from correction.config.resolve import FIELDS
from correction.models import AgentEvaluationConfig

TOLD = 3  # differences named of one change


def config_changes(agents: Collection[int], since: datetime, until: datetime) -> list[Marker]:
    """The newest changes of these agents' configurations and of the defaults, each with what it changed; two queries."""
    history: Any = AgentEvaluationConfig.history
    rows = history.filter(Q(agent__in=agents) | Q(is_defaults=True), history_date__lte=until)
    newest = list(rows.select_related("history_user").order_by("-history_id")[: 2 * MOST_OF_A_KIND])
    names = {agent.pk: agent for agent in _agents(newest)}
    markers: list[Marker] = []
    for number, record in enumerate(newest):
        if record.history_date < since or len(markers) == MOST_OF_A_KIND:
            break
        agent = names.get(record.agent_id)
        before = next((row for row in newest[number + 1 :] if row.agent_id == record.agent_id), None)
        said = _said(before, record)
        if said:
            url = reverse("admin:correction_agentevaluationconfig_target_history", args=[target_of(agent)])
            whose = agent.display_name if agent is not None else "Defaults"
            markers.append(Marker(at=record.history_date, title=f"{whose}: {said}", url=url, kind="config"))
    return markers


def _agents(records: Iterable[Any]) -> Iterable[Agent]:
    return Agent.objects.filter(pk__in={record.agent_id for record in records}).only("display_name")


def _said(before: Any, record: Any) -> str:
    """What was changed, by whom; empty where nothing was, as in the row that begins a history."""
    by = f" by {record.history_user.get_username()}" if record.history_user is not None else ""
    if record.history_type == "-":
        return f"corrections deleted{by}"
    found = [name for name in FIELDS if getattr(before, name, None) != getattr(record, name)]
    told = ", ".join(f"{label_of(name)} {_shown(name, before)} → {_shown(name, record)}" for name in found[:TOLD])
    more = f" and {len(found) - TOLD} more" if len(found) > TOLD else ""
    return f"{told}{more}{by}" if told else ""


def _shown(name: str, record: Any) -> str:
    value = getattr(record, name, None)
    return "inherit" if value in (None, "") else setting(name, value)


add_markers(MarkerSource(permission="correction.view_agentevaluationconfig", find=config_changes))
