"""Rows edited on their parent's page that must differ from each other.

Django leaves the parent out when it validates such rows, and with it every unique constraint that names the parent and is
conditional or an expression; the database would answer with an error page.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

from agents.adminsite import InlineFormSet


class DistinctRows(InlineFormSet):
    """Refuses two rows with the same `key`: on the page, or made by somebody else since it was opened."""

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
