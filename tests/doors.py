"""The doors of a use case: what its command, its page and its route refuse, and their help texts (`agents.kit.use_cases`)."""

from __future__ import annotations

import io
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from django.core.management import CommandError, call_command, get_commands, load_command_class
from django.forms import Form
from django.test import Client

from agents.kit.bodies import Body
from agents.kit.use_cases import fields_of
from tests.api_client import Program, refused

Refusals = dict[str, str]  # field to sentence, without the name that the door gives the field


def options_of(kind: type[Body], given: Mapping[str, Any]) -> list[str]:
    """The options that say the same as a body."""
    options: list[str] = []
    for name, value in given.items():
        option = fields_of(kind)[name].option
        if isinstance(value, dict):
            options += [f"{option}={key}={part}" for key, part in value.items()]
        elif value is not False:
            options.append(option if value is True else f"{option}={typed(value)}")
    return options


def typed(value: Any) -> str:
    """What a person types for a value of a body."""
    if value is None:
        return "off"
    if isinstance(value, dict):
        return ",".join(f"{key}={part}" for key, part in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def refused_by_command(kind: type[Body], command: str, *args: str) -> Refusals:
    with pytest.raises(CommandError) as caught:
        call_command(command, *args, stdout=io.StringIO(), stderr=io.StringIO())
    assert caught.value.returncode in (2, 3)
    return _bare(kind, (("", line) for line in str(caught.value).splitlines()))


def refused_by_page(kind: type[Body], client: Client, url: str, given: Mapping[str, Any]) -> Refusals:
    answer = client.post(url, {name: typed(value) for name, value in given.items() if value is not False})
    assert answer.status_code == 200
    form: Form = answer.context["form"]
    return _bare(kind, ((name, str(sentence)) for name, sentences in form.errors.items() for sentence in sentences))


def refused_by_route(kind: type[Body], client: Program, url: str, given: Mapping[str, Any]) -> Refusals:
    errors = refused(client.post(url, given))
    return _bare(kind, ((name, sentence) for name, sentences in errors.items() for sentence in sentences))


def _bare(kind: type[Body], said: Iterable[tuple[str, str]]) -> Refusals:
    refusals = {}
    for place, sentence in said:
        for name, field in fields_of(kind).items():
            names = sorted({place, name, field.option, f"--{name}"} - {""}, key=len, reverse=True)
            begin = next((word for word in names if sentence.startswith((f"{word} ", f"{word}:"))), "")
            if place.partition("[")[0].partition(".")[0] == name or (not place and begin):
                refusals[name] = sentence.removeprefix(begin).removeprefix(":").strip()
                break
        else:
            refusals[place] = sentence
    return refusals


# -- help
def help_of_command(command: str, *actions: str) -> dict[str, str]:
    """What a command says of its options, by the field that they fill."""
    parser: ArgumentParser = load_command_class(get_commands()[command], command).create_parser("manage.py", command)
    for name in actions:
        [subparsers] = [action for action in parser._actions if action.dest == "action"]
        parser = subparsers.choices[name]  # type: ignore[index]  # of subparsers they are there
    return {action.dest: str(action.help).replace("%%", "%") for action in parser._actions}


def help_of_form(form: type[Form]) -> dict[str, str]:
    return {name: str(field.help_text) for name, field in form.base_fields.items()}


def help_of_body(kind: type[Body]) -> dict[str, str]:
    return {name: prop.get("description", "") for name, prop in kind.model_json_schema()["properties"].items()}


def assert_same_help(kind: type[Body], *doors: Mapping[str, str]) -> None:
    """Every field that a door has reads there as it does in the body of the route."""
    body = help_of_body(kind)
    assert all(body.values())
    for door in doors:
        assert {name: door[name] for name in body if name in door} == {
            name: body[name] for name in body if name in door
        }
