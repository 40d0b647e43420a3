"""The settings of one agent: what can be set, how a value is read, and what is in effect (AC-7.3.3).

The first of override, agent, defaults row and built-in value that is set wins.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import sentry_sdk
from django.core.exceptions import ValidationError
from django.db.models import Q

from agents.models import Agent
from agents.turn.pipeline import Turn
from correction.models import AgentEvaluationConfig, GateMode
from correction.models.config import LONGEST_NAME, MOST_NAMES, SETTINGS, Setting

NO_NAMES = "none"  # a list with nothing in it, which is not the same as inheriting one


def read_names(value: Any) -> list[str]:
    """The names in a text or a list, trimmed, each once, in their order.

    Raises:
        ValueError: It is neither, or a quote is not closed.
    """
    if isinstance(value, str):
        if value.strip().lower() == NO_NAMES:
            return []
        try:
            value = [name for row in csv.reader(value.splitlines(), skipinitialspace=True, strict=True) for name in row]
        except csv.Error as error:
            raise ValueError(str(error)) from error
        value = [name for name in value if name.strip()]  # a comma at the end of a line
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError("neither a text nor a list of texts")
    return list(dict.fromkeys(" ".join(name.split()) for name in value))


def show_names(names: Sequence[str]) -> str:
    """The list as one line that `read_names` reads."""
    return ", ".join(_quoted(names)) or NO_NAMES


def _quoted(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        odd = "," in name or '"' in name or name.lower() in (NO_NAMES, "inherit")
        yield '"' + name.replace('"', '""') + '"' if odd else name


Kind = Literal["toggle", "choice", "whole number", "number", "list of names"]

INHERIT = "inherit"
_ON = ("on", "true", "yes", "1")
_OFF = ("off", "false", "no", "0")
_SHOWN_CHARACTERS = 60
_MOST_ERRORS = len(SETTINGS)


class ConfigError(ValueError):
    """Changes that are refused. `errors` says per field what is wrong and what is allowed."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        self.errors = dict(errors)
        super().__init__("; ".join(self.errors.values()))


@dataclass(frozen=True, slots=True)
class ConfigField:
    """One field: its kind, what it may be set to, and what it does."""

    name: str
    kind: Kind
    allowed: str
    description: str
    labels: tuple[tuple[str, str], ...] = ()
    places: int = 0

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a choice; empty for every other kind."""
        return tuple(value for value, _ in self.labels)

    def read(self, value: Any) -> Any:
        """A value as the column stores it; None for one that means inherit (None, empty, ``inherit``).

        Raises:
            ConfigError: It is not allowed; names field, value and range.
        """
        if isinstance(value, str):
            value = value.strip()
        if value is None or (isinstance(value, str) and value.lower() in ("", INHERIT)):
            return None
        try:
            field = AgentEvaluationConfig._meta.get_field(self.name)
            typed = self._typed(value)
            if typed == []:  # a column takes it for no value; here it is one: no name
                return typed
            return field.clean(typed, None)  # type: ignore[union-attr]
        except (ValueError, ArithmeticError, ValidationError):
            shown = repr(value) if len(repr(value)) <= _SHOWN_CHARACTERS else f"{repr(value)[:_SHOWN_CHARACTERS]}…"
            raise ConfigError({self.name: f"{self.name} {shown}: allowed: {self.allowed}, or {INHERIT}"}) from None

    def show(self, value: Any) -> str:
        """A stored value for people."""
        return INHERIT if value is None else self.show_effective(value)

    def show_effective(self, value: Any) -> str:
        """A value in effect for people."""
        if value is None:
            return "–"
        if self.kind == "toggle":
            return "on" if value else "off"
        if self.kind == "list of names":
            return show_names(value)
        return f"{value.normalize():f}" if isinstance(value, Decimal) else str(value)

    def _typed(self, value: Any) -> Any:
        """The value in the column's type, nothing bent on the way: 2.5 is no whole number, true no number."""
        if self.kind == "list of names":
            return read_names(value)
        text = str(value).lower() if isinstance(value, str | int | float | Decimal) else ""
        if self.kind == "toggle" and text in (*_ON, *_OFF):
            return text in _ON
        if self.kind == "choice" and text in self.choices:
            return text
        if self.kind in ("toggle", "choice") or isinstance(value, bool) or not text:
            raise ValueError
        number = Decimal(text)
        if not number.is_finite() or (self.kind == "whole number" and number != number.to_integral_value()):
            raise ValueError
        if self.kind == "whole number":
            return int(number) if abs(number) < 10**9 else 10**9
        return number.quantize(Decimal(1).scaleb(-self.places)) if number == round(number, self.places) else number


def read_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Values as the columns store them.

    Raises:
        ConfigError: Unknown fields, or values that are not allowed; all of them at once (of a flood, the first ones).
    """
    read: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name, value in changes.items():
        if name not in CONFIG_FIELDS:
            if len(errors) < _MOST_ERRORS:
                errors[name] = unknown(name, CONFIG_FIELDS, kind="field")
            continue
        try:
            read[name] = CONFIG_FIELDS[name].read(value)
        except ConfigError as error:
            errors |= error.errors
    if errors:
        raise ConfigError(errors)
    return read


def unknown(name: str, known: Iterable[str], *, kind: str) -> str:
    """A sentence for a name that is none, with the nearest ones first."""
    names = list(known)
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.6)
    guess = f" (did you mean {' or '.join(near)}?)" if near else ""
    shown = name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…"
    return f"there is no {kind} {shown!r}{guess}; allowed: {', '.join(names)}"


def _described(name: str, setting: Setting) -> ConfigField:
    if setting.choices is not None:
        labels = tuple((str(value), str(label)) for value, label in setting.choices.choices)
        return ConfigField(name, "choice", " or ".join(setting.choices.values), setting.help, labels)
    if setting.bounds is not None:
        low, high = setting.bounds
        if not setting.places:
            return ConfigField(name, "whole number", f"a whole number, {low} to {high}", setting.help)
        plural = "s" if setting.places > 1 else ""
        allowed = f"{low} to {high} with at most {setting.places} decimal place{plural}"
        return ConfigField(name, "number", allowed, setting.help, places=setting.places)
    if isinstance(setting.built_in, list):
        allowed = (
            f"up to {MOST_NAMES} names of at most {LONGEST_NAME} characters, separated by commas or lines (one with a comma in double "
            f"quotes), or {NO_NAMES}"
        )
        return ConfigField(name, "list of names", allowed, setting.help)
    return ConfigField(name, "toggle", "on or off", setting.help)


CONFIG_FIELDS: dict[str, ConfigField] = {name: _described(name, setting) for name, setting in SETTINGS.items()}


Provenance = Literal["override", "agent", "defaults", "built-in"]

# What holds where no row says anything. None = follows from other fields, see `resolve_config`.
BUILT_IN: dict[str, Any] = {name: setting.built_in for name, setting in SETTINGS.items()}
FIELDS: tuple[str, ...] = tuple(BUILT_IN)
# A dimension the gate can check is one that has these two columns; its claims are the action-level files of its name.
GATE_DIMENSIONS: tuple[str, ...] = tuple(
    name.removeprefix("gate_").removesuffix("_threshold")
    for name in FIELDS
    if name.startswith("gate_") and name.endswith("_threshold")
)


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """The values in effect for one agent, and where each came from. Both hold every name of `FIELDS`."""

    values: Mapping[str, Any]
    provenance: Mapping[str, Provenance]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def gate_mode(self) -> str:
        return str(self.values["gate_mode"])

    @property
    def gate_dimensions(self) -> tuple[str, ...]:
        """The dimensions the gate checks: those enabled, and adherence where only the agent's rules are."""
        return tuple(
            d
            for d in GATE_DIMENSIONS
            if self.values[f"gate_{d}_enabled"] or (d == "adherence" and self.values["gate_rules_enabled"])
        )

    @property
    def gate_is_off(self) -> bool:
        return self.gate_mode == GateMode.OFF or not self.gate_dimensions

    def threshold(self, dimension: str) -> Decimal:
        """Lowest score (0 to 9) that passes."""
        return Decimal(self.values[f"gate_{dimension}_threshold"])


def resolve_config(agent: Agent, overrides: Mapping[str, Any] | None = None) -> ResolvedConfig:
    """The configuration of `agent` in effect, in one query.

    Where no row sets `gate_mode`, it is ``enforce`` as soon as a check is enabled; where none sets `gate_rules_enabled`, the agent's
    rules are checked wherever adherence is.

    Args:
        agent: Whose.
        overrides: Values for one run (`Run.overrides`); names that are no field, and None, are passed over.
    """
    with sentry_sdk.start_span(op="correction.config", name="resolve config") as span:
        rows = AgentEvaluationConfig.objects.filter(Q(agent=agent) | Q(is_defaults=True)).order_by()
        own = defaults = None
        for row in rows:
            own, defaults = (own, row) if row.is_defaults else (row, defaults)
        resolved = merge(own=own, defaults=defaults, overrides=_checked(overrides or {}))
        span.set_data("gate_mode", resolved.gate_mode)
        return resolved


def resolve_all(agents: Iterable[Agent]) -> list[tuple[Agent, ResolvedConfig]]:
    """The configuration of each of these agents, in one query (give a queryset with ``select_related("evaluation_config")``)."""
    defaults = AgentEvaluationConfig.objects.filter(is_defaults=True).first()
    return [(agent, merge(own=getattr(agent, "evaluation_config", None), defaults=defaults)) for agent in agents]


def resolve_defaults() -> ResolvedConfig:
    """What holds for an agent that says nothing of its own."""
    return merge(own=None, defaults=AgentEvaluationConfig.objects.filter(is_defaults=True).first())


def config_of(turn: Turn) -> ResolvedConfig:
    """The configuration of a turn, read once and kept on it: an edit holds from the next turn on."""
    known: ResolvedConfig | None = turn.reports.get("config")
    if known is None:
        known = turn.reports["config"] = resolve_config(turn.agent, turn.overrides)
    return known


def merge(
    *,
    own: AgentEvaluationConfig | None,
    defaults: AgentEvaluationConfig | None,
    overrides: Mapping[str, Any] | None = None,
) -> ResolvedConfig:
    """The merge without a query, for lists of agents."""
    values: dict[str, Any] = {}
    provenance: dict[str, Provenance] = {}
    for name, built_in in BUILT_IN.items():
        layers: tuple[tuple[Provenance, Any], ...] = (
            ("override", (overrides or {}).get(name)),
            ("agent", getattr(own, name, None)),
            ("defaults", getattr(defaults, name, None)),
        )
        provenance[name], values[name] = next(
            ((layer, value) for layer, value in layers if value not in (None, "")), ("built-in", built_in)
        )
    if values["gate_rules_enabled"] is None:
        values["gate_rules_enabled"] = values["gate_adherence_enabled"]
    if values["gate_mode"] is None:
        enabled = values["gate_rules_enabled"] or any(values[f"gate_{d}_enabled"] for d in GATE_DIMENSIONS)
        values["gate_mode"] = str(GateMode.ENFORCE if enabled else GateMode.OFF)
    return ResolvedConfig(values, provenance)


def _checked(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides that are fields, as the types of the columns; one that is not valid is left out, for a turn must not die of it."""
    valid: dict[str, Any] = {}
    for name in BUILT_IN.keys() & overrides.keys():
        with contextlib.suppress(ConfigError):
            valid[name] = CONFIG_FIELDS[name].read(overrides[name])
    return valid
