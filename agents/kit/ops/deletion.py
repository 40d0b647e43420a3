"""What deleting a row does, as numbers: counted in the database, never loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import router
from django.db.models import CASCADE, PROTECT, RESTRICT, SET_NULL, Model, QuerySet
from django.db.models.deletion import get_candidate_relations_to_delete


@dataclass(slots=True)
class Consequences:
    """How many rows of which models.

    Attributes:
        deleted: Go with it.
        unlinked: Stay, without naming it any more.
        protecting: Forbid it.
    """

    deleted: Counter[type[Model]] = field(default_factory=Counter)
    unlinked: Counter[type[Model]] = field(default_factory=Counter)
    protecting: Counter[type[Model]] = field(default_factory=Counter)


def consequences(rows: Sequence[Model]) -> Consequences:
    """Return what deleting `rows`, all of one model, would do; nothing is deleted.

    A row that is reached in several ways counts once per way. `rows` themselves, and rows of tables without a model of their own
    (many-to-many), are not counted.
    """
    counts = Consequences()
    if rows:
        model = type(rows[0])
        using = router.db_for_write(model)
        chosen = model._base_manager.using(using).filter(pk__in=[row.pk for row in rows])
        _count_what_refers_to(chosen, counts, (model._meta.concrete_model or model,))
    return counts


def _count_what_refers_to(rows: QuerySet[Model], counts: Consequences, path: tuple[type[Model], ...]) -> None:
    """Add to `counts` what refers to `rows`, and what refers to what goes with them. Models on the `path` here are not entered again.

    Relations that do something else on deletion, such as setting a default, are not counted.
    """
    relations: list[Any] = list(get_candidate_relations_to_delete(rows.model._meta))
    for relation in relations:
        related, on_delete = relation.related_model, relation.on_delete
        related_rows = related._base_manager.using(rows.db).filter(**{f"{relation.field.name}__in": rows.values("pk")})
        if related in path or related._meta.auto_created:
            continue
        into = {CASCADE: counts.deleted, SET_NULL: counts.unlinked}
        into |= dict.fromkeys((PROTECT, RESTRICT), counts.protecting)
        if on_delete in into and (number := related_rows.count()):
            into[on_delete][related] += number
            if on_delete is CASCADE:
                _count_what_refers_to(related_rows, counts, (*path, related))
