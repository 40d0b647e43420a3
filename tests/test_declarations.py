"""What apps declare in their `apps.py` can be imported, and somebody asks for it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.apps import AppConfig
from django.contrib.auth.models import Permission
from django.utils.module_loading import import_string

from agents.kit.capability import Capability, capabilities
from tests.test_imports import modules

DECLARED = [
    (app, name, value)
    for app in capabilities()
    for name, value in vars(type(app)).items()
    if not name.startswith("_") and not hasattr(AppConfig, name) and name not in ("name", "verbose_name", "label")
]
IDS = [f"{app.name}.{name}" for app, name, _ in DECLARED]
ASKED = re.compile(r"declared(?:_list|_one)?\(\s*\"(\w+)\"\s*\)")
PATH = re.compile(r"(?:agents|evaluation|correction)(?:\.\w+)+")


@pytest.fixture(scope="module")
def asked() -> set[str]:
    """The names of what some module of the product asks the apps for."""
    return {name for path in modules().values() for name in ASKED.findall(path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize(("app", "name", "value"), DECLARED, ids=IDS)
def test_a_module_asks_for_what_an_app_declares(app: Capability, name: str, value: object, asked: set[str]) -> None:
    assert name in asked


@pytest.mark.django_db
@pytest.mark.parametrize(("app", "name", "value"), DECLARED, ids=IDS)
def test_what_an_app_declares_by_its_path_can_be_imported(app: Capability, name: str, value: object) -> None:
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
