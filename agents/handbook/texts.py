"""Where help texts are: the ``help/`` folders of the apps, and the documents of the checkout."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from django.apps import apps
from django.conf import settings
from django.db.models import Model
from django.utils.text import slugify

ELSEWHERE = {"auth": "agents", "authtoken": "agents"}  # whose pages are at home in another app
BESIDE_DOCS = {"propositions": "propositions/README.md"}  # documents that are not in docs/


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A word as the product uses it. `text` is Markdown; `also` are other words for it or forms of it."""

    name: str
    text: str
    also: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        return slugify(self.name)


def help_of(model: type[Model]) -> str:
    """The Markdown of the model's help page; empty when it has none."""
    home = apps.get_app_config(ELSEWHERE.get(model._meta.app_label, model._meta.app_label)).path
    return _read(Path(home) / "help" / f"{model._meta.model_name}.md")


def field_help(model: type[Model], field: str) -> str:
    """What ``fields.yaml`` says of a field; empty when it says nothing."""
    return _fields().get(model._meta.label_lower, {}).get(field, "")


def deletion_note(model: type[Model]) -> str:
    """What ``deleting.yaml`` says of deleting such a row: what it means, and what to do instead."""
    said: dict[str, str] = {label: text for said_by in _all("deleting.yaml") for label, text in said_by.items()}
    return said.get(model._meta.label_lower, "")


@cache
def glossary() -> tuple[Term, ...]:
    """The terms of all apps, by name."""
    found = [Term(name=name, **_row(said)) for said_by in _all("glossary.yaml") for name, said in said_by.items()]
    return tuple(sorted(found, key=lambda term: term.name.casefold()))


def _row(said: str | dict[str, Any]) -> dict[str, Any]:
    return {"text": said} if isinstance(said, str) else {"text": said["text"], "also": tuple(said.get("also", ()))}


def document(name: str) -> str:
    """The Markdown of ``docs/<name>.md``; empty when there is none (an image may come without)."""
    if name not in documents():
        return ""
    return _read(Path(settings.BASE_DIR) / BESIDE_DOCS.get(name, f"docs/{name}.md"))


@cache
def documents() -> tuple[str, ...]:
    """The names of the documents that can be read here."""
    beside = [name for name, path in BESIDE_DOCS.items() if (Path(settings.BASE_DIR) / path).is_file()]
    return tuple(sorted([*(path.stem for path in (Path(settings.BASE_DIR) / "docs").glob("*.md")), *beside]))


@cache
def _fields() -> dict[str, dict[str, str]]:
    return {label: rows for said_by in _all("fields.yaml") for label, rows in said_by.items()}


def _all(name: str) -> list[dict[str, Any]]:
    paths = [Path(config.path) / "help" / name for config in apps.get_app_configs()]
    return [yaml.safe_load(path.read_text(encoding="utf-8")) for path in paths if path.is_file()]


@cache
def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
