"""The fields of a model as its help page lists them: what each means, in which unit, and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Field, Model
from django.utils.text import capfirst

from agents.handbook.texts import field_help

HIDDEN = ("password",)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldNote:
    """One field for people. `values` are those allowed, where it has choices, with their labels."""

    name: str
    label: str
    text: str
    values: tuple[tuple[str, str], ...] = ()


def fields_of(model: type[Model]) -> list[FieldNote]:
    """The fields of `model` that say something about themselves, as they are declared."""
    declared = [*model._meta.fields, *model._meta.many_to_many]
    notes = [_note(model, field) for field in declared if not field.primary_key and field.name not in HIDDEN]
    return [note for note in notes if note.text or note.values]


def _note(model: type[Model], field: Field[Any, Any]) -> FieldNote:
    values = [(str(value), str(label)) for value, label in field.flatchoices if value not in ("", None)]
    return FieldNote(
        name=field.name,
        label=capfirst(str(field.verbose_name)),
        text=_sentence(str(field.help_text) or field_help(model, field.name)),
        values=tuple(values),
    )


def _sentence(text: str) -> str:
    """Help texts are written small, as labels are; in a list of definitions they are sentences."""
    return f"{capfirst(text)}{'' if text.endswith(('.', '!', '?')) else '.'}" if text else ""
