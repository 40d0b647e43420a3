"""The form that draws a label set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from agents.console.site import NumberInput, Select, TextInput
from evaluation.calibration.population import MOST_DRAWN
from evaluation.models import COUNTED, Dimension, EvaluationRun, procedure_name


class DrawForm(forms.Form):
    """What to draw."""

    name = forms.CharField(max_length=100, widget=TextInput, help_text="of the label set, unique")
    judged_by = forms.ChoiceField(label="judge", widget=Select, help_text="and how it judged")
    dimension = forms.ChoiceField(
        widget=Select, choices=[(d.value, d.label) for d in Dimension if d.value not in COUNTED]
    )
    n = forms.IntegerField(
        label="how many", min_value=1, max_value=MOST_DRAWN, initial=80, widget=NumberInput,
        help_text="judgements, drawn at random; 50 or more give a prediction-powered mean",
    )  # fmt: skip
    agents = forms.CharField(
        required=False, widget=TextInput, help_text="slugs separated by commas; empty = from everything by that judge"
    )
    seed = forms.IntegerField(
        initial=0, min_value=-(2**63), max_value=2**63 - 1, widget=NumberInput, help_text="the same seed draws the same"
    )

    def __init__(self, *args: Any, judges: Sequence[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.judges = list(judges)
        field = self.fields["judged_by"]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101 (for the type checker)
        field.choices = [(str(n), f"{judge}, {procedure}") for n, (judge, procedure) in enumerate(self.judges)]


def known_judges() -> list[tuple[str, str]]:
    """Judge and procedure of the evaluations there are."""
    fields = ("judge", "method", "hard", "double_check", "simulated")
    rows = EvaluationRun.objects.order_by("judge").values_list(*fields).distinct()
    named = [
        (judge, procedure_name(method=m, hard=hard, double_check=double, simulated=simulated))
        for judge, m, hard, double, simulated in rows
    ]
    return sorted(set(named))
