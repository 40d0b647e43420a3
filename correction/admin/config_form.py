"""The form for some fields of one configuration: each inherits, or has a value of its own."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from django import forms
from django.conf import settings
from django.db.models import Q
from django.forms import ChoiceField
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.site import GrowingTextarea, NumberInput, TextInput
from agents.models import Agent
from correction.admin.display import label_of, number, origin, setting, share
from correction.admin.matrix import Mechanism, target_of
from correction.admin.thresholds import thresholds_url
from correction.config.configure import (
    LONGEST_REASON,
    ConfigChange,
    config_history,
    gate_from_now_on,
    inheritors,
    notes_on,
)
from correction.config.settings import (
    CONFIG_FIELDS,
    FIELDS,
    ConfigError,
    ConfigField,
    ResolvedConfig,
    merge,
    read_changes,
    resolve_config,
    resolve_defaults,
)
from correction.gate.thresholds import Precision, Scores, failing, precision, scores_of
from correction.models import AgentEvaluationConfig
from correction.models.config import LONGEST_NAME, MOST_NAMES
from evaluation.admin.display import judge_badge
from evaluation.models import is_heuristic


def precision_lines(found: Iterable[Precision], *, dimension: str, threshold: Decimal) -> SafeString:
    """A line per threshold and judge that people marked alarms of, the threshold in effect first; empty without marks."""
    ours = [row for row in found if row.dimension == dimension]
    ordered = sorted(ours, key=lambda row: (row.threshold != threshold, row.threshold, row.judge))
    return format_html_join("", "<div>{}</div>", ((_precision_line(row),) for row in ordered))


def _precision_line(row: Precision) -> SafeString:
    return format_html(
        "Below {}: <strong>{} of {}</strong> marked alarms were right, {} % (95 % interval {} to {} %) {}",
        number(row.threshold), row.right, row.marked, _percent(row.precision), _percent(row.low), _percent(row.high),
        judge_badge(row.judge) if row.judge else "",
    )  # fmt: skip


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"


Judged = tuple[int, dict[str, Scores]]  # of the latest first drafts, see `scores_of`


def judged_drafts(agent: Agent | None) -> Judged:
    """The last drafts judged by the kind of judge that is set now."""
    return scores_of(agent=agent, heuristic=is_heuristic(settings.JUDGE_MODEL))


def tried(agent: Agent | None, dimension: str, typed: str, judged: Judged) -> SafeString:
    """What the typed threshold would do; an empty one is the one in effect, one that is not allowed is explained."""
    field = f"gate_{dimension}_threshold"
    try:
        threshold = CONFIG_FIELDS[field].read(typed)
    except ConfigError as error:
        return format_html('<span class="pl-subtle">{}</span>', display.visible(error))
    if threshold is None:
        threshold = (resolve_config(agent) if agent else resolve_defaults())[field]
    return would_change(agent, dimension, threshold, judged)


def would_change(agent: Agent | None, dimension: str, threshold: Decimal, judged: Judged) -> SafeString:
    """One sentence: how many of the drafts fall below `threshold`."""
    total, scores = judged
    drafts = scores.get(dimension, Scores()).drafts
    whose = "" if agent else " of all agents"
    if not drafts:
        return format_html(
            '<span class="pl-subtle">No first draft{} was judged for {} yet; the observe mode collects some.</span>',
            whose, dimension,
        )  # fmt: skip
    kind = ""
    if is_heuristic(settings.JUDGE_MODEL):
        kind = display.badge("heuristic", "warning", "judged offline: not comparable with a model's scores")
    return format_html(
        "With a threshold of {}, <strong>{}</strong> judged drafts would have failed. {} "
        '<span class="pl-subtle">Looked at: the last {} first drafts{}.</span>',
        number(threshold), share(failing(drafts, threshold), drafts.total()), kind, f"{total:,}", whose,
    )  # fmt: skip


SEEN = "seen-"
_LONGEST_LIST = MOST_NAMES * (LONGEST_NAME + 10)


class ConfigForm(forms.Form):
    """Empty means inherit. What is inherited is shown where the value would stand: as a choice, or as the placeholder.

    Args:
        own: The row that is edited; None while there is none.
        defaults: The row of the defaults, where `own` is that of an agent.
        names: Fields of the configuration, in their order on the page.
        typed: Values that stand in the fields before anybody typed one, by their names: they are saved like typed ones.
    """

    reason = forms.CharField(
        required=False,
        max_length=LONGEST_REASON,
        label="Why",
        widget=TextInput,
        help_text="kept in the history beside your name",
    )

    def __init__(
        self,
        *args: Any,
        own: AgentEvaluationConfig | None,
        defaults: AgentEvaluationConfig | None,
        names: Iterable[str],
        typed: Mapping[str, str] = MappingProxyType({}),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.names = tuple(names)
        self._stored: dict[str, str] = {}
        for name in self.names:
            described = CONFIG_FIELDS[name]
            inherited = _inherited(own, defaults, name)
            stored = getattr(own, name, None)
            self.fields[name] = _field(described, inherited)
            self._stored[name] = "" if stored is None else described.show(stored)
            self.initial[name] = typed.get(name, self._stored[name])
        self.order_fields([*self.names, "reason"])

    def clean(self) -> dict[str, Any]:
        cleaned = dict(super().clean() or {})
        for name in self.names:
            try:
                cleaned[name] = CONFIG_FIELDS[name].read(cleaned.get(name))
            except ConfigError as error:
                self.add_error(name, str(error))
        return cleaned

    @property
    def changes(self) -> dict[str, Any]:
        """What this person changed, compared with what the page showed; what another person changed meanwhile stays."""
        return {name: self.cleaned_data[name] for name in self.names if self.cleaned_data[name] != self._seen(name)}

    def seen(self, name: str) -> str:
        """The value the page showed when it was opened, which it sends back beside the one that was typed."""
        return str(self.data.get(f"{SEEN}{name}", self._stored[name]))

    def _seen(self, name: str) -> Any:
        try:
            return CONFIG_FIELDS[name].read(self.seen(name))
        except ConfigError:  # no page of ours sent it
            return CONFIG_FIELDS[name].read(self._stored[name])


def _inherited(own: AgentEvaluationConfig | None, defaults: AgentEvaluationConfig | None, name: str) -> tuple[str, str]:
    """The value `name` would have if it were not set here, and where it would come from."""
    without = copy.copy(own)
    if without is not None:
        setattr(without, name, None)
    config = merge(own=without, defaults=defaults)
    return setting(name, config[name]), origin(config, name)


def _field(described: ConfigField, inherited: tuple[str, str]) -> forms.Field:
    value, where = inherited
    common: dict[str, Any] = {
        "required": False,
        "label": label_of(described.name),
        "help_text": described.description,
    }
    inherit = ("", f"inherit: {value} ({where})")
    if described.kind == "toggle":
        return forms.ChoiceField(choices=[inherit, ("on", "on"), ("off", "off")], widget=forms.RadioSelect, **common)
    if described.kind == "choice":
        return forms.ChoiceField(choices=[inherit, *described.labels], widget=forms.RadioSelect, **common)
    if described.kind == "list of names":
        names = GrowingTextarea(attrs={"placeholder": f"inherits {value} ({where})", "rows": 2})
        return forms.CharField(max_length=_LONGEST_LIST, widget=names, **common)
    step = "1" if described.kind == "whole number" else "any"
    attributes = {"placeholder": f"inherits {value} ({where})", "step": step, "inputmode": "decimal"}
    return forms.CharField(max_length=40, widget=NumberInput(attrs=attributes), **common)


NAMED = 5  # agents that inherit a change of the defaults and are named; the others are counted


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
    with_thresholds = any(mechanism.dimension for mechanism in mechanisms)
    marked = precision(agent=agent) if with_thresholds else []
    judged = judged_drafts(agent) if with_thresholds else (0, {})
    return {
        "agent": agent,
        "name": display.isolated(agent.display_name) if agent else "",
        "form": form,
        "notes": notes_on(config),
        "groups": [
            {
                "mechanism": mechanism,
                "lines": [
                    _line(agent, form, name, config, mechanism, marked, judged, tried_now) for name in mechanism.fields
                ],
            }
            for mechanism in mechanisms
        ],
    }


def _line(
    agent: Agent | None,
    form: ConfigForm,
    name: str,
    config: ResolvedConfig,
    mechanism: Mechanism,
    marked: list[Precision],
    judged: Judged,
    tried_now: bool,
) -> dict[str, Any]:
    """A field as the page shows it, with the value it had when the page was opened (`seen`), which the page sends back.

    A gate dimension's threshold also says what it does (`current`) and what the one in the form would do (`typed`).
    """
    bound = form[name]
    is_set_here = agent is None and config.provenance[name] == "defaults"
    line = {
        "bound": bound,
        "in_effect": setting(name, config[name]),
        "came_from": "set here" if is_set_here else origin(config, name),
        "is_choice": isinstance(bound.field, ChoiceField),
        "seen_name": f"{SEEN}{name}",
        "seen": form.seen(name),
    }
    dimension = mechanism.dimension
    if not dimension or name != mechanism.number:
        return line
    threshold = config.threshold(dimension)
    url = reverse("admin:correction_agentevaluationconfig_try", args=[target_of(agent)])
    return line | {
        "current": would_change(agent, dimension, threshold, judged),
        "typed": tried(agent, dimension, str(bound.value() or ""), judged) if tried_now else "",
        "precision": precision_lines(marked, dimension=dimension, threshold=threshold),
        "try_url": f"{url}?dimension={dimension}",
        "preview_url": thresholds_url(agent, dimension),
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


ENTRIES = 100


def history_context(agent: Agent | None) -> dict[str, Any]:
    """The latest changes, newest first; the newest is the present state and cannot be gone back to."""
    return {
        "name": display.isolated(agent.display_name) if agent is not None else "",
        "entries": [
            _entry(change, is_present=number == 0) for number, change in enumerate(config_history(agent, limit=ENTRIES))
        ],
        "limit": ENTRIES,
    }


def _entry(change: ConfigChange, *, is_present: bool) -> dict[str, Any]:
    return {
        "id": change.history_id,
        "at": display.moment(change.at),
        "user": display.isolated(change.user) if change.user else "",
        "reason": display.visible(change.reason),
        "kind": change.kind,
        "is_present": is_present,
        "changes": [
            {"label": label_of(name), "before": _shown(name, before), "after": _shown(name, after)}
            for name, (before, after) in change.changes.items()
        ],
    }


def _shown(name: str, value: Any) -> str:
    return "inherit" if value is None else setting(name, value)
