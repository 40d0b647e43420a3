"""Headers that make requests safe to repeat: ETags (`If-None-Match`, `If-Match`) and `Idempotency-Key`.

A reader gets a 304 for what it has; of two editors the second gets a 412; a POST that is sent again acts once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from django.db import Error as DatabaseError
from django.db import IntegrityError, transaction
from django.db.models import Model, QuerySet
from django.utils import timezone
from django.utils.http import parse_etags, quote_etag
from pydantic_core import to_jsonable_python
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents.kit.api.problems import CONTENT_TYPE, Conflict
from agents.kit.models import IdempotentRequest, owner_is_dead, owner_name

if TYPE_CHECKING:
    _View = APIView
else:
    _View = object


_WITHIN = re.compile(r'\.\w*"$')  # see `etag_of`


class Changed(APIException):
    """What is there is not what the sender read."""

    status_code = 412

    def __init__(self, etag: str) -> None:
        self.etag = etag
        super().__init__(
            f"it was changed since you read it: its ETag is {etag} now. Read it again (on its page: reload), then send your change with "
            f"If-Match: {etag}"
        )


def located(data: Any, *, status: int = 201, url: str = "") -> Response:
    """The answer to a POST that made something; ``Location`` says where it is: at `url`, else at its own ``url``."""
    return Response(data, status=status, headers={"Location": url or data.url})


class Conditional(_View):
    """First base of a view whose answers carry an ETag; writes pass `expected` to a service that checks it under its lock."""

    etags: ClassVar[tuple[str, ...]] = ()  # actions whose answers carry one

    def expected(self, request: Request) -> tuple[str, ...] | None:
        """The ETags of ``If-Match`` or of a page's form, any of which may be replaced; None for any state (neither, or ``*``)."""
        sent = request.headers.get("If-Match", getattr(request.data, "etag", None))
        if sent is None:
            return None
        tags = parse_etags(sent)
        return None if tags == ["*"] else tuple(_WITHIN.sub('"', tag) for tag in tags)

    def tagged(self, request: Request, data: Any, etag: str = "") -> Response:
        """The answer with its ETag, which is made of all of it unless it is given; 304 without a body when the reader has it already."""
        data = to_jsonable_python(data)
        etag = etag or etag_of(data)
        sent = parse_etags(request.headers.get("If-None-Match", ""))
        known = {tag.removeprefix("W/") for tag in sent}
        is_page = getattr(request.accepted_renderer, "format", "") == "api"  # which also shows who is signed in
        if request.method in ("GET", "HEAD") and not is_page and (etag in known or sent == ["*"]):
            return Response(status=304, headers={"ETag": etag})
        return Response(data, headers={"ETag": etag})

    def handle_exception(self, exc: Exception) -> Response:
        response = super().handle_exception(exc)
        if isinstance(exc, Changed):
            response["ETag"] = exc.etag
        return response


def etag_of(values: Any, around: Any = None) -> str:
    """A strong ETag: of the same values always the same.

    Args:
        values: What a write replaces.
        around: What else stands in the answer, such as a page of other things. It tells readers apart; writes pass over it.
    """
    return quote_etag(_digest(values) if around is None else f"{_digest(values)}.{_digest(around)}")


def _digest(values: Any) -> str:
    plain = to_jsonable_python(values, fallback=str)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:32]


logger = logging.getLogger(__name__)
HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
KEPT_HEADERS = ("Location", "ETag")
LONGEST_RUN = timedelta(minutes=10)  # a request without an answer for longer is one of a process that died
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
Sent = tuple[str, str, str]  # method, path with the query, digest of the body: two requests with the same are the same


class KeyUsed(APIException):
    """The key stands for another request."""

    status_code = 422
    default_detail = f"this {HEADER} was used for another request within 24 hours; allowed: one key per request"


class StillRunning(Conflict):
    """The first request with this key is being answered."""

    default_detail = f"the first request with this {HEADER} is still running; ask again in a moment"


class _Answered(Exception):
    """Not an error: leaves the handling of a request whose answer is stored."""

    def __init__(self, row: IdempotentRequest) -> None:
        self.row = row
        super().__init__()


class IdempotentPosts(_View):
    """First base of a view whose POST acts: a request with the same key and body as an earlier one gets its answer again.

    Nothing is stored of an answer that says to try again (409, 429) and of a server error. What happens between acting and storing the
    answer cannot be undone: after a crash there, or when the database does not take the answer, the request acts again.
    """

    _leased: IdempotentRequest | None = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        key = request.headers.get(HEADER)
        if request.method != "POST" or key is None:
            return
        if not _KEY.fullmatch(key):
            allowed = "1 to 255 printable characters, no space"
            raise ValidationError({HEADER: [f"{HEADER} {key[:60]!r}: allowed: {allowed}"]})
        sent = ("POST", request.get_full_path(), digest(request.data))
        row, act = begin(user_id=request.user.pk, key=key, sent=sent)  # type: ignore[arg-type]  # no user is anonymous here
        if not act:
            raise _Answered(row)
        self._leased = row

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, _Answered):
            row = exc.row
            data = json.loads(row.answer) if row.answer else None
            response = Response(data, status=row.status, headers={**row.headers, REPLAYED: "true"})
            if response.status_code >= 400 and self.request.accepted_renderer.format == "json":
                response.content_type = CONTENT_TYPE
            return response
        try:
            return super().handle_exception(exc)
        except Exception:
            if self._leased is not None:
                _held(self._leased).delete()
                self._leased = None
            raise

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        if (row := self._leased) is not None:
            self._leased = None
            if isinstance(response, Response) and response.status_code < 500 and response.status_code not in (409, 429):
                headers = {name: response[name] for name in KEPT_HEADERS if name in response}
                answer = JSONRenderer().render(response.data).decode() if response.data is not None else ""
                try:
                    store_answer(row, status=response.status_code, answer=answer, headers=headers)
                except DatabaseError:  # the request was carried out, so its sender gets the answer all the same
                    logger.exception("the answer to %s %s under a key was not stored", request.method, request.path)
            else:
                _held(row).delete()
        return super().finalize_response(request, response, *args, **kwargs)


def begin(*, user_id: int, key: str, sent: Sent) -> tuple[IdempotentRequest, bool]:
    """Begin a request, or find its answer; the unique constraint lets one of two at once through.

    Returns:
        The row, and whether the caller is to act now; False when the row holds the answer.

    Raises:
        KeyUsed: The user sent something else with this key within the last 24 hours.
        StillRunning: Another request with this key acts at this moment.
    """
    mine = IdempotentRequest.objects.filter(user=user_id, key=key)
    mine.filter(created_at__lt=timezone.now() - IdempotentRequest.KEPT).delete()
    method, path, body = sent
    try:
        with transaction.atomic():
            fresh = {"method": method, "path": path, "body_digest": body, "lease_owner": owner_name()}
            return IdempotentRequest.objects.create(user_id=user_id, key=key, **fresh), True
    except IntegrityError:
        row = mine.first()
    if row is None:  # it was released this moment: the sender may try again
        raise StillRunning
    if (row.method, row.path, row.body_digest) != sent:
        raise KeyUsed
    if row.status is not None:
        return row, False
    if not (owner_is_dead(row.lease_owner) or row.leased_at < timezone.now() - LONGEST_RUN):
        raise StillRunning
    owner, now = owner_name(), timezone.now()
    if not _held(row).update(lease_owner=owner, leased_at=now):  # another process took it over
        raise StillRunning
    row.lease_owner, row.leased_at = owner, now
    return row, True


def store_answer(row: IdempotentRequest, *, status: int, answer: str, headers: dict[str, str]) -> bool:
    """Store the answer; False when another process took over meanwhile: its answer stays."""
    return bool(_held(row).update(status=status, answer=answer, headers=headers))


def _held(row: IdempotentRequest) -> QuerySet[IdempotentRequest]:
    return IdempotentRequest.objects.filter(pk=row.pk, lease_owner=row.lease_owner, status=None)


def digest(data: Any) -> str:
    """Of what was sent, however it was spelt."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def idempotency_key_of(request: Request, rows: type[Model]) -> str:
    """The request's ``Idempotency-Key`` as one of its user's own, with what was asked for; empty without one.

    It covers an answer that was lost before it was stored. It stays with the row, so that the same key with another request is
    refused even a year later.

    Args:
        rows: What the request makes; its `idempotency_key` stores the key.

    Raises:
        Conflict: The key stands for another request of this user.
    """
    sent = request.headers.get(HEADER, "")
    if not sent:
        return ""
    mine = f"api:{request.user.pk}:{hashlib.sha256(sent.encode()).hexdigest()}:"
    key = mine + digest([request.get_full_path(), request.data])[:32]
    # What follows `mine` is hexadecimal. A range, not a prefix: every database has an index for it.
    near = rows._default_manager.filter(idempotency_key__gte=mine, idempotency_key__lt=f"{mine}g")
    used = [row for row in near.values_list("idempotency_key", "pk") if str(row[0]).startswith(mine)]
    if used and key not in dict(used):
        kind = rows._meta.verbose_name
        raise Conflict(
            f"this {HEADER} was used for another request, which made {kind} {used[0][1]}; allowed: a new key"
        )
    return key
