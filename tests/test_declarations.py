"""What apps declare in their `apps.py` can be imported, and somebody asks for it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.apps import AppConfig
from django.contrib.auth.models import Permission
from django.utils.module_loading import import_string

from agents.kit.capability import capabilities
from tests.test_imports import modules

DECLARED = [
    (app, name, value)
    for app in capabilities()
    for name, value in vars(type(app)).items()
    if not name.startswith("_") and not hasattr(AppConfig, name) and name not in ("name", "verbose_name", "label")
]
ASKED = re.compile(r"declared(?:_list|_one)?\(\s*\"(\w+)\"\s*\)")
PATH = re.compile(r"(?:agents|evaluation|correction)(?:\.\w+)+")


def test_a_module_asks_for_what_an_app_declares() -> None:
    asked = {name for path in modules().values() for name in ASKED.findall(path.read_text(encoding="utf-8"))}

    assert [f"{app.name}.{name}" for app, name, _ in DECLARED if name not in asked] == []


@pytest.mark.django_db
def test_what_an_app_declares_by_its_path_can_be_imported(subtests: pytest.Subtests) -> None:
    for app, name, value in DECLARED:
        with subtests.test(declared=f"{app.name}.{name}"):
            for path in paths_in(value):
                label, _, codename = path.partition(".")
                if not Permission.objects.filter(content_type__app_label=label, codename=codename).exists():
                    import_string(path)


def paths_in(value: object) -> Iterator[str]:
    """Every dotted path in the value of an attribute: a text, a list, or keys and values of a dictionary."""
    if isinstance(value, str):
        if PATH.fullmatch(value):
            yield value
    elif isinstance(value, dict):
        yield from (path for pair in value.items() for part in pair for path in paths_in(part))
    elif isinstance(value, list):
        yield from (path for part in value for path in paths_in(part))
