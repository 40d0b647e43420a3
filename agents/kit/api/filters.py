"""Query parameters: a `FilterSet` whose unknown names and wrong values are a 400 that says what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

import django_filters
from django import forms
from django.contrib.auth import get_user_model
from django.db.models import Model, Q, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.drainage import set_override
from rest_framework.exceptions import ValidationError

from agents.kit.text.moments import read_moment
from agents.kit.text.tags import TAG_KEY

MOMENT = "a date or time such as 2026-11-22 or 2026-11-22T14:30:00Z (UTC where it says no zone)"
YES_NO = {"true": True, "false": False}
ALWAYS_KNOWN = ("format", "page", "page_size", "cursor")  # parameters
_ID = {"type": "integer", "minimum": 1}


class Filters(django_filters.FilterSet):  # type: ignore[misc]  # the package has no types
    """Parameters of a route. This one allows none; a mistyped filter must not answer with everything."""

    @classmethod
    def refuse_unknown(cls, names: Iterable[str], *also: str) -> None:
        """Raise a 400 for names that are no parameter of this route.

        Names in `also`, such as those of pages, and those of `ALWAYS_KNOWN` are allowed, too; the sentence does not name the latter.
        """
        allowed = ", ".join((*cls.base_filters, *also)) or "none"
        parameters = {*cls.base_filters, *also, *ALWAYS_KNOWN}
        errors = {}
        for name in sorted(set(names) - parameters):
            errors[name] = [f"there is no parameter {name!r}; allowed: {allowed}"]
        if errors:
            raise ValidationError(errors)

    def get_form_class(self) -> Any:
        form = super().get_form_class()
        for name, field in form.base_fields.items():
            field.label = name  # errors begin with it
        return form


class Backend(DjangoFilterBackend):  # type: ignore[misc]  # as above
    """Filter a list by the parameters that the view's action has."""

    def get_filterset_class(self, view: Any, queryset: Any = None) -> type[Filters]:
        chosen: type[Filters] = view.get_filterset_class()
        return chosen


class _ParameterField(forms.Field):
    """The form field of a `Parameter`; its label is the parameter's name."""

    def __init__(self, *, read: Callable[[str], Any], allowed: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.read = read
        self.allowed = allowed

    def clean(self, value: Any) -> Any:
        """Return the value that a text stands for; None where it is empty and may be left out.

        Raises:
            forms.ValidationError: It is missing, holds a NUL character, or is not allowed; the sentence says what is.
        """
        text = (value or "").strip()
        if not text and self.required:
            raise _refusal(f"{self.label} is missing; allowed: {self.allowed}")
        if not text:
            return None
        if "\x00" in text:
            raise _refusal(f"{self.label} holds a NUL character")
        try:
            return self.read(text)
        except LookupError as error:
            raise _refusal(str(error.args[0])) from None
        except (ValueError, OverflowError):
            raise _refusal(f"{self.label} {text[:80]!r}: allowed: {self.allowed}") from None


def _refusal(sentence: str) -> forms.ValidationError:
    return forms.ValidationError("%(sentence)s", params={"sentence": sentence})


class Parameter(django_filters.Filter):  # type: ignore[misc]  # as above
    """A parameter that `read` turns into a value: it raises ValueError for `allowed`, LookupError with a sentence of its own."""

    field_class = _ParameterField

    def __init__(
        self,
        field: str | None = None,
        lookup: str = "exact",
        *,
        read: Callable[[str], Any] = str,
        allowed: str = "",
        schema: Mapping[str, Any] | None = None,
        about: str = "",
        **kwargs: Any,
    ) -> None:
        """Make a parameter that filters by a column.

        Args:
            field: The column; None: that of the parameter's name.
            read: Turns the text into a value.
            allowed: What the text may be, for the sentence of a refusal.
            schema: What OpenAPI says besides that it is a text.
            about: Its description; default for people: what is allowed.
        """
        super().__init__(field, lookup, read=read, allowed=allowed, **{"help_text": about or allowed, **kwargs})
        shape: dict[str, Any] = {"type": "string", **(schema or {})}
        set_override(self, "field", {**shape, "description": about} if about else shape)


def choice(values: Iterable[str], field: str | None = None, **more: Any) -> Parameter:
    """Return a parameter that is one of some texts; `more` is for `Parameter` and goes before what is set here."""
    allowed = list(values)

    def read(text: str) -> str:
        return allowed[allowed.index(text)]  # ValueError where it is none of them

    of_form = {
        "widget": forms.Select(choices=[("", ""), *((value, value) for value in allowed)]),
        "help_text": more.get("about", ""),
    }
    return Parameter(
        field, **{"read": read, "allowed": ", ".join(allowed), "schema": {"enum": allowed}, **of_form, **more}
    )


def flag(field: str | None = None, **more: Any) -> Parameter:
    """Return a parameter that is ``true`` or ``false``."""

    def read(text: str) -> bool:
        if text not in YES_NO:
            raise ValueError
        return YES_NO[text]

    return choice(YES_NO, field, **{"read": read, **more})


def ordering(orders: Mapping[str, tuple[str, ...]]) -> Parameter:
    """Return a parameter that names one of the `orders` (columns by name); without it rows come as the view's queryset has them.

    That must be the first of the orders, which the description calls the default.
    """

    def order(rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.order_by(*orders[value])

    return choice(orders, method=order, about=f"default {next(iter(orders))}")


def search(*columns: str) -> Parameter:
    """Return a parameter that is a text which one of the columns must hold, whatever the case."""

    def holding(rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        in_any_column = Q()
        for column in columns:
            in_any_column |= Q(**{f"{column}__icontains": value})
        return rows.filter(in_any_column)

    return Parameter(method=holding, about="a text it must hold, whatever the case")


def number(
    field: str | None = None, lookup: str = "exact", *, allowed: str, least: int = 0, most: int = 10**18, **more: Any
) -> Parameter:
    """Return a parameter that is a whole number from `least` to `most`, such as a primary key."""

    def read(text: str) -> int:
        is_number = text.isascii() and text.isdecimal() and len(text) < 19  # any such number fits a column
        if not is_number or not least <= int(text) <= most:
            raise ValueError
        return int(text)

    return Parameter(field, lookup, **{"read": read, "allowed": allowed, "schema": _ID, "about": allowed, **more})


def uuid(field: str | None = None, **more: Any) -> Parameter:
    """Return a parameter that is a UUID."""
    return Parameter(field, read=UUID, allowed="a UUID", schema={"format": "uuid"}, **more)


def since(field: str = "created_at") -> Parameter:
    """Return a parameter that is the first moment of a stretch of time."""
    about = "from then on: a date or time, UTC where it says no zone"
    return Parameter(field, "gte", read=read_moment, allowed=MOMENT, schema={"format": "date-time"}, about=about)


def until(field: str = "created_at") -> Parameter:
    """Return a parameter that is the end of a stretch of time, which does not belong to it."""
    return Parameter(field, "lt", read=read_moment, allowed=MOMENT, schema={"format": "date-time"}, about="before then")


def user(field: str = "user") -> Parameter:
    """Return a parameter that is the name of a user."""

    def read(name: str) -> Model:
        user = get_user_model()._default_manager.filter(username=name).first()
        if user is None:
            raise ValueError
        return user

    return Parameter(field, read=read, allowed="the name of a user", about="the name of a user")


def tag() -> Parameter:
    """Return a parameter that is a tag's key and value, written ``build=41``: rows that have the tag with this very value."""

    def read(text: str) -> tuple[str, str]:
        key, equals, value = text.partition("=")
        if not equals or not TAG_KEY.fullmatch(key):
            raise ValueError
        return key, value

    def having(rows: QuerySet[Any], name: str, value: tuple[str, str]) -> QuerySet[Any]:
        key, tag_value = value
        stored = Cast(KeyTextTransform(key, "tags"), TextField())  # a plain text to compare with, on every database
        tagged: QuerySet[Any] = rows.alias(_tag=stored).filter(_tag=tag_value)
        return tagged

    return Parameter(
        method=having,
        read=read,
        allowed="KEY=VALUE, e.g. build=41",
        schema={"pattern": "^[A-Za-z][A-Za-z0-9_.-]{0,63}="},
        about="a tag it must have, KEY=VALUE",
    )


class InTime(Filters):
    """Rows created in ``since`` (included) to ``until`` (not)."""

    since = since()
    until = until()
