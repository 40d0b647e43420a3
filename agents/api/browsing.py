"""The API as pages for people: names, descriptions, and forms that begin with an example of what may be sent."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from django.utils.html import escape
from django.utils.safestring import mark_safe
from rest_framework import serializers
from rest_framework.renderers import BrowsableAPIRenderer

if TYPE_CHECKING:
    from rest_framework.views import APIView  # which itself loads this module, by the settings

_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CODE = re.compile(r"`([^`]+)`")
_SAMPLES: tuple[tuple[type[Any], Any], ...] = (
    (serializers.BooleanField, True),
    (serializers.ListField, []),
    (serializers.DictField, {}),
    (serializers.FloatField, 0.5),
)


class BrowsablePages(BrowsableAPIRenderer):
    """Forms hold the view's ``example``, or the fields that must be there; DRF's own hold every field, empty, which no route takes."""

    def get_raw_data_form(self, data: Any, view: Any, method: str, request: Any) -> Any:
        form: Any = super().get_raw_data_form(data, view, method, request)
        if form is not None:
            form.fields["_content"].initial = json.dumps(_example(view, method), indent=4, ensure_ascii=False)
        return form


def name(view: APIView) -> str:
    """The view's ``name``, or its class's in words: ``Config of agent``."""
    given = getattr(view, "name", None)
    words = _CAPITAL.sub(" ", type(view).__name__)
    return str(given) if given else words[:1] + re.sub(r"[A-Z](?=[a-z])", lambda m: m[0].lower(), words[1:])


def description(view: APIView, html: bool = False) -> Any:
    """The view's docstring; as HTML in paragraphs, with what stands in backticks as code."""
    text = "\n".join(line.strip() for line in (type(view).__doc__ or "").strip().splitlines())
    if not html:
        return text
    paragraphs = [_CODE.sub(r"<code>\1</code>", escape(part.replace("\n", " "))) for part in text.split("\n\n")]
    return mark_safe("".join(f"<p>{part}</p>" for part in paragraphs))  # noqa: S308 (our own docstrings, escaped)


def _example(view: Any, method: str) -> Any:
    given = getattr(view, "example", None)
    if given is not None or not hasattr(view, "get_serializer"):
        return given or {}
    if method == "PATCH":
        return {}
    request, view.request = view.request, _Asked(view.request, method)
    try:
        fields = view.get_serializer().fields
    finally:
        view.request = request
    return {key: _sample(field) for key, field in fields.items() if field.required and not field.read_only}


class _Asked:
    """The request as if it came by another method: views choose their serializer by it."""

    def __init__(self, request: Any, method: str) -> None:
        self._request, self.method = request, method

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


def _sample(field: Any) -> Any:
    if isinstance(field, serializers.ChoiceField):
        return next(iter(field.choices), "")
    if isinstance(field, serializers.IntegerField):
        return max(field.min_value or 0, 1)
    return next((sample for kind, sample in _SAMPLES if isinstance(field, kind)), "…")
