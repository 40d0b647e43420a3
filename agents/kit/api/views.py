"""Base classes of the API's viewsets: strict parameters and bodies, keys of idempotency, ETags, 404s that say what there is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn, TypeVar

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django_filters.utils import translate_validation
from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from rest_framework.exceptions import NotFound, Throttled, ValidationError
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from agents.kit.api.browsing import FormFields, Metadata, example_of
from agents.kit.api.filters import Filters
from agents.kit.api.headers import Changed, Conditional, IdempotentPosts
from agents.kit.api.rows import Row
from agents.kit.bodies import Nothing, read

T = TypeVar("T")


def or_404(find: Callable[[str], T], slug: str) -> T:
    """Return what a slug in the path names; a 404 with the sentence of the LookupError where it names nothing."""
    try:
        return find(slug)
    except LookupError as error:
        raise NotFound(str(error.args[0])) from None


@contextmanager
def new_slug(rows: QuerySet[Any], slug: str) -> Iterator[None]:
    """Make the row of this slug inside, in one transaction.

    Raises:
        ValidationError: There is one already.
    """
    name = rows.model._meta.verbose_name
    refusal = ValidationError({"slug": [f"slug {slug!r}: there is another {name} of that name; allowed: another one"]})
    if rows.filter(slug=slug).exists():
        raise refusal
    try:
        with transaction.atomic():
            yield
    except IntegrityError:  # another request was faster
        if rows.filter(slug=slug).exists():
            raise refusal from None
        raise


class View(IdempotentPosts, Conditional, GenericViewSet[Any]):
    """A viewset of which every action reads its parameters and its body strictly.

    `bodies` are those of actions, `row_class` shows the rows of a list, `answer_class` what everything else answers. ``GET`` of a
    list takes the parameters of `filterset_class`; another action says its own in its decorator.
    """

    bodies: ClassVar[Mapping[str, Any]] = {}  # a `Body` each; or, read by the action itself, its schema
    row_class: ClassVar[type[Row] | None] = None
    answer_class: type[BaseModel] | None = None
    filterset_class: type[Filters] = Filters
    metadata_class = Metadata
    queryset: Any
    lookup_value_converter = "int"
    most_bytes: int | None = None  # of a body
    raw: tuple[str, ...] = ()  # its fields that may hold what no database can
    throttle_scope = ""
    what = ""  # one row, in a 404; else the model's name

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        pages = getattr(self.paginator, "parameters", ()) if self.action == "list" else ()
        self.get_filterset_class().refuse_unknown(request.query_params, *pages)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Dump the models that the answer is made of."""
        if isinstance(response, Response):
            response.data = to_jsonable_python(response.data)
        return super().finalize_response(request, response, *args, **kwargs)

    def throttled(self, request: Request, wait: float) -> NoReturn:
        limit = getattr(settings, self.throttle_scope)
        raise Throttled(
            wait, detail=f"more than {limit:,} such requests in a minute (the setting {self.throttle_scope})."
        )

    def get_filterset_class(self) -> type[Filters]:
        """Return the parameters of this action: of a list those of the view, of another one those of its decorator.

        A request that changes something has none, and no other action either unless its decorator names some.
        """
        if self.request is not None and self.request.method not in SAFE_METHODS:
            return Filters
        if self.action == "list":
            return self.filterset_class
        method = getattr(self, self.action or "", None)
        arguments_of_decorator = getattr(method, "kwargs", {})
        chosen: type[Filters] = arguments_of_decorator.get("filterset_class", Filters)
        return chosen

    @property
    def query(self) -> dict[str, Any]:
        """Return the values of the parameters of an action that is no list, by name; None for one that was not sent.

        Raises:
            ValidationError: A value is not allowed.
        """
        filters = self.get_filterset_class()(self.request.query_params, queryset=self.queryset)
        if not filters.is_valid():
            raise translate_validation(filters.errors)
        values: dict[str, Any] = filters.form.cleaned_data
        return values

    def get_answer_class(self) -> Any:
        """Return the class of this action's answer, where its decorator names no other."""
        if self.action == "list" and self.row_class is not None:
            return self.row_class
        return self.answer_class

    def row_context(self) -> dict[str, Any]:
        """Return what is known when rows are shown."""
        return {"request": self.request}

    def shown(self, row: Any) -> Any:
        """Show a row as this action answers it."""
        return self.get_answer_class().of(row, self.row_context())

    def read_body(self) -> Any:
        """Return the body of this action, of the class that `bodies` has for it; without one it must be empty.

        Raises:
            ValidationError: It does not fit, or is a PATCH that changes nothing.
        """
        kind = self.bodies.get(self.action or "", Nothing)
        body = read(kind, self.request.data, raw=self.raw)
        if self.request.method == "PATCH" and not body.model_fields_set:
            raise ValidationError([f"nothing to change; allowed: {', '.join(kind.model_fields)}"])
        return body

    def html_form(self, typed: FormFields | None, etag: str) -> Any:
        """Return the HTML form of a page of the browsable API, with what was typed; None where the page has the raw form only."""
        return None

    def example(self, stored: Any) -> dict[str, Any]:
        """Return what the raw form of such a page holds at first: of a change what is stored already."""
        body = self.bodies.get(self.action or "")
        is_change = self.request.method in ("PUT", "PATCH")
        return example_of(body, stored if is_change else {})

    def get_object(self) -> Any:
        """Return the row that the path names.

        Raises:
            NotFound: There is none.
        """
        key = self.kwargs.get(self.lookup_field, "")
        row = None
        if key != "":
            row = self.get_queryset().filter(**{self.lookup_field: key}).first()
        if row is None:
            raise NotFound(self.missing(key))
        return row

    def missing(self, key: Any) -> str:
        """Return what a 404 says of a row that is not there."""
        name = self.what or self.get_queryset().model._meta.verbose_name
        return f"there is no {name} {str(key)[:80]}"


class Listed(View):
    """Lists rows."""

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        page: Any = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        return self.get_paginated_response(self.get_answer_class().all_of(page, self.row_context()))


class Rows(Listed):
    """Lists and shows rows."""

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return Response(self.shown(self.get_object()))


class Editable(Rows):
    """Shows rows with an ETag, and changes them.

    A subclass says in `etag_of_row` what a change replaces, and makes it in `change`, inside a transaction in which the row is locked.
    """

    etags = ("retrieve", "update", "partial_update")
    lookup_field = "slug"
    lookup_value_converter = "slug"

    def etag_of_row(self, row: Any) -> str:
        raise NotImplementedError

    def change(self, row: Any, fields: dict[str, Any]) -> None:
        raise NotImplementedError

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        row = self.get_object()
        return self.tagged(request, self.shown(row), self.etag_of_row(row))

    def update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Replace what people may change of it. Fields that must be given are those of a new one; others that are left out stay."""
        row = self.get_object()
        fields = self.read_body().sent
        expected_etags = self.expected(request)
        with transaction.atomic():
            type(row)._default_manager.select_for_update().get(pk=row.pk)  # two editors wait for each other
            row = self.get_object()
            if expected_etags is not None:
                etag = self.etag_of_row(row)
                if etag not in expected_etags:
                    raise Changed(etag)
            self.change(row, fields)
        return self.retrieve(request, *args, **kwargs)

    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Change the fields given; the others stay. With `If-Match`, the ETag of what you read, it is a 412 when it was changed since."""
        return self.update(request, *args, **kwargs)
