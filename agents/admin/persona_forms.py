"""The forms of an agent's page: nothing that changed while the page was open is undone by saving it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms

from agents.admin.opened import as_stored, opened_on, read_opened, text_digest, what_changed
from agents.adminsite import ColorInput, GrowingTextarea, TextInput
from agents.models import Agent, Trait
from agents.personas_io.shape import not_reserved

if TYPE_CHECKING:
    AgentModelForm = forms.ModelForm[Agent]
    TraitModelForm = forms.ModelForm[Trait]
else:
    AgentModelForm = TraitModelForm = forms.ModelForm


class LinesField(forms.JSONField):
    """A list of texts as JSON, one text a line; a text may itself have line breaks."""

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, list):
            return json.dumps(value, indent=0, ensure_ascii=False) if value else "[]"
        return super().prepare_value(value)

    def validate(self, value: Any) -> None:
        if not isinstance(value, list) or not all(isinstance(line, str) and line.strip() for line in value):
            raise forms.ValidationError('Write a JSON list of texts, e.g. ["Hello there.", "Second line."].')


class AgentForm(AgentModelForm):
    sample_lines = LinesField(
        required=False,
        initial=list,
        widget=GrowingTextarea,
        help_text="a JSON list of lines in the agent's voice; what the scripted actor says offline",
    )
    version_note = forms.CharField(
        required=False,
        max_length=150,
        widget=TextInput,
        label="What changed, and why",
        help_text="stored with the persona version that this save makes",
    )
    opened = forms.CharField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = Agent
        fields = (
            *("display_name", "slug", "title", "description", "avatar_color", "is_active"),
            *("system_prompt", "sample_lines", "model_id", "max_turns"),
        )
        widgets: ClassVar = {"avatar_color": ColorInput()}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.instance._state.adding:
            self.initial["opened"] = str(opened_on(self.instance))

    def clean_sample_lines(self) -> list[str]:
        return self.cleaned_data["sample_lines"] or []

    def clean_slug(self) -> str:
        slug = str(self.cleaned_data["slug"])
        if self.instance._state.adding or slug != self.initial.get("slug"):
            try:
                not_reserved(slug)
            except ValueError as error:
                raise forms.ValidationError(str(error)) from None
        return slug

    def clean_system_prompt(self) -> str:
        return as_stored(self.cleaned_data["system_prompt"], self.initial.get("system_prompt", ""))

    def clean(self) -> None:
        """Refuse, once, to save a page that shows an older persona. Workers wait for the lock until the save is done."""
        super().clean()
        typed, origin = self.cleaned_data.get("description", ""), Agent.DescriptionOrigin
        if self.instance._state.adding:
            self.instance.description_origin = origin.PERSON if typed else origin.UNKNOWN
            return
        now = Agent.objects.select_for_update(no_key=True).order_by().get(pk=self.instance.pk)
        opened = read_opened(self.cleaned_data.get("opened", ""))
        is_typed = opened.description != text_digest(typed) != text_digest(now.description)
        if problem := what_changed(now, opened, description_typed=is_typed):
            self.data: Any = self.data.copy()  # saving again is a decision about what is told here
            self.data["opened"] = str(opened_on(now))
            if not is_typed:
                self.data["description"] = now.description
            self.add_error(None, problem)
        self.cleaned_data["description"] = as_stored(typed, now.description) if is_typed else now.description
        self.instance.description_origin = origin.PERSON if is_typed else now.description_origin


class TraitForm(TraitModelForm):
    """A row that nobody touched is not saved, whatever became of the trait since the page was opened."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("name", "description", "strength", "sentiment"):
            if name in self.fields:
                self.fields[name].show_hidden_initial = True

    def clean_description(self) -> str:
        return as_stored(self.cleaned_data["description"], self.instance.description)
