"""Reading messages that were spoken elsewhere, by hand: a serializer for each of a thousand would cost more than storing them."""

from __future__ import annotations

import json
from datetime import UTC
from typing import Any

from django.core.validators import slug_re
from rest_framework.exceptions import ValidationError

from agents.api.bodies import unstorable
from agents.api.fields import MOST_OBJECT, MOST_TAGS
from agents.ingest import Spoken
from agents.models.conversations import TAG_KEY
from agents.transcripts.records import TEXT_LIMIT, parse_time, to_utc

MOST_ERRORS = 20
_TEXTS = {  # field: most characters
    "channel": 120, "external_id": 200, "text": TEXT_LIMIT,
    "agent": 120, "user": 150, "outsider": 200, "parent": 200,
}  # fmt: skip
_FIELDS = (*_TEXTS, "sent_at", "tags", "payload")
_AUTHORS = ("agent", "user", "outsider")


def read(rows: list[Any], *, channel: str, tags: dict[str, str]) -> list[Spoken]:
    """The messages of a body.

    Raises:
        ValidationError: Names the message by its number, the field, the value and what is allowed; the first 20 mistakes.
    """
    found: list[Spoken] = []
    errors: dict[str, list[str]] = {}
    for number, row in enumerate(rows):
        wrong = _Wrong(f"messages[{number}]", errors)
        one = _spoken(row, channel, tags, wrong)
        if one is not None:
            found.append(one)
        if len(errors) >= MOST_ERRORS:
            break
    if errors:
        raise ValidationError(errors)
    return found


class _Wrong:
    """Collects what is wrong with one message."""

    def __init__(self, place: str, errors: dict[str, list[str]]) -> None:
        self._place, self._errors = place, errors
        self.any = False

    def __call__(self, name: str, text: str) -> None:
        self.any = True
        self._errors.setdefault(f"{self._place}.{name}" if name else self._place, []).append(text)


def _spoken(row: Any, channel: str, tags: dict[str, str], wrong: _Wrong) -> Spoken | None:
    if not isinstance(row, dict):
        wrong("", f"{shown(row)}: allowed: an object; its fields: {', '.join(_FIELDS)}")
        return None
    for name in row.keys() - set(_FIELDS):
        wrong(
            name[:100].encode("utf-8", "backslashreplace").decode(),
            f"there is no such field; allowed: {', '.join(_FIELDS)}",
        )
    texts = {name: row[name] for name in _TEXTS if row.get(name) is not None}
    for name, value in texts.items():
        most = _TEXTS[name]
        if not isinstance(value, str) or len(value) > most or not (value.strip() or name == "text"):
            wrong(name, f"{name} {shown(value)}: allowed: a text of 1 to {most:,} characters")
        elif fault := unstorable(value):
            wrong(name, f"{name} {fault}")
    authors = [name for name in _AUTHORS if name in texts]
    if len(authors) != 1:
        wrong("agent", f"give exactly one of {', '.join(_AUTHORS)}; {' and '.join(authors) or 'none'} given")
    for name in ("external_id", "text"):
        if name not in texts:
            wrong(name, f"{name} is missing; allowed: a text of 1 to {_TEXTS[name]:,} characters")
    where = texts.get("channel", channel)
    if not where:
        wrong("channel", "channel is missing; allowed: a slug, here or for the whole request")
    elif isinstance(where, str) and not slug_re.fullmatch(where):
        wrong("channel", f"channel {shown(where)}: allowed: 1 to 120 letters a-z and A-Z, digits, - and _")
    sent_at, payload = _moment(row.get("sent_at"), wrong), _payload(row.get("payload"), wrong)
    own = _tags(row.get("tags"), wrong)
    if wrong.any:
        return None
    names = {name: texts[name] for name in (*_AUTHORS, "parent") if name in texts}
    return Spoken(
        channel=where, external_id=texts["external_id"], text=texts["text"], sent_at=sent_at,
        tags={**own, **tags}, payload=payload, **names,
    )  # fmt: skip


def _moment(value: Any, wrong: _Wrong) -> Any:
    if value is None:
        return None
    try:
        if not isinstance(value, str):
            raise ValueError
        moment = parse_time(value)
        if moment is None:
            raise ValueError
        return to_utc(moment, UTC)
    except (ValueError, OverflowError):
        wrong("sent_at", f"sent_at {shown(value)}: allowed: a time such as 2026-11-22T14:30:00Z, or null")
        return None


def _payload(value: Any, wrong: _Wrong) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not _storable_object(value):
        wrong("payload", f"payload: allowed: a JSON object of at most {MOST_OBJECT:,} characters, numbers finite")
        return {}
    if fault := unstorable(value):
        wrong("payload", f"payload {fault}")
    return value


def _storable_object(value: dict[str, Any]) -> bool:
    try:
        return len(json.dumps(value, ensure_ascii=False, allow_nan=False)) <= MOST_OBJECT
    except ValueError:  # NaN and the infinities are no JSON
        return False


def _tags(value: Any, wrong: _Wrong) -> dict[str, str]:
    if value is None:
        return {}
    fine = isinstance(value, dict) and len(value) <= MOST_TAGS and all(
        isinstance(text, str) and TAG_KEY.fullmatch(key) for key, text in value.items()
    )  # fmt: skip
    if not fine:
        allowed = f'at most {MOST_TAGS} texts under keys of a letter, then up to 63 letters, digits, _ . or -, e.g. {{"build": "41"}}'
        wrong("tags", f"tags {shown(value)}: allowed: {allowed}")
        return {}
    if fault := unstorable(value):
        wrong("tags", f"tags {fault}")
    return dict(value)


def shown(value: Any) -> str:
    """A value as an error names it."""
    text = (
        f"{len(value):,} of them"
        if isinstance(value, list)
        else "an object"
        if isinstance(value, dict)
        else repr(value)
    )
    return (text if len(text) <= 60 else text[:59] + "…").encode("utf-8", "backslashreplace").decode()
