"""What an app on a floor above adds to the console's pages of a model below: columns, actions, panels, buttons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.models import Model, Prefetch, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString


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
    """What an app on a floor above adds to a model's pages, for users with `permission`.

    Attributes:
        permission: ``app.codename`` that a user needs to get any of it.
        columns: Functions of one object, shown as the last columns of the list (see ``admin.display``).
        prefetch: What the columns read, so that their number of queries does not grow with the rows.
        actions: Admin actions ``(model_admin, request, queryset)``.
        panels: Functions ``(request, object)`` to HTML at the top of the object's page.
        buttons: Functions ``(request, object)`` to what can be done with it, shown where the page has a row of buttons.
        anchors: Ids of parts of those panels with their names, for the links to them.
        notes: Functions ``(request, objects on a page)`` to HTML by primary key, shown beside each (the channel transcript).
        filters: Filters of the list, as in ``list_filter``, after its own.
    """

    permission: str
    columns: tuple[Callable[[Any], object], ...] = ()
    prefetch: tuple[str | Prefetch[Any], ...] = ()
    actions: tuple[Callable[[Any, HttpRequest, QuerySet[Any]], HttpResponse | None], ...] = ()
    panels: tuple[Callable[[HttpRequest, Any], SafeString], ...] = ()
    buttons: tuple[Callable[[HttpRequest, Any], list[Button]], ...] = ()
    anchors: tuple[tuple[str, str], ...] = ()
    notes: tuple[Callable[[HttpRequest, list[Any]], dict[int, SafeString]], ...] = ()
    filters: tuple[Any, ...] = ()


_extensions: dict[type[Model], list[Extension]] = defaultdict(list)


def extend(model: type[Model], extension: Extension) -> None:
    """Add `extension` to the pages of `model`; call it once, where the upper app registers its own admin classes."""
    _extensions[model].append(extension)


def extensions(model: type[Model], request: HttpRequest) -> list[Extension]:
    """The extensions of `model` that the user of `request` may see, in the order they were added."""
    return [extension for extension in _extensions[model] if request.user.has_perm(extension.permission)]
