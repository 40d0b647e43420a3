"""The API as pages for people: Django REST framework's browsable API. Programs, which do not ask for HTML, get JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

from django.template import loader
from pydantic import BaseModel
from rest_framework.metadata import SimpleMetadata
from rest_framework.parsers import MultiPartParser
from rest_framework.renderers import BrowsableAPIRenderer
from rest_framework.request import Request, override_method

from agents.kit.api.requests import BoundedJSONParser, read_bounded

ETAG = "etag"  # hidden field of an HTML form: of what the page showed
_EMPTY_BY_TYPE: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}


class BrowsablePages(BrowsableAPIRenderer):
    """Shows forms of the bodies that a route takes. DRF would make them of a serializer."""

    renderer_context: dict[str, Any]

    def get_rendered_html_form(self, data: Any, view: Any, method: str, request: Any) -> Any:
        """Return the HTML form of a PUT; None where the user may not send one, or the view has only a raw form.

        On the page that answers a form with mistakes it holds what was typed and what is wrong. Other methods are left to DRF.
        """
        if method != "PUT":
            return super().get_rendered_html_form(data, view, method, request)
        refused_fields = None
        if self._answers_refused_form(method) and isinstance(request.data, FormFields):
            refused_fields = request.data
        with override_method(view, request, method) as request_of_form:
            if not self.show_form_for_method(view, method, request_of_form, None):
                return None
            form = view.html_form(refused_fields, self.renderer_context["response"].get("ETag", ""))
        if form is None:
            return None
        if refused_fields is not None:  # it stays, with what is wrong with it
            form.is_valid()
            form._errors = data.get("errors", {})
        return self.render_form_for_serializer(form)

    def get_raw_data_form(self, data: Any, view: Any, method: str, request: Any) -> Any:
        """Return the form in which JSON is typed; None where DRF has none, as for a method that the user may not use.

        On the page that answers a form with mistakes it holds what was sent, else the view's example for this method.
        """
        form: Any = super().get_raw_data_form(data, view, method, request)
        if form is None:
            return None
        if self._answers_refused_form(method) and request.data:
            content = request.data
        else:
            shows_error = self.renderer_context["response"].status_code >= 400
            with override_method(view, request, method):
                content = view.example({} if shows_error else data)
        media_type = BoundedJSONParser.media_type
        form.fields["_content_type"].choices = [(media_type, media_type)]
        form.fields["_content"].initial = json.dumps(content, indent=4, ensure_ascii=False, default=str)
        return form

    def get_filter_form(self, data: Any, view: Any, request: Any) -> Any:
        """Return the form of the parameters of a GET, with what is wrong with them. Its fields are texts and choices: it shows no rows."""
        status = self.renderer_context["response"].status_code
        if request.method != "GET" or status not in (200, 400) or not view.get_filterset_class().base_filters:
            return None
        [backend] = view.filter_backends
        form = backend().to_html(request, view.queryset, view)
        return loader.get_template(self.filter_template).render({"elements": [form]})

    def _answers_refused_form(self, method: str) -> bool:
        """Return whether this page answers a form of this method whose fields are wrong."""
        response = self.renderer_context["response"]
        return bool(self.renderer_context["request"].method == method and response.status_code == 400)


class Metadata(SimpleMetadata):
    """The answer to ``OPTIONS``: what a route is, and the schema of each body that the user may send."""

    def determine_actions(self, request: Request, view: Any) -> dict[str, Any]:
        """Return the JSON schema of the body of each method, without methods that take none or that the user may not use."""
        schemas = {}
        for method, action in view.action_map.items():
            body = view.bodies.get(action)
            with override_method(view, request, method.upper()) as form_request:
                if is_model(body) and BrowsablePages().show_form_for_method(view, method.upper(), form_request, None):
                    schemas[method.upper()] = body.model_json_schema()
        return schemas


def is_model(body: Any) -> bool:
    """Return whether a body of a view is a pydantic model, and no schema."""
    return isinstance(body, type) and issubclass(body, BaseModel)


class FormFields(dict[str, Any]):
    """The fields of an HTML form, a text each; `etag` is that of what the page showed, None where the form has none."""

    etag: str | None = None


class FormParser(MultiPartParser):
    """Reads an HTML form as the JSON object that a program would send."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the fields; files are left out, and of a field that was sent twice the last text counts."""
        body = BytesIO(read_bounded(stream, parser_context))
        sent = super().parse(body, media_type, parser_context).data
        fields = FormFields({name: sent[name] for name in sent})
        fields.etag = fields.pop(ETAG, None) or None  # the page of a refused raw form has none
        return fields


def example_of(body: Any, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the raw form of a page holds at first: the body's fields that have a value, and empty ones that must be given.

    Args:
        body: What the view has for the action; a body that is no pydantic model has an empty example.
        answer: The answer that the page shows; fields that are null in it are left out.
    """
    if not is_model(body):
        return {}
    schema = body.model_json_schema()
    fields = schema["properties"]
    definitions = schema.get("$defs", {})
    example = {}
    for name, field_schema in fields.items():
        if answer.get(name) is not None:
            example[name] = _parts_that_fit(answer[name], field_schema, definitions)
    for name in schema.get("required", ()):
        example.setdefault(name, _EMPTY_BY_TYPE.get(fields[name].get("type", "string"), ""))
    return example


def _parts_that_fit(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    """Return a value of an answer without the fields that a body of this schema may not have."""
    schema = definitions.get(schema.get("$ref", "").rpartition("/")[2], schema)
    if isinstance(value, list) and "items" in schema:
        return [_parts_that_fit(part, schema["items"], definitions) for part in value]
    if isinstance(value, dict) and "properties" in schema:
        fitting = {}
        for name, field_schema in schema["properties"].items():
            if name in value:
                fitting[name] = _parts_that_fit(value[name], field_schema, definitions)
        return fitting
    return value
