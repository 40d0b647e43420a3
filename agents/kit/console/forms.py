"""Forms of the console: rows that must differ from each other, actions that ask first, and the form and page of a use case."""

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
from agents.kit.use_cases import ChoiceCard, UseCaseField, fields_of, read_texts, renamed
from agents.kit.work.worker import alive


class DistinctRows(InlineFormSet):
    """Rows of a page that must differ in their `key`, also from those added since the page was opened."""

    message: ClassVar[str]

    def key(self, row: Any) -> Hashable:
        """Return what must be unique; None when the row cannot clash."""
        raise NotImplementedError

    def clean(self) -> None:
        """Put `message` on each row whose key an earlier one has, or one that was added since the page was opened.

        Blank rows, rows that are to be deleted and rows with other errors do not count.
        """
        super().clean()
        rows_on_page = {form.instance.pk for form in self.initial_forms}
        taken: set[Hashable] = {self.key(row) for row in self.get_queryset() if row.pk not in rows_on_page}
        for form in self.forms:
            is_blank = form.instance.pk is None and not form.has_changed()
            if is_blank or form in self.deleted_forms or form.errors:
                continue
            key = self.key(form.instance)
            if key is not None and key in taken:
                form.add_error(None, self.message)
            taken.add(key)


class DistinctTraits(DistinctRows):
    """Traits of an agent, which must differ in their names."""

    message = "This agent has a trait of that name already."

    def key(self, row: Any) -> Hashable:
        return str(row.name).casefold()


class DistinctMembers(DistinctRows):
    """Members of a channel, each once."""

    message = "This member is in the channel already."

    def key(self, row: Any) -> Hashable:
        if row.agent_id is None and row.user_id is None:
            return None
        return (row.agent_id, row.user_id)


MOST_NAMED = 20  # rows that a page names before it acts on them; the others are counted


def confirmed(
    verb: str, what: str, *, form: type[Form] | None = None
) -> Callable[[Callable[..., None]], Callable[..., HttpResponse | None]]:
    """Make a function an admin action that first says what it will do, and does it after a confirmation.

    The page that asks comes back while its form is not valid. After the action the list is shown again.

    Args:
        verb: What the button says.
        what: What it will do to the rows, a sentence or two.
        form: What is to be chosen first; the action gets the valid form as its last argument.
    """

    def decorate(action: Callable[..., None]) -> Callable[..., HttpResponse | None]:
        @wraps(action)
        def ask_first(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
            is_confirmed = "confirmed" in request.POST
            filled = None
            if form is not None:
                filled = form(request.POST if is_confirmed else None)
            if is_confirmed and filled is None:
                action(model_admin, request, queryset)
                return None
            if is_confirmed and filled is not None and filled.is_valid():
                action(model_admin, request, queryset, filled)
                return None
            options = model_admin.opts
            number = queryset.count()
            rows = list(queryset[:MOST_NAMED])
            name = options.verbose_name if number == 1 else options.verbose_name_plural
            response: HttpResponse = model_admin.page(
                request,
                "admin/confirm_action.html",
                f"{verb}: {number:,} {name}",
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

        return ask_first

    return decorate


def report_done(
    model_admin: Any, request: HttpRequest, name: str, what: str, *, done: int, chosen: int, why: str = ""
) -> None:
    """Tell the user how many of the chosen rows an action was done to, and how many were skipped.

    Args:
        name: Of one row. `what`: was done, such as ``paused``.
        why: They were skipped; default: they were so already.
    """
    if done:
        names = name if done == 1 else f"{name}s"
        model_admin.message_user(request, f"{done:,} {names} {what}.", messages.SUCCESS)
    skipped = chosen - done
    if skipped:
        reason = why or f"{what} already"
        model_admin.message_user(request, f"{skipped:,} skipped: {reason}.", messages.WARNING)


# -- a use case from a page: choose, see what it takes, have a worker do it
@dataclass(frozen=True, slots=True, kw_only=True)
class CostPreview:
    """Calls, cost and other things that a use case would take, shown before it is asked for.

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
        """Set `asked` to what the form asks for, or put each refusal on its field, by its label; on the form where the field is not shown.

        An optional field that is left empty counts as left out, so that the model's default holds. The page's own fields are not looked at.
        """
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        typed = {}
        for name, field in fields_of(self.kind).items():
            is_left_out = cleaned.get(name) == "" and not field.is_required
            if name in self.fields and not is_left_out:
                typed[name] = cleaned.get(name)
        try:
            self.asked = read_texts(self.kind, typed)
        except Refused as refused:
            for location, sentence in refused.errors.items():
                # ``tags.build`` and ``agents[1]`` are parts of a field.
                name = location.partition(".")[0].partition("[")[0]
                refused_field = fields_of(self.kind).get(name)
                if refused_field is None or name not in self.fields:
                    self.add_error(None, sentence)
                else:
                    names = (location, *refused_field.names)
                    self.add_error(name, renamed(sentence, *names, to=self[name].label) or sentence)
        return cleaned


class _Choice(forms.ChoiceField):
    """A choice that is checked by the model of the use case, not by the form."""

    def validate(self, value: Any) -> None:
        pass


class _Choices(forms.MultipleChoiceField):
    """Choices that are checked by the model of the use case, not by the form."""

    def validate(self, value: Any) -> None:
        pass


class CardSelect(forms.RadioSelect):
    """Radio buttons, each on a `ChoiceCard` that explains its choice; ``admin/form_field.html`` draws them."""

    has_cards = True

    def create_option(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return an option whose card describes the radio button to users who hear the page."""
        option = super().create_option(*args, **kwargs)
        option["attrs"]["aria-describedby"] = f"{option['attrs']['id']}_about"
        return option


def request_form(kind: type[Body], *names: str, **own: forms.Field) -> type[RequestForm]:
    """Return the form of a use case.

    Args:
        kind: Its model.
        names: The fields that are shown, in this order; all without any.
        own: Form fields of the page: of its own, which the model does not know, or for a field of the model, whose help they get.
    """
    use_case_fields = fields_of(kind)
    for name, form_field in own.items():
        if name in use_case_fields:
            form_field.help_text = use_case_fields[name].help
    form_fields = {}
    for name in names or use_case_fields:
        form_fields[name] = own[name] if name in own else _form_field(use_case_fields[name])
    return type(f"{kind.__name__}Form", (RequestForm,), {"kind": kind, **form_fields, **own})


def _form_field(field: UseCaseField) -> forms.Field:
    """Return the form field of a field of a use case: optional in the form, as the model alone checks what is required."""
    settings: dict[str, Any] = {"help_text": field.help, "required": False, "initial": field.default or None}
    if field.display.label:
        settings["label"] = field.display.label
    if field.display.cards:
        return _card_field(field.display.cards, settings)
    if field.kind in ("choice", "choices") or field.display.choices:
        return _choice_field(field, settings)
    match field.kind:
        case "flag":
            return forms.BooleanField(**settings)
        case "whole number" | "number":
            settings["initial"] = field.default  # 0 is a number
            return forms.CharField(widget=NumberInput(attrs=_number_attributes(field)), **settings)
        case "text" if field.display.is_long:
            return forms.CharField(widget=GrowingTextarea(attrs={"rows": 2}), **settings)
        case "file":
            return forms.CharField(widget=GrowingTextarea, **settings)
    return forms.CharField(widget=TextInput, **settings)


def _choice_field(field: UseCaseField, settings: dict[str, Any]) -> forms.Field:
    """Return the form field of a choice, among those that the form offers now (`FieldDisplay.choices`), else among the values of the type.

    Without a default the first offered choice is selected; where the choices are those of the type, none is (``–``).
    """
    offered = field.display.choices
    choices: Any = offered or [(value, value) for value in field.choices]
    if field.kind == "choices":
        return _Choices(choices=choices, widget=forms.CheckboxSelectMultiple, **settings)
    has_default = settings["initial"] is not None
    if offered and not has_default:
        # A browser sends the first choice where none is selected.
        settings["initial"] = lambda: next((value for value, _ in offered()), None)
    elif not has_default:
        choices.insert(0, ("", "–"))
    return _Choice(choices=choices, widget=Select, **settings)


def _card_field(cards: Callable[[], Sequence[ChoiceCard]], settings: dict[str, Any]) -> forms.Field:
    """Return the form field of a choice among cards, which are asked for each time."""

    def choices() -> list[tuple[str, Any]]:
        return [(card.value, card) for card in cards()]

    return _Choice(choices=choices, widget=CardSelect, **settings)


def _number_attributes(field: UseCaseField) -> dict[str, Any]:
    """Return the attributes of the input of a number: its bounds, where it has any, and its step."""
    least, most = field.bounds
    attributes: dict[str, Any] = {"step": 1 if field.kind == "whole number" else "any"}
    if least is not None:
        attributes["min"] = least
    if most is not None:
        attributes["max"] = most
    return attributes


def as_query(request: HttpRequest, form: type[Form], chosen: Mapping[str, object] = {}) -> QueryDict:
    """Return what a form is filled with: what was sent by POST, else the address's parameters and the defaults of all other fields.

    Args:
        chosen: Defaults of this page, instead of those of the fields.
    """
    if request.method == "POST":
        return request.POST
    query = request.GET.copy()
    for name, field in form.base_fields.items():
        default = chosen.get(name, field.initial)
        if callable(default):
            default = default()
        if name in query or default is None or default is False:
            continue
        values = list(default) if isinstance(default, list | tuple) else [default]
        query.setlist(name, values)  # type: ignore[arg-type]
    return query


def _digest_of_choices(form: Form) -> str:
    """Return a digest of what was sent for the form's fields; equal for the same choices, an empty one counted as none."""
    sent: Any = form.data
    chosen = {name: [str(value) for value in sent.getlist(name) if value != ""] for name in form.fields}
    return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()


def refuse(form: Form, error: Exception) -> None:
    """Put an error on the field whose name or option it begins with, as sentences of commands and services do; else above all fields.

    ``--samples 900: …`` is put on the field `samples`, with its label instead of the option. A sentence that sends people to import
    personas gets a link.
    """
    text = str(error)
    first_word = text.partition(" ")[0].rstrip(":")
    name = first_word.lstrip("-").replace("-", "_")
    is_of_field = name in form.fields
    if is_of_field:
        text = renamed(text, first_word, to=form[name].label) or text
    if "manage.py import_agents" in text:
        text = format_html("{} {}", text, display.link(reverse("admin:agents_import_add"), "Import personas"))
    form.add_error(name if is_of_field else None, text)


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
    """Show a page with choices and what they take, and ask a worker for it when these very choices are confirmed.

    A form whose choices are not those of the preview that the person saw (its digest comes back as ``seen``) is shown again with a new
    preview, and so is one sent with ``estimate``. There is no preview while the form is not valid.

    Args:
        form: Bound; see `as_query`.
        title: Of the page. `verb`: of the button.
        preview: Returns what the valid form would take; may raise ValueError, which then stands in the form.
        do: Queues it and returns the address to go to; may raise ValueError.
        back: Address and name of the page to go back to.
        folded: Names of fields that few people need.
        about: A sentence or two on top.
        newest: HTML of the newest such work: how far it is, and its result.
    """
    confirmed_digest = request.POST.get("seen", "")  # of the choices whose preview the person saw
    shown_preview = None
    if form.is_valid():
        is_confirmed = request.method == "POST" and "estimate" not in request.POST
        try:
            if is_confirmed and confirmed_digest == _digest_of_choices(form):
                return HttpResponseRedirect(do())
            shown_preview = preview()
        except ValueError as error:
            refuse(form, error)
    folded_fields = [field for field in form.visible_fields() if field.name in folded]
    response: HttpResponse = model_admin.page(
        request,
        "admin/ask.html",
        title,
        verb=verb,
        about=about,
        newest=newest,
        form=form,
        preview=shown_preview,
        seen=_digest_of_choices(form) if shown_preview else "",
        changed=bool(confirmed_digest) and shown_preview is not None,  # the choices, since the preview before
        plain=[field for field in form.visible_fields() if field.name not in folded],
        folded=folded_fields,
        is_open=any(field.errors for field in folded_fields),
        no_worker=not alive().exists(),
        workers_url=display.list_url(WorkerHeartbeat),
        back=back,
        has_files=form.is_multipart(),
    )
    return response
