"""The doors of a use case: its command, its page and its route. Each is asked for the same, and says what it refuses and explains."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import pytest
from django.core.management import CommandError, call_command, get_commands, load_command_class
from django.forms import Field, MultipleChoiceField, Textarea
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from agents.kit.bodies import Body
from agents.kit.use_cases import fields_of
from tests.api_client import Program, refused
from tests.console import confirm

Asked = Mapping[str, Any]  # fields of a use case, with values as JSON has them


class Door(Protocol):
    def helps(self) -> dict[str, str]:
        """Return what it says of each field that it has."""

    def refusal(self, asked: Asked) -> tuple[str, str]:
        """Ask for what it refuses; return the field that it names, and its sentence."""


def typed(value: Any) -> str:
    """Return a value as a person types it."""
    match value:
        case list():
            return ",".join(map(str, value))
        case dict():
            return ",".join(f"{key}={text}" for key, text in value.items())
    return str(value)


def field_in(path: str) -> str:
    """Return the field of a path such as ``dimensions[0]``."""
    return path.partition(".")[0].partition("[")[0]


@dataclass(frozen=True)
class CommandDoor:
    """A command; a text that it takes from a file is written to one in `folder`. `words`: what else is on its command line."""

    name: str
    kind: type[Body]
    folder: Path
    words: Sequence[str] = ()

    def helps(self) -> dict[str, str]:
        parser = load_command_class(get_commands()[self.name], self.name).create_parser("manage.py", self.name)
        if parser._subparsers is not None:
            parser = parser._subparsers._group_actions[0].choices[self.words[0]]  # type: ignore[index]  # by name
        return {action.dest: (action.help or "").replace("%%", "%") for action in parser._actions}

    def refusal(self, asked: Asked) -> tuple[str, str]:
        words = [self._word(name, value) for name, value in asked.items()]
        with pytest.raises(CommandError) as caught:
            call_command(self.name, *self.words, *words, stdout=io.StringIO())
        sentence = str(caught.value)
        fields = [field for name, field in fields_of(self.kind).items() if name in self.helps()]
        named = [field.name for field in fields if sentence.startswith((f"{field.option} ", f"{field.option}:"))]
        assert (caught.value.returncode in (2, 3), len(named)) == (True, 1), sentence
        return named[0], sentence

    def _word(self, name: str, value: Any) -> str:
        field = fields_of(self.kind)[name]
        if not field.option.startswith("--"):
            return typed(value)
        if field.kind != "file":
            return f"{field.option}={typed(value)}"
        path = self.folder / "typed.yaml"
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return f"{field.option}={path}"


@dataclass(frozen=True)
class PageDoor:
    """A page of the console. `usual`: what else is chosen there."""

    client: Client
    url: str
    usual: Asked

    def helps(self) -> dict[str, str]:
        return {name: str(field.help_text) for name, field in self._fields().items()}

    def _fields(self) -> dict[str, Field]:
        fields: dict[str, Field] = self.client.get(self.url).context["form"].fields
        return fields

    def refusal(self, asked: Asked) -> tuple[str, str]:
        chosen, fields = {**self.usual, **asked}, self._fields()
        sent = {}
        for name, value in chosen.items():
            field = fields.get(name)
            if isinstance(field, MultipleChoiceField):
                sent[name] = value
            elif field is not None and isinstance(field.widget, Textarea) and isinstance(value, dict):
                sent[name] = json.dumps(value)  # YAML, not tags
            else:
                sent[name] = typed(value)
        page = confirm(self.client, self.url, **sent)
        assert page.status_code == 200
        [(field, sentences)] = page.context["form"].errors.items()
        return field, sentences[0]


@dataclass(frozen=True)
class RouteDoor:
    """A route of the API. `usual`: what else is sent."""

    client: Program
    url: str
    usual: Asked

    def helps(self) -> dict[str, str]:
        content = _schema()["paths"][self.url]["post"]["requestBody"]["content"]["application/json"]["schema"]
        body = _schema()["components"]["schemas"][content["$ref"].rpartition("/")[2]]
        return {name: field.get("description", "") for name, field in body["properties"].items()}

    def refusal(self, asked: Asked) -> tuple[str, str]:
        [(path, sentences)] = refused(self.client.post(self.url, {**self.usual, **asked})).items()
        return field_in(path), sentences[0]


@cache
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]
    return schema
