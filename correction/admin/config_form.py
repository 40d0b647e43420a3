"""The form for some fields of one configuration: each inherits, or has a value of its own."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from django import forms

from agents.kit.console.site import GrowingTextarea, NumberInput, TextInput
from agents.kit.use_cases import renamed
from correction.admin.display import origin
from correction.config.configure import LONGEST_REASON, ConfigConflict, unusable
from correction.config.settings import LONGEST_NAME, MOST_NAMES, SETTINGS, ConfigError, Setting, merge
from correction.models import AgentEvaluationConfig

SEEN = "seen-"
_LONGEST_LIST = MOST_NAMES * (LONGEST_NAME + 10)


class ConfigForm(forms.Form):
    """Empty means inherit. What is inherited is shown where the value would stand: as a choice, or as the placeholder.

    Args:
        own: The row that is edited; None while there is none.
        defaults: The row of the defaults, where `own` is that of an agent.
        names: Fields of the configuration, in their order on the page.
    """

    reason = forms.CharField(
        required=False,
        max_length=LONGEST_REASON,
        label="Why",
        widget=TextInput,
        help_text="shown in the history with your name",
    )

    def __init__(
        self,
        *args: Any,
        own: AgentEvaluationConfig | None,
        defaults: AgentEvaluationConfig | None,
        names: Iterable[str],
        **kwargs: Any,
    ) -> None:
        """Make a field for each setting, with what is stored in it, else empty, and a field for the reason.

        Args:
            own: The row that is edited; None where nothing is stored yet.
            defaults: The row above it, from which an empty field inherits; None where there is none.
            names: Of the settings.
        """
        super().__init__(*args, **kwargs)
        self.names = tuple(names)
        self._stored: dict[str, str] = {}
        for name in self.names:
            stored = getattr(own, name, None)
            self._stored[name] = "" if stored is None else SETTINGS[name].show(stored)
            self.initial[name] = self._stored[name]
            self.fields[name] = _field(SETTINGS[name], inherited=_inherited(name, own, defaults))
        self.order_fields([*self.names, "reason"])

    def clean(self) -> dict[str, Any]:
        cleaned = dict(super().clean() or {})
        for name in self.names:
            try:
                cleaned[name] = SETTINGS[name].read(cleaned.get(name))
            except ConfigError as error:
                self._refuse(name, str(error))
        changed = {name: cleaned.get(name) for name in self.names if cleaned.get(name) != self._seen(name)}
        for name, problem in unusable(changed).items():
            self._refuse(name, problem)
        return cleaned

    def _refuse(self, name: str, sentence: str) -> None:
        """Put a sentence on a field, with the field's label instead of its name."""
        self.add_error(name, renamed(sentence, name, to=self[name].label) or sentence)

    @property
    def changes(self) -> dict[str, Any]:
        """Return what this person changed, compared with what the page showed; what another person changed meanwhile stays."""
        return {name: self.cleaned_data[name] for name in self.names if self.cleaned_data[name] != self._seen(name)}

    @property
    def was(self) -> dict[str, Any]:
        """Return what the page showed of what is stored."""
        return {name: self._seen(name) for name in self.names}

    def show_conflict(self, conflict: ConfigConflict) -> None:
        """Say what another person changed meanwhile, with what was typed; saving again is a decision about it."""
        self.data: Any = self.data.copy()
        for name, sentence in conflict.errors.items():
            self.data[f"{SEEN}{name}"] = self._stored[name]
            self.add_error(name, sentence)

    def seen(self, name: str) -> str:
        """Return the value the page showed when it was opened, which it sends back with the one that was typed."""
        return str(self.data.get(f"{SEEN}{name}", self._stored[name]))

    def _seen(self, name: str) -> Any:
        try:
            return SETTINGS[name].read(self.seen(name))
        except ConfigError:  # no page of ours sent it
            return SETTINGS[name].read(self._stored[name])


def _inherited(name: str, own: AgentEvaluationConfig | None, defaults: AgentEvaluationConfig | None) -> str:
    """Return the value that an empty field would inherit, and where from."""
    without = copy.copy(own)
    if without is not None:
        setattr(without, name, None)
    config = merge(own=without, defaults=defaults)
    return f"{config.show(name)} ({origin(config, name)})"


def _field(setting: Setting, *, inherited: str) -> forms.Field:
    """Return the form field of a setting, never required: an empty one inherits. `inherited` is the value it would have then, in words."""
    common: dict[str, Any] = {"required": False, "label": setting.label, "help_text": setting.help}
    placeholder = f"inherits {inherited}"
    if setting.kind in ("toggle", "choice"):
        choices: list[tuple[str, Any]] = [("", f"inherit: {inherited}")]
        choices += [("on", "on"), ("off", "off")] if setting.choices is None else setting.choices.choices
        return forms.ChoiceField(choices=choices, widget=forms.RadioSelect, **common)
    if setting.kind == "list of names":
        names = GrowingTextarea(attrs={"placeholder": placeholder, "rows": 2})
        return forms.CharField(max_length=_LONGEST_LIST, widget=names, **common)
    step = "1" if setting.kind == "whole number" else "any"
    attributes: dict[str, Any] = {"placeholder": placeholder, "step": step, "inputmode": "decimal"}
    return forms.CharField(max_length=40, widget=NumberInput(attrs=attributes), **common)
