"""Declarations of the Django apps of Plumbline: an app is installed by one line of INSTALLED_APPS, and nothing else names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.apps import AppConfig, apps
from django.utils.module_loading import import_string, module_has_submodule


class Capability(AppConfig):
    """An app with the files that Django knows, and whose modules `checks`, `tables` and `urls` are found by their names.

    What workers, turns and commands need of it stands in attributes of its own class, as dotted paths that are imported when they are
    needed: ``work_queues = {"debates": "agents.debates.debate.work_one"}``. `declared` collects them.
    """

    def ready(self) -> None:
        if module_has_submodule(self.module, "checks"):
            import_string(f"{self.name}.checks.__name__")


def capabilities() -> list[Capability]:
    """Return the installed apps of Plumbline in the order of INSTALLED_APPS, lower ones first."""
    return [config for config in apps.get_app_configs() if isinstance(config, Capability)]


def app_missing_for(path: str) -> str:
    """Return the package of the app that a dotted path lies in where that app is not installed; empty where it is, and outside of apps.

    Django would take the models of an app that is not installed for those of the installed app around it.
    """
    around = apps.get_containing_app_config(path)
    if around is None:
        return ""
    folder = Path(around.path)
    package = around.name
    for name in path.removeprefix(f"{around.name}.").split("."):
        folder = folder / name
        package = f"{package}.{name}"
        # An app inside the installed one: were it installed itself, it would be the one that contains the path.
        if (folder / "apps.py").is_file():
            return package
    return ""


def declared(name: str) -> dict[str, Any]:
    """Return what the installed apps declare in a mapping, an attribute such as ``work_queues``, together; lower ones first.

    Of a key that two apps have the upper one's value counts.
    """
    merged: dict[str, Any] = {}
    for app in capabilities():
        merged.update(getattr(app, name, {}))
    return merged


def declared_list(name: str) -> list[Any]:
    """Return what the installed apps declare in an attribute that is a list, such as ``rollups``, together; lower apps' first."""
    values: list[Any] = []
    for app in capabilities():
        values += getattr(app, name, ())
    return values


def declared_one(name: str) -> Any:
    """Return what the uppermost app declares in an attribute that is one value, of the apps that have it; "" where none has."""
    for app in reversed(capabilities()):
        value = getattr(app, name, "")
        if value:
            return value
    return ""
