"""The admin classes on which every app builds, on top of those of the theme (django-unfold).

An app of a layer above adds columns, actions and panels to the pages of a model below with `extend` (`agents.kit.console.extensions`); the
sidebar is the setting `CONSOLE_MENU` (read by `agents.kit.console.home`), because only the settings know all apps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.options import IS_POPUP_VAR
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import BinaryField, CharField, JSONField, Model, QuerySet, TextField
from django.forms import Widget
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from unfold.forms import AdminPasswordChangeForm as AdminPasswordChangeForm
from unfold.forms import UserChangeForm as UserChangeForm
from unfold.forms import UserCreationForm as UserCreationForm
from unfold.widgets import (
    UnfoldAdminColorInputWidget,
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminExpandableTextareaWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
)

from agents.kit.console.columns import column, list_filter, related_paths
from agents.kit.console.extensions import Button as Button
from agents.kit.console.extensions import Extension, extensions_for_user
from agents.kit.console.extensions import extend as extend
from agents.kit.console.help import CountedDeletion, FieldHelp, Helped
from agents.kit.console.home import navigation, search, tabs
from agents.kit.console.paging import MOST_COUNTED, BoundedPaginator, LogPaginator, PagedList
from agents.kit.registry import table_of

View = TypeVar("View", bound=Callable[..., HttpResponseBase])
Act = Callable[[Any, HttpRequest, Any], str]


def console_page(route: str, *permissions: str, post: bool = False, name: str = "") -> Callable[[View], View]:
    """Make a method of an admin class a page below the model's list; users without the permissions are refused.

    Args:
        route: As for `django.urls.path`.
        permissions: What a user needs, as ``app.codename``; without one the method decides.
        post: Whether it takes POST alone.
        name: Of its URL; default: ``app_model_`` and the method's name without ``_view``.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def checked(self: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if post and request.method != "POST":
                return HttpResponseNotAllowed(["POST"])
            if not request.user.has_perms(permissions):
                raise PermissionDenied
            return view(self, request, *args, **kwargs)

        checked.route = (route, name)  # type: ignore[attr-defined]
        return checked  # type: ignore[return-value]

    return decorate


def console_action(name: str, *permissions: str) -> Callable[[Act], Act]:
    """Make a method of an admin class the action of a button on an object's page (POST); the page then shows the text it returned.

    A button on another page names that page in the field ``next``.

    A `ValueError` of the method says why nothing was done, which the page then shows. Else the object's history notes that the button
    was pressed.

    Args:
        name: Of the action, in its address and in the history.
        permissions: What a user needs besides viewing the object.
    """

    def decorate(act: Act) -> Act:
        @console_page(f"<int:pk>/{name}/", *permissions, post=True)
        @wraps(act)
        def act_on_row(self: Any, request: HttpRequest, pk: int) -> HttpResponse:
            row = self.get_object(request, str(pk))
            if not self.has_view_permission(request, row):
                raise PermissionDenied
            if row is None:
                raise Http404(f"There is no {self.opts.verbose_name} {pk}.")
            try:
                message = act(self, request, row)
            except ValueError as problem:
                self.message_user(request, f"Nothing was changed: {str(problem).rstrip('.')}.", messages.ERROR)
            else:
                self.log_change(request, row, f"{name} pressed")
                self.message_user(request, message, messages.SUCCESS)
            return HttpResponseRedirect(page_to_return_to(request, request.POST, self.url("change", row)))

        return act_on_row  # type: ignore[return-value]

    return decorate


def page_to_return_to(request: HttpRequest, query: Mapping[str, str], otherwise: str) -> str:
    """Return the page that the parameter ``next`` names where it is one of this site, else `otherwise`."""
    page = query.get("next", "")
    is_of_this_site = url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure())
    return page if is_of_this_site else otherwise


def console_response(request: HttpRequest, template: str, title: str, **context: Any) -> TemplateResponse:
    """Return a page in the console's frame; its template extends ``admin/base_site.html``."""
    request.current_app = admin.site.name
    frame = {**admin.site.each_context(request), "title": title}
    return TemplateResponse(request, template, {**frame, **context})


M = TypeVar("M", bound=Model)
P = TypeVar("P", bound=Model)

if TYPE_CHECKING:  # the theme is untyped; its classes keep the interface of Django's
    from django.contrib.admin import AdminSite as ThemedSite
    from django.contrib.admin import ModelAdmin as ThemedModelAdmin
    from django.contrib.admin import StackedInline as ThemedStackedInline
    from django.contrib.admin import TabularInline as ThemedTabularInline
    from django.forms import SelectMultiple
    from django.forms.models import BaseInlineFormSet

    InlineFormSet = BaseInlineFormSet[Any, Any, Any]
    SearchSelect = SelectMultiple
else:
    from unfold import admin as themed
    from unfold.forms import PaginationInlineFormSet as InlineFormSet  # noqa: F401
    from unfold.sites import UnfoldAdminSite as ThemedSite
    from unfold.widgets import UnfoldAdminMultipleAutocompleteModelChoiceFieldWidget as SearchSelect  # noqa: F401

    class _Subscriptable:
        def __class_getitem__(cls, item):
            return cls

    class ThemedModelAdmin(_Subscriptable, themed.ModelAdmin):
        pass

    class ThemedStackedInline(_Subscriptable, themed.StackedInline):
        pass

    class ThemedTabularInline(_Subscriptable, themed.TabularInline):
        pass


ColorInput: type[Widget] = UnfoldAdminColorInputWidget
TextInput: type[Widget] = UnfoldAdminTextInputWidget
NumberInput: type[Widget] = UnfoldAdminDecimalFieldWidget
Select: type[Widget] = UnfoldAdminSelectWidget
GrowingTextarea: type[Widget] = UnfoldAdminExpandableTextareaWidget


class JSONText(forms.JSONField):
    """JSON as a person writes it; nothing, or null, stands for the column's default."""

    def clean(self, value: Any) -> Any:
        typed = super().clean(value)
        if typed is None and callable(self.initial):
            return self.initial()
        return typed


LONG_TEXTS: dict[Any, Any] = {
    TextField: {"widget": GrowingTextarea},
    JSONField: {"form_class": JSONText, "widget": GrowingTextarea},
}


def has_nul_character(request: HttpRequest) -> bool:
    """Return whether the address holds a NUL character, which no text of the database can hold."""
    texts = []
    for name, values in request.GET.lists():
        texts += [name, *values]
    return any("\x00" in text for text in texts)


def _is_text(field: Any) -> bool:
    return isinstance(field, CharField | TextField | JSONField | BinaryField)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """A part of an object's page with an address of its own (``?tab=KEY``); only what the tab shows is computed.

    Attributes:
        has_form: Whether it is the tab in which the object is edited; one tab of a page is.
    """

    key: str
    title: str
    has_form: bool = False


class ModelAdmin(Helped, CountedDeletion, ThemedModelAdmin[M]):
    """Base of all admin classes. Nothing is deleted in bulk: its own page says what would go with an object."""

    list_per_page = 50
    paginator: ClassVar[type[Paginator[Any]]] = BoundedPaginator
    show_full_result_count = False  # a second count, of the whole table
    list_before_template = "admin/list_note.html"
    list_filter_sheet = True
    list_filter_submit = True
    own_filters: ClassVar[Mapping[str, Any]] = {}  # filters that the registration names and no field gives
    warn_unsaved_form = True
    change_form_before_template = "admin/panels.html"
    change_form_after_template = "admin/sections.html"
    tabs: ClassVar[tuple[Tab, ...]] = ()  # of an object's page; without any, everything is on one page
    formfield_overrides: ClassVar = LONG_TEXTS

    def __init__(self, model: type[M], admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        self.table = table_of(model)
        # What the registration says; the rest is the class's.
        vars(self).update({**self._list_options(), **self._search_options(), **self._page_options()})

    def _list_options(self) -> dict[str, Any]:
        """Return columns and filters of the list, as far as the table's registration has them."""
        options: dict[str, Any] = {}
        if self.table.columns:
            names = self.table.columns.split()
            # For a method of the admin class its name, else a function that shows the field.
            options["list_display"] = [column(self, name, is_list=True) for name in names]
            options["list_select_related"] = self.list_select_related or related_paths(self.model, names)
        if self.table.filters:
            options["list_filter"] = [list_filter(self, name) for name in self.table.filters.split()]
        return options

    def _search_options(self) -> dict[str, Any]:
        """Return what a search looks through: columns with a star by a part of their text, the others exactly."""
        if not self.table.search:
            return {}
        lookups = []
        labels = []
        for name in self.table.search.split():
            field: Any = self.model._meta.get_field(name.rstrip("*"))
            lookups.append(field.name if name.endswith("*") else f"{field.name}__exact")
            labels.append(str(field.verbose_name))
        help_text = " or ".join(labels)
        # A table is searched exactly in all of these columns, or by a part in all: the first one tells which.
        is_exact = lookups[0].endswith("__exact")
        if is_exact:
            help_text += ", exactly"
        return {"search_fields": lookups, "search_help_text": help_text}

    def _page_options(self) -> dict[str, Any]:
        """Return the groups of fields of a row's page, where the table's registration has them."""
        fieldsets: list[Any] = []
        for title, names in self.table.fields:
            fields = [column(self, name, is_list=False) for name in names.split()]
            fieldsets.append((title or None, {"fields": fields}))
        return {"fieldsets": fieldsets} if fieldsets else {}

    def get_urls(self) -> list[URLPattern]:
        """Return the pages declared with `console_page`, then those of Django: an own page may have an address that Django's also fit."""
        own = []
        for method_name in dir(type(self)):
            declared = getattr(getattr(type(self), method_name, None), "route", None)
            if declared is None:
                continue
            route, url_name = declared
            if not url_name:
                url_name = f"{self.opts.app_label}_{self.opts.model_name}_{method_name.removesuffix('_view')}"
            own.append(path(route, self.admin_site.admin_view(getattr(self, method_name)), name=url_name))
        return [*own, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Show the list; an address that no database can be asked about leads to the whole list."""
        if has_nul_character(request):
            return HttpResponseRedirect(request.path)
        return super().changelist_view(request, {"title": self.table.name, **(extra_context or {})})

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Return whether an address may filter the list so; Django alone lets it ask of any column of the table anything.

        A part of a text would tell, letter by letter, what the list does not show, and a pattern can run for ever.
        """
        name, *tests = lookup.split("__")
        is_of_texts = name in {field.name for field in self.opts.fields if _is_text(field)}
        if {"regex", "iregex"} & {*tests} or (is_of_texts and not {"exact", "in", "isnull", "isempty"} >= {*tests}):
            return False
        return super().lookup_allowed(lookup, value, request)

    def url(self, view: str, row: Any = None) -> str:
        """Return the address of a page of the table, or of one of a row's."""
        url_name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{view}"
        if row is None:
            return reverse(url_name)
        return reverse(url_name, args=[row.pk])

    @property
    def when_empty(self) -> str:
        """Return what an empty list says: what fills it."""
        return self.table.empty

    def get_queryset(self, request: HttpRequest) -> QuerySet[M]:
        queryset: QuerySet[M] = super().get_queryset(request)  # the theme's has no types
        return queryset

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return PagedList

    def fill_in(self, rows: list[Any]) -> None:
        """Set what the columns show of `rows` besides their fields, for the whole page in as many queries as for one row."""

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> M | None:
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            self.fill_in([row])
        return row

    def response_action(  # type: ignore[override]  # the stubs are of a newer Django
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> HttpResponse | None:
        """Refuse an action on all rows where there are more than the list counts: nobody has seen how many it would change."""
        is_for_all = request.POST.get("select_across") == "1"
        if is_for_all and BoundedPaginator(queryset, self.list_per_page).has_more:
            text = f"Nothing was done: that would be more than {MOST_COUNTED:,}. Search or filter first."
            self.message_user(request, text, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
        return super().response_action(request, queryset)

    def get_list_display(self, request: HttpRequest) -> Any:
        columns = [*super().get_list_display(request)]
        for extension in extensions_for_user(self.model, request):
            columns += extension.columns
        return columns

    def get_actions(self, request: HttpRequest) -> Any:
        """Return the actions by name, with those of extensions and without Django's deletion; a list without actions gets none added."""
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        if self.actions is None:  # as for a log
            return actions
        for extension in extensions_for_user(self.model, request):
            for function in extension.actions:
                action = self.get_action(function)
                if action is not None:
                    _, name, _ = action
                    actions[name] = action
        return actions

    def get_panels(self, request: HttpRequest, obj: M) -> list[SafeString]:
        """Return HTML for the top of the object's page."""
        panels = []
        for extension in self._extensions_shown(request):
            panels += [panel(request, obj) for panel in extension.panels]
        return panels

    def get_sections(self, request: HttpRequest, obj: M) -> list[SafeString]:
        """Return HTML for below the form of the object's page, without sections that have nothing to show."""
        sections = []
        for extension in self._extensions_shown(request):
            sections += [section(request, obj) for section in extension.sections]
        return [html for html in sections if html]

    def get_buttons(self, request: HttpRequest, obj: M) -> list[Button]:
        """Return what the user may do with the object."""
        buttons = []
        for extension in extensions_for_user(self.model, request):
            for buttons_of in extension.buttons:
                buttons += buttons_of(request, obj)
        return buttons

    def get_anchors(self, request: HttpRequest, tab: Tab) -> list[tuple[str, str]]:
        """Return the parts of a tab of the object's page, by id and name."""
        anchors: list[tuple[str, str]] = []
        for extension in self._extensions_of(request, tab):
            anchors += extension.anchors
        return anchors

    # -- the tabs of an object's page
    def tabs_for_user(self, request: HttpRequest) -> list[Tab]:
        """Return the tabs that show the user something: the one with the form, and those to which an extension adds a part."""
        tabs = []
        for tab in self.tabs:
            extensions = self._extensions_of(request, tab)
            if tab.has_form or any(extension.panels or extension.sections for extension in extensions):
                tabs.append(tab)
        return tabs

    def chosen_tab(self, request: HttpRequest) -> Tab | None:
        """Return the tab that the address names, else the first; None without tabs.

        A form that was sent, and a window in which a related object is edited, have the tab with the form whatever the address says.
        """
        tabs = self.tabs_for_user(request)
        needs_form = request.method == "POST" or IS_POPUP_VAR in request.GET
        for tab in tabs:
            if needs_form and tab.has_form:
                return tab
            if not needs_form and tab.key == request.GET.get("tab"):
                return tab
        return tabs[0] if tabs else None

    def tab_url(self, request: HttpRequest, tab: Tab, row: Any) -> str:
        """Return the address of a tab of an object's page; it keeps the filters of the list from which the page was opened."""
        query = [f"tab={tab.key}"]
        filters = self.get_preserved_filters(request)
        if filters:
            query.append(filters)
        return f"{self.url('change', row)}?{'&'.join(query)}"

    def _extensions_of(self, request: HttpRequest, tab: Tab) -> list[Extension]:
        extensions = extensions_for_user(self.model, request)
        first = self.tabs[0].key
        return [extension for extension in extensions if (extension.tab or first) == tab.key]

    def _extensions_shown(self, request: HttpRequest) -> list[Extension]:
        """Return the extensions of the tab that is shown; without tabs all of them."""
        tab = self.chosen_tab(request)
        if tab is None:
            return extensions_for_user(self.model, request)
        return self._extensions_of(request, tab)

    def _tab_list(self, request: HttpRequest, row: M) -> list[dict[str, Any]]:
        """Return the tabs as the theme takes them (see `agents.kit.console.home.tabs`)."""
        chosen = self.chosen_tab(request)
        items = []
        for tab in self.tabs_for_user(request):
            url = self.tab_url(request, tab, row)
            items.append({"title": tab.title, "link": url, "active": tab == chosen, "has_permission": True})
        return [{"models": [{"name": str(self.opts), "detail": True}], "items": items}]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the tab of an object's page that is asked for; only the one with the form has a form and its buttons."""
        title = capfirst(str(self.opts.verbose_name))
        extra_context = {"title": title, **(extra_context or {})}
        tab = self.chosen_tab(request)
        if tab is None or tab.has_form:
            return super().change_view(request, object_id, form_url, extra_context)
        row = self.get_object(request, unquote(object_id))
        if row is None:  # which Django says in its own way
            return super().change_view(request, object_id, form_url, extra_context)
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        return self.page(
            request,
            "admin/tab.html",
            title,
            subtitle=str(row),
            original=row,
            change=True,
            preserved_filters=self.get_preserved_filters(request),
            tab=tab,
            tab_list=self._tab_list(request, row),
            panels=self.get_panels(request, row),
            sections=self.get_sections(request, row),
        )

    def response_change(self, request: HttpRequest, obj: M) -> HttpResponse:
        """Return where a save leads: one that goes on editing to the tab with the form."""
        response = super().response_change(request, obj)
        tab = self.chosen_tab(request)
        if tab is not None and "_continue" in request.POST:
            return HttpResponseRedirect(self.tab_url(request, tab, obj))
        return response

    def page(self, request: HttpRequest, template: str, title: str, **context: Any) -> TemplateResponse:
        """Return a page of the model's own in the console's frame, for a view declared with `console_page`."""
        return console_response(request, template, title, **{"model_admin": self, "opts": self.opts, **context})

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: M | None = None,
    ) -> HttpResponse:
        """Show the form, and around it what extensions add for the object; a new one has nothing of it."""
        if obj is not None:
            context["panels"] = self.get_panels(request, obj)
            context["sections"] = self.get_sections(request, obj)
            if self.tabs:
                context["tab_list"] = self._tab_list(request, obj)
        return super().render_change_form(request, context, add=add, change=change, form_url=form_url, obj=obj)


class _ReadOnly:
    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ReadOnlyAdmin(_ReadOnly, ModelAdmin[M]):
    """A log: users who may view it can read it; it cannot be added to, changed or deleted."""

    actions = None
    ordering: ClassVar[Any] = ("-pk",)
    paginator = LogPaginator
    show_facets = admin.ShowFacets.NEVER
    warn_unsaved_form = False


class TabularInline(FieldHelp, ThemedTabularInline[M, P]):
    extra = 0
    hide_title = True
    formfield_overrides: ClassVar = LONG_TEXTS

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        """Give each input its column's name, for users who hear the page."""
        formset = super().get_formset(request, obj, **kwargs)
        for name, form_field in formset.form.base_fields.items():
            widget: Any = form_field.widget
            widget = getattr(widget, "widget", widget)  # inside the one with links to related rows
            widget.attrs.setdefault("aria-label", capfirst(str(form_field.label or name)))
        return formset


class StackedInline(FieldHelp, ThemedStackedInline[M, P]):
    extra = 0
    formfield_overrides: ClassVar = LONG_TEXTS


class ReadOnlyStackedInline(_ReadOnly, StackedInline[M, P]):
    """Rows of a log with long texts."""

    max_num = 0
    can_delete = False


_pages_without_model: list[Callable[[], list[URLPattern]]] = []


def add_pages(urls: Callable[[], list[URLPattern]]) -> None:
    """Give the console pages that belong to no model."""
    _pages_without_model.append(urls)


class Site(ThemedSite):
    """The theme's site with the sidebar, tabs and search (Ctrl+K) of `agents.kit.console.home` instead of lists of apps and models."""

    index_title = "Home"

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Return the tables of one app, for its page; of all apps none, which every page would look for and no page shows."""
        return super().get_app_list(request, app_label) if app_label else []

    def get_sidebar_list(self, request: HttpRequest) -> list[dict[str, Any]]:
        """Return the groups of the sidebar; the theme would copy and compare each of a setting's entries on every page."""
        return navigation(request)

    def get_tabs_list(self, request: HttpRequest) -> list[dict[str, Any]]:
        return tabs(request)

    def extra_urls(self) -> list[URLPattern]:
        """Return the pages of `add_pages`; the theme asks for them."""
        routes = []
        for urls in _pages_without_model:
            routes += urls()
        return routes

    def search(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Answer the theme's command palette with what was found, on one page; empty where nothing was typed."""
        began = monotonic()
        typed = request.GET.get("s", "").replace("\x00", "").strip()[:100]
        if not typed:
            return HttpResponse()
        hits = [hit._asdict() for hit in search(request, typed)]
        pages = Paginator(hits, max(len(hits), 1))  # one page of all: the template takes pages
        context = {
            "page_obj": pages,
            "results": pages.page(1),
            "page_counter": 0,
            "execution_time": monotonic() - began,
        }
        headers = {"HX-Trigger": "search"}
        return TemplateResponse(request, "unfold/helpers/command_results.html", context, headers=headers)
