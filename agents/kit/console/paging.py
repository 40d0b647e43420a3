"""Pages of the console's lists: no list counts, searches twice or joins a whole large table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db import DataError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import cached_property
from unfold.paginator import InfinitePaginator

from agents.kit.console.display import EMPTY
from agents.kit.console.extensions import extensions_for_user
from agents.kit.console.saved_views import views_of_list
from agents.kit.registry import table_of

if TYPE_CHECKING:
    AnyPaginator = Paginator[Any]
else:
    AnyPaginator = Paginator

MOST_COUNTED = 10_000  # rows of a list; beyond these one searches or filters
# Last columns that mostly say the same in all rows; then they are said once, above the list.
COLUMNS_SAID_ONCE = ("judge", "judge_mark", "model_name")
MOST_KEPT_KEYS = 5_000  # by which a page is read; more of them cost as much as another search
NOT_COMPARABLE = (OverflowError, DataError)  # how SQLite and PostgreSQL refuse a number or a time beyond their columns
# Pages of a log without counting its rows: on a large table the count costs more than the page. The theme's templates know
# the paginator by its class name, so it is not subclassed.
LogPaginator: type[Paginator[Any]] = InfinitePaginator


class BoundedPaginator(AnyPaginator):
    """Pages of the first `MOST_COUNTED` rows: no page waits for a whole table to be counted, or to be searched twice."""

    template_name = "admin/pagination_bounded.html"  # as the theme's own paginators say it

    @cached_property
    def _number_found(self) -> int:
        """Return the number of rows, at most `MOST_COUNTED` + 1; where a condition found few, replace `object_list` by their keys.

        Where a condition narrows the rows, counting may take a look at every row of the table. The page is then read by the keys it found,
        at most `MOST_KEPT_KEYS`, instead of by the condition once more.
        """
        rows: Any = self.object_list
        if not isinstance(rows, QuerySet):
            return len(rows)
        first_keys = rows.order_by().values_list("pk", flat=True)[: MOST_COUNTED + 1]
        has_condition = bool(rows.query.where)
        if not has_condition:
            return first_keys.count()
        keys = list(first_keys)
        if not keys:
            self.object_list = rows.none()
        elif len(keys) <= MOST_KEPT_KEYS:
            self.object_list = rows.filter(pk__in=keys)
        return len(keys)

    @cached_property
    def count(self) -> int:
        """Return the number of rows, at most `MOST_COUNTED`."""
        return min(self._number_found, MOST_COUNTED)

    @property
    def has_more(self) -> bool:
        """Return whether there are more rows than are counted."""
        return self._number_found > MOST_COUNTED


class PagedList(ChangeList):
    """A list that reads the keys of a page first, then these rows alone with everything that its columns join and sum up."""

    def get_results(self, request: HttpRequest) -> None:
        """Set what the list's template shows: the rows of the page, filled in, the note above them, saved views, and ways to start.

        The note is the column that says the same in all rows, else the first that an extension's `fill` returned; None without one.

        Raises:
            IncorrectLookupParameters: The address compares with a number or a time that no database can hold.
        """
        try:
            super().get_results(request)
            rows = self._rows_of_page()
        except NOT_COMPARABLE:
            raise IncorrectLookupParameters from None
        is_narrowed = self.query or self.get_filters_params()
        if not is_narrowed:
            self.full_result_count = self.result_count  # else the theme offers to show all, where all are shown
        self.model_admin.fill_in(rows)  # type: ignore[attr-defined]
        notes = [
            extension.fill(rows) for extension in extensions_for_user(self.model, request) if extension.fill is not None
        ]
        self.result_list = rows
        notes.insert(0, self._remove_common_column(rows))
        self.note_above = next((note for note in notes if note is not None), None)
        self.starts = self._ways_to_start(request)
        self.views = views_of_list(request, self.model) if table_of(self.model).has_saved_views else None

    def _rows_of_page(self) -> list[Any]:
        """Return the rows of this page in the order of the list."""
        shows_everything = (self.show_all and self.can_show_all) or not self.multi_page
        listed: Any = self.paginator.object_list if shows_everything else self.result_list
        keys = list(listed.values_list("pk", flat=True))
        complete = self.apply_select_related(self.root_queryset).filter(pk__in=keys).order_by()
        by_key = {row.pk: row for row in complete}
        return [by_key[key] for key in keys if key in by_key]  # one may have been deleted since its key was read

    def _remove_common_column(self, rows: list[Any]) -> tuple[object, object] | None:
        """Take the last column, if it is one of `COLUMNS_SAID_ONCE`, out of a list in which it says the same in all rows.

        Returns:
            Its label and that value, to be shown once. Rows in which it says nothing do not count. None where the column stays.
        """
        column = self.list_display[-1]
        if isinstance(column, str):
            name: str = column
            show: Any = getattr(self.model_admin, column, None)
        else:
            name = column.__name__.strip("_")
            show = column
        if name not in COLUMNS_SAID_ONCE or show is None:
            return None
        values = {}
        for row in rows:
            value = show(row)
            if value not in ("", EMPTY):
                values[str(value)] = value
        if len(values) != 1:
            return None
        self.list_display = self.list_display[:-1]
        [value] = values.values()
        return show.short_description, value

    def _ways_to_start(self, request: HttpRequest) -> list[tuple[str, str]]:
        """Return labels and addresses of what fills the list, as far as the user may do it."""
        ways = []
        for label, url_name, permission in table_of(self.model).start:
            if request.user.has_perm(permission):
                ways.append((label, reverse(url_name)))
        return ways
