"""Going through every place, batch by batch; what the person said goes last, for by it their quotes are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import BooleanField, Case, Max, Value, When
from django.utils.module_loading import import_string
from rest_framework.authtoken.models import Token

from agents.erasure.person import Person
from agents.erasure.place import NOTHING, Place
from agents.erasure.words import SHORTEST_QUOTE, Words, blanked

BATCH = 500  # rows read, and at most changed, by one transaction


@dataclass(slots=True)
class Erased:
    """What a place had of the person.

    Attributes:
        keys: Rows changed or deleted, or that would be; where `told_only`, rows that people should look at.
        named_elsewhere: Rows that have the name but are not near: left as they are, for it may be another's name.
    """

    place: Place
    keys: set[int] = field(default_factory=set)
    named_elsewhere: int = 0


def known_places() -> list[Place]:
    """Where words may be kept (the setting ERASURE), in the order in which it is looked."""
    return [place for path in settings.ERASURE for place in import_string(path)]


def forget(
    person: Person,
    *,
    dry_run: bool = False,
    shortest_quote: int = SHORTEST_QUOTE,
    name_everywhere: bool = False,
    progress: Callable[[Place, float], None] = lambda _place, _done: None,
) -> Iterator[Erased]:
    """Erase a person; each place as it is done.

    May be stopped at any time and begun again: their own messages, by which quotes are found, are blanked last. A second time finds
    nothing more.

    Args:
        person: Who.
        dry_run: Only count.
        shortest_quote: Characters of theirs in a row that count as a quote.
        name_everywhere: Take every text with the name for one about them, also where they are not known to have been.
        progress: Told how far a place is, 0 to 1.
    """
    texts = person.own().order_by().values_list("text", flat=True).iterator()
    words = Words(texts, names=person.names, label=person.label, shortest=shortest_quote)
    for place in known_places():
        found = Erased(place)
        for done in _go_through(found, person, words, dry_run=dry_run, everywhere=name_everywhere):
            progress(place, done)
        yield found
    if person.user is not None and not dry_run:
        _clear_account(person)


def _go_through(found: Erased, person: Person, words: Words, *, dry_run: bool, everywhere: bool) -> Iterator[float]:
    place = found.place
    rows = place.of(person)
    last = rows.order_by().aggregate(last=Max("pk"))["last"]
    after: int | None = None
    while last is not None:
        ahead = rows.filter(pk__lte=last) if after is None else rows.filter(pk__gt=after, pk__lte=last)
        read = list(_with_marks(place, person, ahead)[:BATCH])
        if not read:
            return
        after = read[-1]["pk"]
        changes: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for row in read:
            changed = _changed(place, person, words, row, everywhere)
            found.named_elsewhere += not changed and _is_named(place, words, row)
            if changed:
                changes.append((row, changed))
        found.keys.update(row["pk"] for row, _ in changes)
        if changes and not dry_run and not place.told_only:
            _write(place, changes)
        yield min(1.0, after / max(last, 1))


def _with_marks(place: Place, person: Person, rows: Any) -> Any:
    marks = {
        "is_near": place.is_near(person),
        "is_whole": NOTHING if place.whole is None else place.whole(person),
        "is_named": NOTHING if place.named is None else place.named(person),
    }
    cases = {
        name: Case(When(q, then=Value(True)), default=Value(False), output_field=BooleanField())
        for name, q in marks.items()
    }
    return rows.order_by("pk").annotate(**cases).values("pk", *place.columns, *marks)


def _changed(place: Place, person: Person, words: Words, row: dict[str, Any], everywhere: bool) -> dict[str, Any]:
    """The columns that must change, with what they become."""
    after: dict[str, Any] = {}
    for column in place.columns:
        value = row[column]
        if row["is_named"]:
            after[column] = person.label
        elif row["is_whole"]:
            after[column] = {} if column in place.emptied else blanked(value)
        else:
            after[column] = words.without(value, near=row["is_near"] or everywhere)
    if place.delete and row["is_whole"]:
        return after
    return {column: _fitting(place, column, value) for column, value in after.items() if value != row[column]}


def _is_named(place: Place, words: Words, row: dict[str, Any]) -> bool:
    return not row["is_near"] and any(words.named(row[column]) for column in place.columns)


def _fitting(place: Place, column: str, value: Any) -> Any:
    """A label may be longer than the name it stands for."""
    longest = place.model._meta.get_field(column).max_length  # type: ignore[union-attr]
    return value[:longest] if isinstance(value, str) and longest else value


def _write(place: Place, changes: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Change or delete these rows. A text that somebody else changed meanwhile stays for the next time."""
    rows = place.model._default_manager
    with transaction.atomic():
        if place.delete:
            rows.filter(pk__in=[row["pk"] for row, _ in changes]).delete()
            return
        for row, values in changes:
            as_read = {column: row[column] for column in values if isinstance(row[column], str)}
            rows.filter(pk=row["pk"], **as_read).update(**values)


def _clear_account(person: Person) -> None:
    """Take the name from the account; where it is closed, also username, address, password and tokens."""
    user: Any = person.user
    user.first_name = user.last_name = ""
    if person.deactivate:
        user.username, user.email, user.is_active = person.label, "", False
        user.set_unusable_password()
        Token.objects.filter(user=user).delete()
    user.save()
