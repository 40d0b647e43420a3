"""Extensions of the pages of a model by apps of upper layers: columns, actions, panels, sections, buttons and notes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """Something to do with an object, at the top of its page: a link to the page that says what will happen and asks.

    Attributes:
        why: Its title: what it does, in a few words.
        main: Whether it is what most people come for; a page with many buttons keeps the others in a menu.
    """

    label: str
    url: str
    why: str = ""
    main: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """The parts that an app of a layer above adds to a model's pages, for users with `permission`.

    Attributes:
        permission: ``app.codename`` that a user needs to get any of it.
        order: Smaller numbers come first.
        tab: Key of the tab of the object's page that panels, sections and anchors belong to, where the page has tabs (`ModelAdmin.tabs`);
            empty: the first.
        columns: Functions of one object, shown as the last columns of the list (see ``admin.display``).
        fill: Sets what the columns show of the rows of a page; may return a label and value to be shown once, above the list.
        actions: Admin actions ``(model_admin, request, queryset)``.
        panels: Functions ``(request, object)`` to HTML at the top of the object's page.
        sections: The same below its form; long ones are folded (``details``), empty ones a line (``pl-nothing``).
        buttons: Functions ``(request, object)`` to what can be done with it, shown where the page has a row of buttons.
        anchors: Ids of panels and sections with their names, for the links to them.
        notes: Functions ``(request, objects on a page)`` to HTML by primary key, shown beside each (the channel transcript).
    """

    permission: str
    order: int = 0
    tab: str = ""
    columns: tuple[Callable[[Any], object], ...] = ()
    fill: Callable[[list[Any]], tuple[object, object] | None] | None = None
    actions: tuple[Callable[[Any, HttpRequest, QuerySet[Any]], HttpResponse | None], ...] = ()
    panels: tuple[Callable[[HttpRequest, Any], SafeString], ...] = ()
    sections: tuple[Callable[[HttpRequest, Any], SafeString], ...] = ()
    buttons: tuple[Callable[[HttpRequest, Any], list[Button]], ...] = ()
    anchors: tuple[tuple[str, str], ...] = ()
    notes: tuple[Callable[[HttpRequest, list[Any]], dict[int, SafeString]], ...] = ()


_extensions_by_model: dict[type[Model], list[Extension]] = defaultdict(list)


def extend(model: type[Model], permission: str, **parts: Any) -> None:
    """Add `parts` (see `Extension`) to the pages of `model`; call it where the upper app registers its own admin classes."""
    added = _extensions_by_model[model]
    added.append(Extension(permission=permission, **parts))
    added.sort(key=lambda extension: extension.order)


def extensions_for_user(model: type[Model], request: HttpRequest) -> list[Extension]:
    """Return the extensions of `model` that the user of `request` may see, smaller `order` first, then as they were added."""
    return [extension for extension in _extensions_by_model[model] if request.user.has_perm(extension.permission)]
