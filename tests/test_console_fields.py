"""Every field that can be filled in says what it means, or stands in the short list of those that need no words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.test import RequestFactory

from agents.kit.console.help import fields_of
from agents.kit.console.site import ModelAdmin
from tests.console import superuser
from tests.listed_rows import MAKERS, people

pytestmark = pytest.mark.django_db

SELF_EXPLAINING = {"DELETE", "id", "opened"}  # the theme's own box, and hidden inputs


@pytest.fixture
def asked() -> HttpRequest:
    request = RequestFactory().get("/")
    request.user = superuser()
    return request


def forms(request: HttpRequest, model: type[Model], row: Model | None) -> Iterator[tuple[str, Any]]:
    """The editable fields of a model's form and of the forms inside it, as (where, field)."""
    model_admin = admin.site.get_model_admin(model)
    may = model_admin.has_add_permission(request) if row is None else model_admin.has_change_permission(request, row)
    if not may or (row is None and type(model_admin).add_view is not ModelAdmin.add_view):  # a page of its own asks
        return
    form = model_admin.get_form(request, row, change=row is not None)
    readonly = model_admin.get_readonly_fields(request, row)
    yield from ((f"{model._meta.label}.{name}", f) for name, f in form.base_fields.items() if name not in readonly)
    for formset, inline in model_admin.get_formsets_with_inlines(request, row):
        if inline.has_change_permission(request, row):
            held = inline.get_readonly_fields(request, row)
            label = f"{model._meta.label}: {inline.model._meta.label}"
            yield from ((f"{label}.{name}", f) for name, f in formset.form.base_fields.items() if name not in held)


def test_each_editable_field_has_a_help_text(asked: HttpRequest) -> None:
    cast = people()
    silent = []
    for model in admin.site._registry:
        label = model._meta.label_lower
        if label not in MAKERS:
            continue
        MAKERS[label](cast, 0, 1)
        row = model._default_manager.first()
        for where, field in (*forms(asked, model, None), *forms(asked, model, row)):
            if not field.help_text and where.rpartition(".")[2] not in SELF_EXPLAINING:
                silent.append(where)

    assert silent == []


def test_no_help_text_of_a_field_shows_marks_of_code() -> None:
    for model in admin.site._registry:
        marked = [note.name for note in fields_of(model) if "`" in note.text]
        assert not marked, f"{model._meta.label}: {marked}"
