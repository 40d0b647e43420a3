"""The fields of a configuration as people and programs write them: what each means, what is allowed, and reading a value."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from django.core.exceptions import ValidationError

from correction.models import AgentEvaluationConfig
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
