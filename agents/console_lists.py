"""Lists of the console over tables of any size: what a page costs does not grow with the rows behind it.

The rows of a page are found by their keys, and counted only as far as anybody would turn pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

if TYPE_CHECKING:
    AnyPaginator = Paginator[Any]
else:
    AnyPaginator = Paginator

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
        found: Any = self.result_list if self.multi_page and not self.show_all else self.paginator.object_list
        keys = list(found.values_list("pk", flat=True))
        rows = self.apply_select_related(self.root_queryset).filter(pk__in=keys).order_by() if keys else ()
        by_key = {row.pk: row for row in rows}
        shown = [by_key[key] for key in keys if key in by_key]
        self.model_admin.fill_in(shown)  # type: ignore[attr-defined]
        self.result_list = shown
