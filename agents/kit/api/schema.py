"""Additions to the OpenAPI schema that drf-spectacular reads from the routes: refusals, headers, and answers by `answers`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from drf_spectacular.contrib.pydantic import PydanticExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent, get_doc
from drf_spectacular.utils import OpenApiResponse, extend_schema
from pydantic import Field

from agents.kit.api.filters import Backend
from agents.kit.api.headers import HEADER, REPLAYED
from agents.kit.api.problems import CONTENT_TYPE
from agents.kit.api.rows import Answer, optional

PROBLEMS = {
    400: "a parameter, header or field is not allowed; `errors` names each and says what is",
    401: "no token and no session, or a wrong one",
    403: "the user may not do this",
    404: "there is no such thing",
    406: "the route cannot answer in what `Accept` asks for",
    409: "as things stand it cannot be done; the detail says why",
    412: "it was changed meanwhile; the answer's `ETag` is the current one",
    413: "the body is too large",
    415: "the body is not of a type that the route reads",
    422: f"this `{HEADER}` was used for another request",
    429: "asked too often, or with too many wrong tokens; `Retry-After` says for how many seconds to wait",
    503: "what it needs, such as the database, does not work just now; try again",
}
_DONE = {200: "done", 201: "made", 202: "a worker does it; `Location` says where to look", 204: "done"}
_ALWAYS = (400, 401, 403, 406, 429, 503)
_WITH_BODY = (413, 415)
_KEY = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[\\x21-\\x7e]+$"}
_TAG = {"type": "string", "minLength": 1}
_HEADERS_OF_PROBLEMS: dict[int, list[tuple[str, str, dict[str, Any]]]] = {
    412: [("ETag", "of what there is now", _TAG)],
    429: [("Retry-After", "seconds", {"type": "integer"})],
    503: [("Retry-After", "seconds, where it is known", {"type": "integer"})],
}


class Problem(Answer):
    """An error (RFC 9457)."""

    title: str = Field(description="the status in words")
    status: int
    detail: str = Field(description="a sentence that says what is wrong and what is allowed")
    errors: dict[str, list[str]] = optional("per field, parameter or header what is wrong and what is allowed")


def answers(responses: Mapping[Any, Any] | Any, *problems: int, **more: Any) -> Callable[[Any], Any]:
    """Say what an action answers where it is not its view's `answer_class` with 200 (201 of a create).

    Args:
        responses: Status, or status and media type, to the model of the answer; a model alone is that of 200.
        problems: Statuses that this action adds to what every view of its kind can answer, such as 409.
        more: What else `extend_schema` takes.
    """
    is_by_status = isinstance(responses, Mapping) and all(isinstance(key, int | tuple) for key in responses)
    answer_by_status: Mapping[Any, Any] = responses if is_by_status else {200: responses}
    described: dict[Any, OpenApiResponse] = {}
    for key, answer in answer_by_status.items():
        status = key[0] if isinstance(key, tuple) else key
        described[key] = OpenApiResponse(answer, description=_DONE.get(status, ""))
    for status in problems:
        described[status, CONTENT_TYPE] = OpenApiResponse(Problem, description=PROBLEMS[status])
    return extend_schema(responses=described, **more)


class Models(PydanticExtension):
    """Pydantic models: a body as it is read, an answer as it is dumped."""

    priority = 1

    def map_serializer(self, auto_schema: Any, direction: str) -> Any:
        """Return the schema of a model, of what is read or what is dumped; models inside it become components of their own."""
        mode: Any = "validation" if direction == "request" else "serialization"
        schema = self.target.model_json_schema(mode=mode, ref_template="#/components/schemas/{model}")
        for name, inner in schema.pop("$defs", {}).items():
            component = ResolvedComponent(name=name, type=ResolvedComponent.SCHEMA, object=name, schema=inner)  # type: ignore[no-untyped-call]
            auto_schema.registry.register_on_missing(component)
        return schema


class Schema(AutoSchema):
    """Adds what follows from a view's kind: problems, the headers of idempotency and of ETags."""

    view: Any

    def get_operation_id(self) -> str:
        """Return the method and the path, variables included, which are unique."""
        parts = [part.strip("{}").replace("-", "_") for part in self.path.split("/") if part]
        return "_".join([self.method.lower(), *(parts[1:] or ["root"])])

    def get_summary(self) -> str | None:
        """Return what the action does, in a line: the description's first sentence, without backticks; None where it has none."""
        description = " ".join(self.get_description().replace("`", "").split())
        match = re.match(r"(?:POST )?(.+?)(?:[.;:] |\.?$)", description)
        if match is None:
            return None
        sentence = match[1]
        return sentence[0].upper() + sentence[1:]

    def get_description(self) -> str:  # type: ignore[override]  # as its base
        """Return the action's docstring, else the view's; of ``retrieve`` beside a list, without one of its own, that of its answer."""
        if self.view.action == "retrieve" and hasattr(self.view, "list") and not self.view.retrieve.__doc__:
            return get_doc(self.view.get_answer_class())
        return super().get_description()

    def get_request_serializer(self) -> Any:
        """Return the body that the view has for the action."""
        return self.view.bodies.get(self.view.action, {})

    def get_response_serializers(self) -> Any:
        """Return the answer that the view has for the action."""
        return self.view.get_answer_class()

    def get_filter_backends(self) -> list[Any]:
        return [Backend] if self.method == "GET" else []

    def get_operation(self, *args: Any, **kwargs: Any) -> Any:
        """Return what drf-spectacular says of an operation, with its problems and headers, answers by status; None where it is hidden."""
        operation = super().get_operation(*args, **kwargs)
        if operation is None:
            return None
        responses = operation["responses"]
        statuses = set(self._usual_problems(operation))
        for status, answer in responses.items():  # those that `answers` names for this action
            if CONTENT_TYPE in answer.get("content", ()):
                statuses.add(int(status))
        for problem_status in statuses:
            responses[str(problem_status)] = self._reference_to_problem(problem_status)
        self._add_headers(operation)
        operation["responses"] = dict(sorted(responses.items()))
        return operation

    def _usual_problems(self, operation: dict[str, Any]) -> list[int]:
        """Return the statuses of refusals that every action of this kind can answer."""
        problems = [*_ALWAYS]
        names = {parameter["name"] for parameter in operation.get("parameters", ())}
        if "{" in self.path or "page" in names:
            problems.append(404)
        if self.method not in ("GET", "DELETE"):
            problems += _WITH_BODY
        if self.method == "POST":
            problems += [409, 422]
        if self.method in ("PUT", "PATCH") and self.view.action in self.view.etags:
            problems.append(412)
        return problems

    def _reference_to_problem(self, status: int) -> dict[str, Any]:
        """Return a reference to the schema of a refusal, which is registered once."""
        problem = self.resolve_serializer(Problem, "response").ref  # type: ignore[arg-type]
        answer = {"description": PROBLEMS[status], "content": {CONTENT_TYPE: {"schema": problem}}}
        for name, description, schema in _HEADERS_OF_PROBLEMS.get(status, ()):
            _add_header([answer], name, description, schema)
        name = f"Problem{status}"  # in the schema's components
        component = ResolvedComponent(name=name, type=ResolvedComponent.RESPONSE, schema=answer, object=name)  # type: ignore[no-untyped-call]
        self.registry.register_on_missing(component)
        return dict(component.ref)

    def _add_headers(self, operation: dict[str, Any]) -> None:
        """Add the headers of idempotency, of ETags and of where to look to the request and its answers."""
        responses = operation["responses"]
        parameters = operation.setdefault("parameters", [])
        good = [response for status, response in responses.items() if status < "300"]  # statuses are texts here
        if self.method == "POST":
            parameters.append(
                _header_parameter(HEADER, "of your choosing, a new one per request: sent again, it acts once", _KEY)
            )
            _add_header(good, REPLAYED, "`true`: the answer of an earlier request with this key", {"enum": ["true"]})
        for status in ("201", "202"):
            if status in responses:
                _add_header([responses[status]], "Location", "where it is to be seen", {"format": "uri"})
        if self.view.action in self.view.etags:
            _add_header(good, "ETag", "of what there is now", _TAG)
            if self.method == "GET":
                parameters.append(_header_parameter("If-None-Match", "an ETag: 304 while it is still current", _TAG))
                responses["304"] = {"description": "as the ETag of `If-None-Match` has it"}
            else:
                parameters.append(
                    _header_parameter("If-Match", "the ETag that was read: 412 when it changed since", _TAG)
                )
        if not parameters:
            del operation["parameters"]


def _header_parameter(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"in": "header", "name": name, "description": description, "schema": schema}


def _add_header(responses: Iterable[dict[str, Any]], name: str, description: str, schema: dict[str, Any]) -> None:
    for response in responses:
        response.setdefault("headers", {})[name] = {"description": description, "schema": {"type": "string", **schema}}


def tidied(result: Any, **kwargs: Any) -> Any:
    """Take out of the schema what pydantic adds of itself, and bounds that only say how large a column of integers is."""
    return {**_without_additions_of_pydantic(result), "info": result["info"]}


def _without_additions_of_pydantic(schema: Any) -> Any:
    """Return a part of the schema, at any depth, without titles, null defaults and the bounds of a 64-bit column."""
    if isinstance(schema, list):
        return [_without_additions_of_pydantic(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    cleaned = {}
    for key, value in schema.items():
        is_size_of_column = key in ("minimum", "maximum") and value in (2**63 - 1, -(2**63))
        is_title = key == "title" and isinstance(value, str)  # a property may be called so, too
        is_no_default = key == "default" and value is None
        if not (is_size_of_column or is_title or is_no_default):
            cleaned[key] = _without_additions_of_pydantic(value)
    return cleaned
