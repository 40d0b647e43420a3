"""The page that edits a configuration: its groups of fields, and what is known about each threshold."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Q
from django.forms import BoundField, ChoiceField
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.admin import display
from agents.models import Agent
from correction.admin.config_form import SEEN, ConfigForm
from correction.admin.display import label_of, origin, setting
from correction.admin.matrix import target_of
from correction.admin.mechanisms import Mechanism
from correction.admin.precision import precision_lines
from correction.admin.thresholds import thresholds_url
from correction.admin.trying import tried, would_change
from correction.config.configure import gate_from_now_on, inheritors, notes_on
from correction.config.fields import ConfigError, read_changes
from correction.config.resolve import FIELDS, ResolvedConfig, merge
from correction.gate.thresholds import Precision, precision
from correction.models import AgentEvaluationConfig

NAMED = 5  # agents that inherit a change of the defaults and are named; the others are counted


@dataclass(frozen=True, slots=True)
class FieldLine:
    """A field as the page shows it; the last five only for the threshold of a gate dimension.

    `seen` is the value it had when the page was opened, and `seen_name` the name under which the page sends that back.
    `current` says what the threshold in effect does, `typed` what the one in the form would do; `try_url` asks that again.
    `preview_url` is the page with the histogram.
    """

    bound: BoundField
    in_effect: str
    came_from: str
    is_choice: bool
    seen_name: str
    seen: str
    current: SafeString | str = ""
    typed: SafeString | str = ""
    precision: SafeString | str = ""
    try_url: str = ""
    preview_url: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    mechanism: Mechanism
    lines: tuple[FieldLine, ...]


def stored_rows(agent: Agent | None) -> tuple[AgentEvaluationConfig | None, AgentEvaluationConfig | None]:
    """The row that is edited, and the defaults above it (None when these are edited), in one query."""
    wanted = Q(is_defaults=True) | Q(agent=agent) if agent is not None else Q(is_defaults=True)
    rows = {row.agent_id: row for row in AgentEvaluationConfig.objects.filter(wanted).order_by()}
    return (rows.get(agent.pk), rows.get(None)) if agent is not None else (rows.get(None), None)


def form_context(
    agent: Agent | None,
    form: ConfigForm,
    mechanisms: Sequence[Mechanism],
    *,
    own: AgentEvaluationConfig | None,
    defaults: AgentEvaluationConfig | None,
    tried_now: bool,
) -> dict[str, Any]:
    """What the template shows; with `tried_now` also what the typed thresholds would do."""
    config = merge(own=own, defaults=defaults) if agent is not None else merge(own=None, defaults=own)
    marked = precision(agent=agent) if any(mechanism.dimension for mechanism in mechanisms) else []
    return {
        "agent": agent,
        "name": display.isolated(agent.display_name) if agent else "",
        "form": form,
        "notes": notes_on(config),
        "groups": [
            Group(
                mechanism,
                tuple(
                    _threshold(line, agent, mechanism.dimension, config, marked, tried_now=tried_now)
                    if mechanism.dimension and line.bound.name == mechanism.number
                    else line
                    for line in (_line(agent, form, name, config) for name in mechanism.fields)
                ),
            )
            for mechanism in mechanisms
        ],
    }


def asking(before: ResolvedConfig, changes: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the page shows that asks before the defaults are changed; None where nothing changes for any agent."""
    try:
        values = read_changes(changes)
    except ConfigError:
        return None
    stored, _ = stored_rows(None)
    row = copy.copy(stored) if stored is not None else AgentEvaluationConfig(is_defaults=True)
    changed = {name: value for name, value in values.items() if getattr(row, name) != value}
    for name, value in changed.items():
        setattr(row, name, value)
    number = inheritors(changed).count() if changed else 0
    if not number:
        return None
    after = merge(own=None, defaults=row)
    moved = [name for name in FIELDS if before[name] != after[name] or name in changed]
    return {
        "number": number,
        "named": [display.isolated(agent) for agent in inheritors(changed)[:NAMED]],
        "more": max(0, number - NAMED),
        "changes": [(label_of(name), setting(name, before[name]), setting(name, after[name])) for name in moved],
        "gate": gate_from_now_on(before, after),
        "back": reverse("admin:correction_agentevaluationconfig_changelist"),
    }


def _line(agent: Agent | None, form: ConfigForm, name: str, config: ResolvedConfig) -> FieldLine:
    bound = form[name]
    is_set_here = agent is None and config.provenance[name] == "defaults"
    return FieldLine(
        bound=bound,
        in_effect=setting(name, config[name]),
        came_from="set here" if is_set_here else origin(config, name),
        is_choice=isinstance(bound.field, ChoiceField),
        seen_name=f"{SEEN}{name}",
        seen=form.seen(name),
    )


def _threshold(
    line: FieldLine,
    agent: Agent | None,
    dimension: str,
    config: ResolvedConfig,
    marked: list[Precision],
    *,
    tried_now: bool,
) -> FieldLine:
    """The threshold of a gate dimension with what is known of it."""
    threshold = config.threshold(dimension)
    url = reverse("admin:correction_agentevaluationconfig_try", args=[target_of(agent)])
    return replace(
        line,
        current=would_change(agent, dimension, threshold),
        typed=tried(agent, dimension, str(line.bound.value() or "")) if tried_now else "",
        precision=precision_lines(marked, dimension=dimension, threshold=threshold),
        try_url=f"{url}?dimension={dimension}",
        preview_url=thresholds_url(agent, dimension),
    )
