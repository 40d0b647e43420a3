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


def test_every_column_of_text_is_erased_typed_or_holds_no_speech(subtests: pytest.Subtests) -> None:
    for table in tables().values():
        with subtests.test(table=named(table)):
            columns = {field.name for field in text_columns(table.model) if not never_speech(field)}
            rules = [rule for rule in erasures() if rule.of is table.model and not rule.report_only]
            erased = {name for rule in rules for name in rule.names}
            silent = set(table.no_speech.split())
            typed = set(table.typed.split())

            assert silent <= columns - erased - typed, "name columns of text that are not erased"
            assert typed <= columns
            if table.model in [*OURS, LogEntry]:
                assert columns <= erased | silent | typed, (
                    "erase them, or name them in no_speech if they never hold what a person said, or in typed if people type them"
                )


def test_what_hangs_on_a_row_is_pruned_before_it() -> None:
    order = [rule.tables[0] for rule in prunings()]
    assert order.index("llm_batch_requests") < order.index("llm_batches")


def test_what_lists_say_of_themselves_names_commands_that_exist(subtests: pytest.Subtests) -> None:
    for table in LISTED:
        with subtests.test(table=named(table)):
            assert table.empty.endswith(".")
            page = admin.site.get_model_admin(table.model)
            may_delete = type(page).has_delete_permission is not admin.ModelAdmin.has_delete_permission
            assert not table.deleting or table.deleting.endswith(".") or may_delete
            assert set(re.findall(r"manage\.py ([a-z_]+)", table.empty + table.deleting)) <= set(get_commands())


@pytest.mark.django_db
def test_an_empty_list_says_what_to_do_next(subtests: pytest.Subtests) -> None:
    root = signed_in(superuser())
    for table in LISTED:
        if (
            table.model.__name__ in NEVER_EMPTY or table.model is Proposition
        ):  # whose page shows the files of the checkout
            continue
        with subtests.test(table=named(table)):
            assert table.empty in plain(read(root, list_of(table.model)))


@pytest.mark.django_db
def test_an_empty_list_offers_to_add_only_to_those_who_may() -> None:
    assert "Add agent" in plain(read(signed_in(superuser()), list_of(Agent)))
    assert "Add agent" not in plain(read(signed_in(viewer()), list_of(Agent)))
    assert ModelPrice.objects.exists()  # migrate adds the shipped ones
