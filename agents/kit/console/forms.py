"""Forms of the console: rows that must differ from each other, and the pages that ask first, and say what it takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.forms import Form
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils.html import format_html

from agents.kit.bodies import Body, Refused
from agents.kit.console import display
from agents.kit.console.site import GrowingTextarea, InlineFormSet, NumberInput, Select, TextInput
from agents.kit.models import WorkerHeartbeat
from agents.kit.use_cases import UseCaseField, fields_of, read_texts
from agents.kit.work.worker import alive


class DistinctRows(InlineFormSet):
    """Refuses two rows with the same `key`: on the page, or added since it was opened."""

    message: ClassVar[str]

    def key(self, row: Any) -> Hashable:
        """What must be unique; None when the row cannot clash."""
        raise NotImplementedError

    def clean(self) -> None:
        super().clean()
        shown = {form.instance.pk for form in self.initial_forms}
        seen: set[Hashable] = {self.key(row) for row in self.get_queryset() if row.pk not in shown}
        for form in self.forms:
            blank = form.instance.pk is None and not form.has_changed()
            if blank or form in self.deleted_forms or form.errors:
                continue
            key = self.key(form.instance)
            if key is not None and key in seen:
                form.add_error(None, self.message)
            seen.add(key)


class DistinctTraits(DistinctRows):
    message = "This agent has a trait of that name already."

    def key(self, row: Any) -> Hashable:
        return str(row.name).casefold()


class DistinctMembers(DistinctRows):
    message = "This member is in the channel already."

    def key(self, row: Any) -> Hashable:
        return (row.agent_id, row.user_id) if row.agent_id or row.user_id else None


NAMED = 20  # rows that are named; the others are counted


def confirmed(
    verb: str, what: str, *, form: type[Form] | None = None
) -> Callable[[Callable[..., None]], Callable[..., HttpResponse | None]]:
    """An admin action that first says what it will do, and does it after a confirmation.

    Args:
        verb: What the button says.
        what: What it will do to the rows, a sentence or two.
        form: What is to be chosen first; the action gets the valid form as its last argument.
    """

    def decorate(action: Callable[..., None]) -> Callable[..., HttpResponse | None]:
        @wraps(action)
        def asking(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
            is_sent = "confirmed" in request.POST
            filled = None if form is None else form(request.POST if is_sent else None)
            if is_sent and (filled is None or filled.is_valid()):
                action(model_admin, request, queryset, *([filled] if filled else []))
                return None
            number, rows, opts = queryset.count(), list(queryset[:NAMED]), model_admin.opts
            response: HttpResponse = model_admin.page(
                request,
                "admin/confirm_action.html",
                f"{verb}: {number:,} {opts.verbose_name if number == 1 else opts.verbose_name_plural}",
                verb=verb,
                what=what,
                form=filled,
                action=request.POST["action"],
                named=rows,
                more=number - len(rows),
                chosen=request.POST.getlist(ACTION_CHECKBOX_NAME),
                checkbox=ACTION_CHECKBOX_NAME,
                everything=request.POST.get("select_across") == "1",
                back=request.get_full_path(),
            )
            return response

        return asking

    return decorate


def tell_done(
    model_admin: Any, request: HttpRequest, name: str, what: str, *, done: int, chosen: int, why: str = ""
) -> None:
    """Say of how many rows it was done, and how many were skipped, and why (default: it was so already)."""
    if done:
        model_admin.message_user(request, f"{done:,} {name}{'s' if done != 1 else ''} {what}.", messages.SUCCESS)
    if skipped := chosen - done:
        reason = why or f"{what} already"
        model_admin.message_user(request, f"{skipped:,} skipped: {reason}.", messages.WARNING)


# -- a use case from a page: choose, see what it takes, have a worker do it
@dataclass(frozen=True, slots=True, kw_only=True)
class CostPreview:
    """What something would take, before it is asked for.

    Attributes:
        facts: Names and values (texts or HTML): agent, judge, calls, cost.
        warnings: Sentences of what a person should know before. `note`: one of what can be undone.
        why_not: Why it cannot be asked for as it is; there is no button then.
    """

    facts: Sequence[tuple[str, object]]
    warnings: Sequence[object] = ()
    note: object = ""
    why_not: str = ""


class RequestForm(Form):
    """The form of a use case: what is chosen is checked by its model alone; see `agents.kit.use_cases`.

    Attributes:
        asked: What a valid form asks for.
    """

    kind: ClassVar[type[Body]]
    asked: Any = None

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        names = [name for name in fields_of(self.kind) if name in self.fields]
        try:
            left_out = {
                name for name in names if cleaned.get(name) == "" and not fields_of(self.kind)[name].is_required
            }
            self.asked = read_texts(self.kind, {name: cleaned.get(name) for name in names if name not in left_out})
        except Refused as refused:
            for place, sentence in refused.errors.items():
                name = place.partition(".")[0].partition("[")[0]
                self.add_error(name if name in names else None, sentence)
        return cleaned


class _Choice(forms.ChoiceField):
    """A choice that the model checks."""

    def validate(self, value: Any) -> None:
        pass


class _Choices(forms.MultipleChoiceField):
    """Choices that the model checks."""

    def validate(self, value: Any) -> None:
        pass


def request_form(kind: type[Body], *names: str, **own: forms.Field) -> type[RequestForm]:
    """Return the form of a use case.

    Args:
        kind: Its model.
        names: The fields that are shown, in this order; all without any.
        own: Further fields of the page, which the model does not know.
    """
    fields = fields_of(kind)
    shown = {name: own[name] if name in own else _form_field(fields[name]) for name in names or fields}
    return type(f"{kind.__name__}Form", (RequestForm,), {"kind": kind, **shown, **own})


def _form_field(field: UseCaseField) -> forms.Field:
    """Return the form field of a field of a use case."""
    initial = field.default or None
    given: dict[str, Any] = {"help_text": field.help, "required": False, "initial": initial}
    if field.shown.label:
        given["label"] = field.shown.label
    offered = field.shown.choices
    if offered and field.kind == "choices":
        return _Choices(choices=offered, widget=forms.CheckboxSelectMultiple, **given)
    if offered:
        # A browser sends the first choice where none is selected.
        given["initial"] = initial or (lambda: next((value for value, _ in offered()), None))
        return _Choice(choices=offered, widget=Select, **given)
    match field.kind:
        case "flag":
            return forms.BooleanField(**given)
        case "choice":
            choices = [(value, value) for value in field.choices]
            if initial is None:
                choices.insert(0, ("", "–"))
            return _Choice(choices=choices, widget=Select, **given)
        case "choices":
            choices = [(value, value) for value in field.choices]
            return _Choices(choices=choices, widget=forms.CheckboxSelectMultiple, **given)
        case "whole number" | "number":
            least, most = field.bounds
            bounds = {"min": least, "max": most, "step": 1 if field.kind == "whole number" else "any"}
            attrs = {name: bound for name, bound in bounds.items() if bound is not None}
            return forms.CharField(widget=NumberInput(attrs=attrs), **{**given, "initial": field.default})
        case "text" if field.shown.is_long:
            return forms.CharField(widget=GrowingTextarea(attrs={"rows": 2}), **given)
        case "file":
            return forms.CharField(widget=GrowingTextarea, **given)
    return forms.CharField(widget=TextInput, **given)


def as_query(request: HttpRequest, form: type[Form], chosen: Mapping[str, object] = {}) -> QueryDict:
    """What a form is filled with: what was sent, else the defaults, with what the address names instead."""
    if request.method == "POST":
        return request.POST
    query = request.GET.copy()
    for name, field in form.base_fields.items():
        value = chosen.get(name, field.initial)
        value = value() if callable(value) else value
        if name not in query and value is not None and value is not False:
            query.setlist(name, list(value) if isinstance(value, list | tuple) else [value])  # type: ignore[list-item]
    return query


def _mark(form: Form) -> str:
    """Equal for the same choices."""
    sent: Any = form.data
    chosen = {name: [str(value) for value in sent.getlist(name) if value != ""] for name in form.fields}
    return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()


def refuse(form: Form, error: Exception) -> None:
    """Put an error on the field that it names first, as the sentences of commands and services do; else above all fields."""
    text = str(error)
    if "manage.py import_agents" in text:
        text = format_html("{} {}", text, display.link(reverse("admin:agents_import_add"), "Import personas"))
    first, _, rest = text.partition(" ")
    name = first.lstrip("-").rstrip(":").replace("-", "_")
    form.add_error(
        name if name in form.fields else None, rest if first.startswith("--") and name in form.fields else text
    )


def ask(
    model_admin: Any,
    request: HttpRequest,
    form: Form,
    *,
    title: str,
    verb: str,
    preview: Callable[[], CostPreview],
    do: Callable[[], str],
    back: tuple[str, str],
    folded: Sequence[str] = (),
    about: object = "",
    newest: object = "",
) -> HttpResponse:
    """A page that shows choices and what they take, and asks a worker for it when these very choices are confirmed.

    Args:
        form: Bound; see `as_query`.
        title: Of the page. `verb`: of the button.
        preview: What the valid form would cost; may raise ValueError, which then stands in the form.
        do: Queues it and returns the address to go to; may raise ValueError.
        back: Address and name of the page to go back to.
        folded: Names of fields that few people need.
        about: A sentence or two on top.
        newest: HTML of the newest such work: how far it is, and its result.
    """
    seen, shown = request.POST.get("seen", ""), None
    if form.is_valid():
        try:
            if request.method == "POST" and "estimate" not in request.POST and seen == _mark(form):
                return HttpResponseRedirect(do())
            shown = preview()
        except ValueError as error:
            refuse(form, error)
    fields = [(field, field.name in folded) for field in form.visible_fields()]
    response: HttpResponse = model_admin.page(
        request,
        "admin/ask.html",
        title,
        verb=verb,
        about=about,
        newest=newest,
        form=form,
        preview=shown,
        seen=_mark(form) if shown else "",
        changed=bool(seen) and shown is not None,
        plain=[field for field, is_folded in fields if not is_folded],
        folded=[field for field, is_folded in fields if is_folded],
        is_open=any(field.errors for field, is_folded in fields if is_folded),
        no_worker=not alive().exists(),
        workers_url=display.list_url(WorkerHeartbeat),
        back=back,
        has_files=form.is_multipart(),
    )
    return response
