"""The schema says of every route what it takes and answers, and the copy in the repository is the current one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from pydantic import BaseModel

from agents.kit.api.rows import Answer
from agents.kit.bodies import Body
from tests.api.routes import EVERY_ROUTE
from tests.api_client import program
from tests.console import staff

COPY = Path(__file__).resolve().parents[2] / "docs" / "openapi.yaml"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The schema as the routes are now; a warning on the way is an error."""
    path = tmp_path_factory.mktemp("schema") / "openapi.yaml"
    call_command("spectacular", validate=True, fail_on_warn=True, file=str(path))
    return path.read_text()


@pytest.fixture(scope="module")
def operations(generated: str) -> dict[str, dict[str, Any]]:
    """``GET /api/…/`` to what the schema says of it."""
    paths = yaml.safe_load(generated)["paths"]
    return {f"{method.upper()} {path}": said for path, methods in paths.items() for method, said in methods.items()}


@pytest.mark.slow
def test_the_copy_in_the_repository_is_current(generated: str) -> None:
    assert COPY.read_text() == generated, "docs/openapi.yaml is not what the routes are now; `make openapi` renews it"


def test_every_operation_has_a_one_line_summary_unique_on_its_route(operations: dict[str, Any]) -> None:
    said = {name: said.get("summary", "") for name, said in operations.items()}

    assert [name for name, line in said.items() if not 3 <= len(line) <= 130 or "\n" in line] == []
    assert len({(name.split()[1], line) for name, line in said.items()}) == len(said)


def test_every_route_is_described_but_the_page_that_shows_the_description(operations: dict[str, Any]) -> None:
    described = {operation.split()[1].replace("{", "<").replace("}", ">") for operation in operations}

    assert len(described) == len(EVERY_ROUTE) - 1


def test_every_operation_says_what_it_is_what_it_answers_and_how_it_refuses(
    operations: dict[str, dict[str, Any]],
) -> None:
    for name, said in operations.items():
        answers = set(said["responses"])
        assert said.get("description"), name
        assert {"400", "401", "403"} <= answers, name
        assert answers & {"200", "201", "202", "204"}, name
        assert "{" not in name or "404" in answers, name
        assert not [
            status for status in answers & {"200", "201", "202"} if "content" not in said["responses"][status]
        ], name


@pytest.mark.parametrize("base", [Answer, Body])
def test_no_two_models_are_described_under_one_name(base: type[BaseModel], generated: str) -> None:
    models = set(_models_of(base))  # one with two bases comes twice
    names = [model.__name__ for model in models if not model.__module__.startswith("tests.")]

    assert sorted(names) == sorted(set(names))


def _models_of(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        yield model
        yield from _models_of(model)


def test_posts_that_act_take_a_key(operations: dict[str, dict[str, Any]]) -> None:
    for name, said in operations.items():
        if name.startswith("POST"):
            assert "Idempotency-Key" in {parameter["name"] for parameter in said.get("parameters", ())}, name


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.parametrize(("query", "kind"), [("", "application/vnd.oai.openapi"), ("?format=json", "json")])
def test_whoever_is_signed_in_reads_it_and_is_spared_what_they_have(query: str, kind: str) -> None:
    client = program(staff())

    first = client.get(f"/api/schema/{query}")
    again = client.get(f"/api/schema/{query}", headers={"If-None-Match": first["ETag"]})

    assert kind in first["content-type"]
    assert yaml.safe_load(first.content)["info"]["title"] == "Plumbline"
    assert (again.status_code, again.content) == (304, b"")
