"""The form for some fields of one configuration: each inherits, or has a value of its own."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from django import forms

from agents.adminsite import GrowingTextarea, NumberInput, TextInput
from correction.admin.display import label_of, origin, setting
from correction.config.configure import LONGEST_REASON
from correction.config.fields import CONFIG_FIELDS, ConfigError, ConfigField
from correction.config.resolve import merge
from correction.models import AgentEvaluationConfig
from correction.models.config import LONGEST_NAME, MOST_NAMES

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
        """What this person changed, compared with what the page showed; what somebody else changed meanwhile stays."""
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
