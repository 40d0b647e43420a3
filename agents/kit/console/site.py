"""The one file that knows the admin theme (django-unfold): every admin class of every app builds on the classes here.

An app of a layer above adds columns, actions and panels to the pages of a model below with `extend`; the sidebar is the
setting `CONSOLE_MENU` (read by `agents.kit.console.home`), because only the settings know all apps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import JSONField, Model, QuerySet, TextField
from django.forms import Widget
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.functional import cached_property
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from unfold.forms import AdminPasswordChangeForm as AdminPasswordChangeForm
from unfold.forms import UserChangeForm as UserChangeForm
from unfold.forms import UserCreationForm as UserCreationForm
from unfold.paginator import InfinitePaginator
from unfold.widgets import (
    UnfoldAdminColorInputWidget,
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminExpandableTextareaWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
)

from agents.kit.console.columns import column, list_filter, related
from agents.kit.console.display import EMPTY
from agents.kit.console.help import CountedDeletion, FieldHelp, Helped
from agents.kit.console.home import search
from agents.kit.registry import table_of

if TYPE_CHECKING:
    AnyPaginator = Paginator[Any]
else:
    AnyPaginator = Paginator

ONCE = ("judge", "judge_mark", "model_name")  # last columns that are said once above the list where all its rows agree
MOST_COUNTED = 10_000  # rows; beyond these one searches or filters
FEW = 5_000  # keys that are not looked for again


class BoundedPaginator(AnyPaginator):
    """Pages of the first `MOST_COUNTED` rows: no page waits for a whole table to be counted, or to be searched twice."""

    template_name = "admin/pagination_bounded.html"  # as the theme's own paginators say it

    @cached_property
    def _found(self) -> int:
        rows: Any = self.object_list
        if not isinstance(rows, QuerySet):
            return len(rows)
        some = rows.order_by().values_list("pk", flat=True)[: MOST_COUNTED + 1]
        if not rows.query.where:
            return some.count()
        keys = list(some)
        if len(keys) <= FEW:  # it took a look at every row to find so few
            self.object_list = rows.filter(pk__in=keys) if keys else rows.none()
        return len(keys)

    @cached_property
    def count(self) -> int:
        """Rows, at most `MOST_COUNTED`."""
        return min(self._found, MOST_COUNTED)

    @property
    def has_more(self) -> bool:
        """Whether there are more than are counted."""
        return self._found > MOST_COUNTED


class PagedList(ChangeList):
    """Finds the keys of a page first: what the columns join and sum up is then read for these rows, and for no others."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.query and not self.get_filters_params():
            self.full_result_count = self.result_count  # else the theme offers to show all, where all are shown
        listed: Any = self.result_list if self.multi_page and not self.show_all else self.paginator.object_list
        keys = list(listed.values_list("pk", flat=True))
        rows = self.apply_select_related(self.root_queryset).filter(pk__in=keys).order_by() if keys else ()
        by_key = {row.pk: row for row in rows}
        shown = [by_key[key] for key in keys if key in by_key]
        self.model_admin.fill_in(shown)  # type: ignore[attr-defined]
        said = [one.fill(shown) for one in extensions(self.model, request) if one.fill is not None]
        self.result_list = shown
        self.said_once = self._say_once(shown) or next(filter(None, said), None)
        ways = table_of(self.model).start
        self.starts = [(label, reverse(name)) for label, name, needed in ways if request.user.has_perm(needed)]

    def _say_once(self, rows: list[Any]) -> tuple[object, object] | None:
        """Take the last column out of the list where all rows that have a value there have the same: its label and that value."""
        column = self.list_display[-1]
        show: Any = getattr(self.model_admin, column, None) if isinstance(column, str) else column
        if show is None or (show.__name__.strip("_") not in ONCE and column not in ONCE):
            return None
        values = {str(value): value for value in map(show, rows) if value not in ("", EMPTY)}
        if len(values) != 1:
            return None
        self.list_display = self.list_display[:-1]
        return show.short_description, *values.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """Something to do with an object, at the top of its page: a link to the page that says what will happen and asks.

    Attributes:
        why: Its title: what it does, in a few words.
        main: Whether it is what most people come for.
    """

    label: str
    url: str
    why: str = ""
    main: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """What an app of a layer above adds to a model's pages, for users with `permission`.

    Attributes:
        permission: ``app.codename`` that a user needs to get any of it.
        order: Smaller numbers come first.
        columns: Functions of one object, shown as the last columns of the list (see ``admin.display``).
        fill: Sets what the columns show of the rows of a page; may return a label and value that is said once above the list.
        actions: Admin actions ``(model_admin, request, queryset)``.
        panels: Functions ``(request, object)`` to HTML at the top of the object's page.
        sections: The same below its form; long ones are folded (``details``), empty ones a line (``pl-nothing``).
        buttons: Functions ``(request, object)`` to what can be done with it, shown where the page has a row of buttons.
        anchors: Ids of panels and sections with their names, for the links to them.
        notes: Functions ``(request, objects on a page)`` to HTML by primary key, shown beside each (the channel transcript).
    """

    permission: str
    order: int = 0
    columns: tuple[Callable[[Any], object], ...] = ()
    fill: Callable[[list[Any]], tuple[object, object] | None] | None = None
    actions: tuple[Callable[[Any, HttpRequest, QuerySet[Any]], HttpResponse | None], ...] = ()
    panels: tuple[Callable[[HttpRequest, Any], SafeString], ...] = ()
    sections: tuple[Callable[[HttpRequest, Any], SafeString], ...] = ()
    buttons: tuple[Callable[[HttpRequest, Any], list[Button]], ...] = ()
    anchors: tuple[tuple[str, str], ...] = ()
    notes: tuple[Callable[[HttpRequest, list[Any]], dict[int, SafeString]], ...] = ()


_extensions: dict[type[Model], list[Extension]] = defaultdict(list)


def extend(model: type[Model], permission: str, **parts: Any) -> None:
    """Add `parts` (see `Extension`) to the pages of `model`; call it where the upper app registers its own admin classes."""
    _extensions[model].append(Extension(permission=permission, **parts))
    _extensions[model].sort(key=lambda extension: extension.order)


def extensions(model: type[Model], request: HttpRequest) -> list[Extension]:
    """The extensions of `model` that the user of `request` may see, smaller `order` first, then as they were added."""
    return [extension for extension in _extensions[model] if request.user.has_perm(extension.permission)]


View = TypeVar("View", bound=Callable[..., HttpResponseBase])
Act = Callable[[Any, HttpRequest, Any], str]


def console_page(route: str, *permissions: str, post: bool = False, name: str = "") -> Callable[[View], View]:
    """Make a method of an admin class a page below the model's list.

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
    """Make a method of an admin class what a button on an object's page does (POST); the page then says what it returned.

    A `ValueError` of the method says why nothing was done. What was done stands in the object's history.

    Args:
        name: Of the action, in its address and in the history.
        permissions: What a user needs besides viewing the object.
    """

    def decorate(act: Act) -> Act:
        @console_page(f"<int:pk>/{name}/", *permissions, post=True)
        @wraps(act)
        def carry_out(self: Any, request: HttpRequest, pk: int) -> HttpResponse:
            row = self.get_object(request, str(pk))
            if not self.has_view_permission(request, row):
                raise PermissionDenied
            if row is None:
                raise Http404(f"There is no {self.opts.verbose_name} {pk}.")
            try:
                done = act(self, request, row)
            except ValueError as problem:
                self.message_user(request, f"Nothing was changed: {str(problem).rstrip('.')}.", messages.ERROR)
            else:
                self.log_change(request, row, f"{name} pressed")
                self.message_user(request, done, messages.SUCCESS)
            return HttpResponseRedirect(self.url("change", row))

        return carry_out  # type: ignore[return-value]

    return decorate


def page_to_return_to(request: HttpRequest, query: Mapping[str, str], otherwise: str) -> str:
    """The page of this site that the parameter ``next`` names; else the other one."""
    page = query.get("next", "")
    is_safe = url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure())
    return page if is_safe else otherwise


M = TypeVar("M", bound=Model)
P = TypeVar("P", bound=Model)

if TYPE_CHECKING:  # the theme is untyped; its classes keep the interface of Django's
    from django.contrib.admin import AdminSite as ThemedSite
    from django.contrib.admin import ModelAdmin as ThemedModelAdmin
    from django.contrib.admin import StackedInline as ThemedStackedInline
    from django.contrib.admin import TabularInline as ThemedTabularInline
    from django.forms.models import BaseInlineFormSet

    InlineFormSet = BaseInlineFormSet[Any, Any, Any]
else:
    from unfold import admin as themed
    from unfold.forms import PaginationInlineFormSet as InlineFormSet  # noqa: F401
    from unfold.sites import UnfoldAdminSite as ThemedSite

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
        given = super().clean(value)
        return self.initial() if given is None and callable(self.initial) else given


LONG_TEXTS: dict[Any, Any] = {
    TextField: {"widget": GrowingTextarea},
    JSONField: {"form_class": JSONText, "widget": GrowingTextarea},
}
# Pages of a log without counting its rows: on a large table the count costs more than the page. The theme's templates know
# the paginator by its class name, so it is not subclassed.
LogPaginator: type[Paginator[Any]] = InfinitePaginator


def has_nul_character(request: HttpRequest) -> bool:
    """Whether the address holds what no text of the database can."""
    return any("\x00" in text for name, values in request.GET.lists() for text in (name, *values))


class ModelAdmin(Helped, CountedDeletion, ThemedModelAdmin[M]):
    """Base of all admin classes. Nothing is deleted in bulk: its own page says what would go with an object."""

    list_per_page = 50
    paginator: ClassVar[type[Paginator[Any]]] = BoundedPaginator
    show_full_result_count = False  # a second count, of the whole table
    list_before_template = "admin/said_once.html"
    list_filter_sheet = True
    list_filter_submit = True
    own_filters: ClassVar[Mapping[str, Any]] = {}  # filters that the registration names and no field gives
    warn_unsaved_form = True
    change_form_before_template = "admin/panels.html"
    change_form_after_template = "admin/sections.html"
    formfield_overrides: ClassVar = LONG_TEXTS

    def __init__(self, model: type[M], admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        self.table = table = table_of(model)
        given: dict[str, Any] = {}  # what the registration says; the rest is the class's
        if table.columns:
            names = table.columns.split()
            given["list_display"] = [column(self, name, is_list=True) for name in names]
            given["list_select_related"] = self.list_select_related or related(model, names)
        if table.filters:
            given["list_filter"] = [list_filter(self, name) for name in table.filters.split()]
        if table.search:
            names = table.search.split()
            fields: list[Any] = [model._meta.get_field(name.rstrip("*")) for name in names]
            given["search_fields"] = [name.rstrip("*") if name.endswith("*") else f"{name}__exact" for name in names]
            exactly = "" if names[0].endswith("*") else ", exactly"
            given["search_help_text"] = f"{' or '.join(str(field.verbose_name) for field in fields)}{exactly}"
        if table.fields:
            given["fieldsets"] = [
                (title or None, {"fields": [column(self, name, is_list=False) for name in names.split()]})
                for title, names in table.fields
            ]
        vars(self).update(given)

    def get_urls(self) -> list[URLPattern]:
        own = []
        for method in dir(type(self)):
            if route := getattr(getattr(type(self), method, None), "route", None):
                name = route[1] or f"{self.opts.app_label}_{self.opts.model_name}_{method.removesuffix('_view')}"
                own.append(path(route[0], self.admin_site.admin_view(getattr(self, method)), name=name))
        return [*own, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """The list; an address that no database can be asked about leads to the whole list."""
        if has_nul_character(request):
            return HttpResponseRedirect(request.path)
        return super().changelist_view(request, extra_context)

    def url(self, view: str, row: Any = None) -> str:
        """Where a page of the table is, or one of a row's."""
        return reverse(
            f"admin:{self.opts.app_label}_{self.opts.model_name}_{view}", args=[] if row is None else [row.pk]
        )

    @property
    def when_empty(self) -> str:
        """What fills the list; shown in an empty one."""
        return self.table.empty

    def get_queryset(self, request: HttpRequest) -> QuerySet[M]:
        queryset: QuerySet[M] = super().get_queryset(request)  # the theme's has no types
        return queryset

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return PagedList

    def fill_in(self, rows: list[Any]) -> None:
        """Set what the columns show of `rows` besides their fields, for the whole page in as many queries as for one."""

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> M | None:
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            self.fill_in([row])
        return row

    def response_action(  # type: ignore[override]  # the stubs are of a newer Django
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> HttpResponse | None:
        """ "All" that are listed is never more than the list counts."""
        if request.POST.get("select_across") == "1" and BoundedPaginator(queryset, self.list_per_page).has_more:
            text = f"Nothing was done: that would be more than {MOST_COUNTED:,}. Search or filter first."
            self.message_user(request, text, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
        return super().response_action(request, queryset)

    def get_list_display(self, request: HttpRequest) -> Any:
        added = [column for extension in extensions(self.model, request) for column in extension.columns]
        return [*super().get_list_display(request), *added]

    def get_actions(self, request: HttpRequest) -> Any:
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        if self.actions is None:
            return actions
        for extension in extensions(self.model, request):
            for function in extension.actions:
                action = self.get_action(function)
                if action is not None:
                    actions[action[1]] = action
        return actions

    def get_panels(self, request: HttpRequest, obj: M) -> list[SafeString]:
        """HTML at the top of the object's page."""
        return [panel(request, obj) for extension in extensions(self.model, request) for panel in extension.panels]

    def get_sections(self, request: HttpRequest, obj: M) -> list[SafeString]:
        """HTML below the form of the object's page; what has nothing to show is left out."""
        asked = [section for extension in extensions(self.model, request) for section in extension.sections]
        return [html for section in asked if (html := section(request, obj))]

    def get_buttons(self, request: HttpRequest, obj: M) -> list[Button]:
        """What the user may do with the object."""
        asked = [ask for extension in extensions(self.model, request) for ask in extension.buttons]
        return [button for ask in asked for button in ask(request, obj)]

    def get_anchors(self, request: HttpRequest) -> list[tuple[str, str]]:
        """The parts of the object's page, by id and name."""
        return [anchor for extension in extensions(self.model, request) for anchor in extension.anchors]

    def page(self, request: HttpRequest, template: str, title: str, **context: Any) -> TemplateResponse:
        """A page of its own in the console's frame, for a view declared with `console_page`.

        The template extends ``admin/base_site.html``. (The theme's `UnfoldModelAdminViewMixin` gives class-based views the same.)
        """
        request.current_app = self.admin_site.name
        frame = {**self.admin_site.each_context(request), "title": title, "model_admin": self, "opts": self.opts}
        return TemplateResponse(request, template, {**frame, **context})

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: M | None = None,
    ) -> HttpResponse:
        if obj is not None:
            context["panels"] = self.get_panels(request, obj)
            context["sections"] = self.get_sections(request, obj)
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


_pages: list[Callable[[], list[URLPattern]]] = []


def add_pages(urls: Callable[[], list[URLPattern]]) -> None:
    """Give the console pages that belong to no model."""
    _pages.append(urls)


class Site(ThemedSite):
    """The theme's site, whose search (Ctrl+K) finds what `agents.kit.console.home.search` does instead of apps and models."""

    index_title = "Console"

    def extra_urls(self) -> list[URLPattern]:
        """The pages of `add_pages`; the theme asks for them."""
        return [page for urls in _pages for page in urls()]

    def search(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Answer the theme's command palette."""
        typed, began = request.GET.get("s", "").replace("\x00", "").strip()[:100], monotonic()
        if not typed:
            return HttpResponse()
        hits = [dict(zip(("title", "description", "link", "icon"), hit, strict=True)) for hit in search(request, typed)]
        pages = Paginator(hits, max(len(hits), 1))
        context = {
            "page_obj": pages,
            "results": pages.page(1),
            "page_counter": 0,
            "execution_time": monotonic() - began,
        }
        headers = {"HX-Trigger": "search"}
        return TemplateResponse(request, "unfold/helpers/command_results.html", context, headers=headers)
