"""Every table is registered once, and what is registered holds: erasure, retention, sidebar, empty lists, deletion, export."""

from __future__ import annotations

import re

import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.core.management import get_commands
from django.db.models import CharField, Field, JSONField, Model, TextField

from agents.kit.capability import capabilities
from agents.kit.models import ModelPrice
from agents.kit.registry import Table, erasures, prunings, tables
from agents.models import Agent
from evaluation.models import Proposition
from tests.console import list_of, plain, read, signed_in, superuser, viewer

OURS = [model for app in capabilities() for model in app.get_models() if not model.__name__.startswith("Historical")]
LISTED = [table for table in tables().values() if admin.site.is_registered(table.model)]
NEVER_EMPTY = ("User", "Group", "ModelPrice", "AgentEvaluationConfig")  # but after a deletion


def named(table: Table) -> str:
    return table.model._meta.label


def text_columns(model: type[Model]) -> list[Field]:  # type: ignore[type-arg]
    return [field for field in model._meta.concrete_fields if isinstance(field, CharField | TextField | JSONField)]


def never_speech(field: Field) -> bool:  # type: ignore[type-arg]
    return (
        bool(field.choices) or field.name.endswith("digest") or field.name in ("lease_owner", "procedure", "dimension")
    )


def test_every_table_is_registered_and_every_list_has_its_registration() -> None:
    assert [model for model in OURS if model not in tables()] == []
    assert {table.model for table in LISTED} == set(admin.site._registry)
    assert {table.menu for table in tables().values()} <= {group for group, *_ in settings.CONSOLE_MENU} | {None}


def test_every_column_with_text_is_erased_typed_or_never_holds_speech() -> None:
    for model, table in tables().items():
        columns = {field.name for field in text_columns(model) if not never_speech(field)}
        rules = [rule for rule in erasures() if rule.of is model and not rule.report_only]
        erased = {name for rule in rules for name in rule.names}
        silent, typed = set(table.no_speech.split()), set(table.typed.split())

        assert silent <= columns - erased - typed, f"{named(table)}: name columns of text that are not erased"
        assert typed <= columns, named(table)
        if model in [*OURS, LogEntry]:
            left = columns - erased - silent - typed
            assert not left, (
                f"{named(table)}: erase {left}, or name them in no_speech or, if people type them, in typed"
            )


def test_what_hangs_on_a_row_is_pruned_before_it() -> None:
    order = [rule.tables[0] for rule in prunings()]
    assert order.index("llm_batch_requests") < order.index("llm_batches")


def test_texts_of_empty_lists_and_of_deleting_name_commands_that_exist() -> None:
    for table in LISTED:
        assert table.empty.endswith("."), named(table)
        page = admin.site.get_model_admin(table.model)
        may_delete = type(page).has_delete_permission is not admin.ModelAdmin.has_delete_permission
        assert not table.deleting or table.deleting.endswith(".") or may_delete, named(table)
        commands = set(re.findall(r"manage\.py ([a-z_]+)", table.empty + table.deleting))
        assert commands <= set(get_commands()), named(table)


@pytest.mark.slow
@pytest.mark.django_db
def test_an_empty_list_says_what_to_do_next() -> None:
    client = signed_in(superuser())
    for table in LISTED:
        shows_files_of_checkout = table.model is Proposition
        if table.model.__name__ not in NEVER_EMPTY and not shows_files_of_checkout:
            assert table.empty in plain(read(client, list_of(table.model))), named(table)


@pytest.mark.django_db
def test_an_empty_list_offers_to_add_only_to_those_who_may() -> None:
    assert "Add agent" in plain(read(signed_in(superuser()), list_of(Agent)))
    assert "Add agent" not in plain(read(signed_in(viewer()), list_of(Agent)))
    assert ModelPrice.objects.exists()  # migrate adds the shipped ones
