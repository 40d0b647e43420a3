"""The form of an operator's intervention: what may be chosen, and what a function needs, stands beside the fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.adminsite import Select
from correction.interventions import FUNCTIONS, NudgeType
from correction.interventions.builtin import CLAIM_VARIABLES, unstorable
from correction.interventions.nudges import VARIABLES
from correction.models import Intervention

if TYPE_CHECKING:
    InterventionModelForm = forms.ModelForm[Intervention]
else:
    InterventionModelForm = forms.ModelForm


class ParametersField(forms.JSONField):
    """JSON that every database can keep: Python's reader also takes NaN and halves of characters."""

    def to_python(self, value: Any) -> Any:
        found = super().to_python(value)
        if found is not None and (problem := unstorable(found)):
            raise forms.ValidationError(problem)
        return found

    def prepare_value(self, value: Any) -> Any:
        shown = super().prepare_value(value)
        return shown.encode("utf-8", "backslashreplace").decode() if isinstance(shown, str) else shown


class InterventionForm(InterventionModelForm):
    """Whether function, parameters, variables and nudge can be used is said by the model's `clean`, field by field."""

    class Meta:
        model = Intervention
        fields = "__all__"
        field_classes: ClassVar = {"function_parameters": ParametersField}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._offer("function", [(name, name.replace("_", " ")) for name in sorted(FUNCTIONS)], "no function")
        self._offer("nudge_type", NudgeType.choices, "no kind: the text below is the whole nudge")

    def _offer(self, name: str, choices: list[Any], nothing: str) -> None:
        """Let a person choose instead of type. A stored name that is not known any more stays, and is refused with a reason."""
        if name not in self.fields:  # read-only for this user
            return
        field, stored = self.fields[name], str(self.initial.get(name) or "")
        gone = [(stored, f"{stored} (not known)")] if stored and stored not in {value for value, _ in choices} else []
        self.fields[name] = forms.ChoiceField(
            choices=[("", nothing), *choices, *gone],
            required=False,
            label=field.label,
            help_text=field.help_text,
            widget=Select,
        )


def functions_help() -> SafeString:
    """Every function with its parameters."""
    rows = format_html_join(
        "",
        "<dt><code>{}</code></dt><dd>{} {}</dd>",
        ((function.name, function.doc, _parameters(function.describe())) for _, function in sorted(FUNCTIONS.items())),
    )
    return format_html(
        "<p>Functions cost nothing and are looked at first; the claims ask a judge only if the function holds. "
        'Claims may use {}.</p><details class="pl-folded"><summary>Functions and their parameters</summary>'
        '<dl class="pl-functions">{}</dl></details>',
        _variables(CLAIM_VARIABLES), rows,
    )  # fmt: skip


def nudges_help() -> SafeString:
    return format_html(
        "<p>Give a text, or a kind: then the agent gets its own text of that kind. A text may use {}.</p>",
        _variables(VARIABLES),
    )


def _parameters(described: dict[str, str]) -> SafeString:
    return format_html_join("", '<div class="pl-subtle"><code>{}</code> {}</div>', described.items())


def _variables(names: tuple[str, ...]) -> SafeString:
    return format_html_join(", ", "<code>{}</code>", (("{{" + name + "}}",) for name in names))
