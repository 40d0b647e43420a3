"""Headers that make requests safe to repeat: ETags (`If-None-Match`, `If-Match`) and `Idempotency-Key`.

A reader gets a 304 for what it has; of two editors the second gets a 412; a POST that is sent again acts once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

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


_SECOND_DIGEST = re.compile(r'\.\w*"$')  # of an ETag, see `etag_of`


class Changed(APIException):
    """A 412: the row was changed since the sender read it."""

    status_code = 412

    def __init__(self, etag: str) -> None:
        self.etag = etag
        super().__init__(
            f"it was changed since you read it: its ETag is {etag} now. Read it again (on its page: reload), then send your change with "
            f"If-Match: {etag}"
        )


def located(data: Any, *, status: int = 201, url: str = "") -> Response:
    """Return the answer to a POST that made something; ``Location`` says where it is: at `url`, else at its own ``url``."""
    return Response(data, status=status, headers={"Location": url or data.url})


class Conditional(_View):
    """First base of a view whose answers carry an ETag; writes pass `expected` to a service that checks it under its lock."""

    etags: ClassVar[tuple[str, ...]] = ()  # actions whose answers carry one

    def expected(self, request: Request) -> tuple[str, ...] | None:
        """Return the ETags of ``If-Match`` or of a page's form, any of which may be replaced; None for any state (neither, or ``*``)."""
        sent = request.headers.get("If-Match", getattr(request.data, "etag", None))
        if sent is None:
            return None
        tags = parse_etags(sent)
        if tags == ["*"]:
            return None
        return tuple(_SECOND_DIGEST.sub('"', tag) for tag in tags)

    def tagged(self, request: Request, data: Any, etag: str = "") -> Response:
        """Return the answer with its ETag, which is made of all of it unless it is given; 304 without a body when the reader has it.

        The reader has it where ``If-None-Match`` names the ETag (weak or strong) or ``*``. Only a GET or HEAD of a program gets a 304.
        """
        data = to_jsonable_python(data)
        etag = etag or etag_of(data)
        sent = parse_etags(request.headers.get("If-None-Match", ""))
        has_it = sent == ["*"] or etag in {tag.removeprefix("W/") for tag in sent}
        is_page = getattr(request.accepted_renderer, "format", "") == "api"  # a page also shows who is signed in
        if has_it and not is_page and request.method in ("GET", "HEAD"):
            return Response(status=304, headers={"ETag": etag})
        return Response(data, headers={"ETag": etag})

    def handle_exception(self, exc: Exception) -> Response:
        response = super().handle_exception(exc)
        if isinstance(exc, Changed):
            response["ETag"] = exc.etag
        return response


def etag_of(values: Any, around: Any = None) -> str:
    """Return a strong ETag: of the same values always the same.

    Args:
        values: What a write replaces.
        around: What else stands in the answer, such as a page of other things. Its digest follows after a dot: a reader gets a new answer
            when it changes; a write compares only the digest before the dot (`Conditional.expected`).
    """
    digests = _digest(values)
    if around is not None:
        digests = f"{digests}.{_digest(around)}"
    return quote_etag(digests)


def _digest(values: Any) -> str:
    plain = to_jsonable_python(values, fallback=str)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:32]


logger = logging.getLogger(__name__)
HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
KEPT_HEADERS = ("Location", "ETag")
NOT_STORED = (409, 429)  # statuses of answers that say to try again
LONGEST_RUN = timedelta(minutes=10)  # a request without an answer for longer is one of a process that died
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


class Sent(NamedTuple):
    """A request that was sent; two with the same fields are the same. `path` has the query, `body_digest` is of the body."""

    method: str
    path: str
    body_digest: str


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

    _leased_row: IdempotentRequest | None = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Lease the key of a POST that has one, after the checks of every request, and before it acts.

        Raises:
            _Answered: The request was answered before; `handle_exception` sends that answer.
            ValidationError: It is no key.
            KeyUsed, StillRunning: See `begin`.
        """
        super().initial(request, *args, **kwargs)
        key = request.headers.get(HEADER)
        if request.method != "POST" or key is None:
            return
        if not _KEY.fullmatch(key):
            allowed = "1 to 255 printable characters, no space"
            raise ValidationError({HEADER: [f"{HEADER} {key[:60]!r}: allowed: {allowed}"]})
        sent = Sent("POST", request.get_full_path(), digest(request.data))
        row, is_to_act = begin(user_id=request.user.pk, key=key, sent=sent)  # type: ignore[arg-type]  # no user is anonymous here
        if not is_to_act:
            raise _Answered(row)
        self._leased_row = row

    def handle_exception(self, exc: Exception) -> Response:
        """Answer with what was stored where that is why the request was left, else as DRF does.

        An unexpected exception, for which DRF has no answer, is raised on; the key is given back first, so that it can be sent again.
        """
        if isinstance(exc, _Answered):
            return self._stored_answer(exc.row)
        try:
            return super().handle_exception(exc)
        except Exception:
            if self._leased_row is not None:
                _row_still_leased(self._leased_row).delete()
                self._leased_row = None
            raise

    def _stored_answer(self, row: IdempotentRequest) -> Response:
        """Return the answer that the first request with this key got."""
        data = json.loads(row.answer) if row.answer else None
        response = Response(data, status=row.status, headers={**row.headers, REPLAYED: "true"})
        if response.status_code >= 400 and self.request.accepted_renderer.format == "json":
            response.content_type = CONTENT_TYPE
        return response

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Store the answer under the request's key, or give the key back where the request may be sent again."""
        row = self._leased_row
        self._leased_row = None
        if row is not None and _is_to_be_stored(response):
            headers = {name: response[name] for name in KEPT_HEADERS if name in response}
            answer = JSONRenderer().render(response.data).decode() if response.data is not None else ""
            try:
                store_answer(row, status=response.status_code, answer=answer, headers=headers)
            except DatabaseError:  # the request was carried out, so its sender gets the answer all the same
                logger.exception("the answer to %s %s under a key was not stored", request.method, request.path)
        elif row is not None:  # the answer says to try again, or is a server error
            _row_still_leased(row).delete()
        return super().finalize_response(request, response, *args, **kwargs)


def _is_to_be_stored(response: Any) -> bool:
    return isinstance(response, Response) and response.status_code < 500 and response.status_code not in NOT_STORED


def begin(*, user_id: int, key: str, sent: Sent) -> tuple[IdempotentRequest, bool]:
    """Begin a request, or find its answer; the unique constraint lets one of two at once through. A key older than a day is forgotten.

    A request whose process died before it was answered is taken over.

    Returns:
        The row, and whether the caller is to act now; False when the row holds the answer.

    Raises:
        KeyUsed: The user sent something else with this key within the last 24 hours.
        StillRunning: Another request with this key acts at this moment.
    """
    stored = IdempotentRequest.objects.filter(user=user_id, key=key)
    stored.filter(created_at__lt=timezone.now() - IdempotentRequest.KEPT).delete()
    try:
        with transaction.atomic():
            fields = {**sent._asdict(), "lease_owner": owner_name()}
            return IdempotentRequest.objects.create(user_id=user_id, key=key, **fields), True
    except IntegrityError:
        row = stored.first()
    if row is None:  # it was released this moment: the sender may try again
        raise StillRunning
    if Sent(row.method, row.path, row.body_digest) != sent:
        raise KeyUsed
    if row.status is not None:
        return row, False
    _take_over(row)
    return row, True


def _take_over(row: IdempotentRequest) -> None:
    """Lease a request whose process died before it was answered.

    Raises:
        StillRunning: Its process lives, or another one takes it over at this moment.
    """
    is_abandoned = owner_is_dead(row.lease_owner) or row.leased_at < timezone.now() - LONGEST_RUN
    if not is_abandoned:
        raise StillRunning
    owner = owner_name()
    now = timezone.now()
    is_ours = _row_still_leased(row).update(lease_owner=owner, leased_at=now)
    if not is_ours:
        raise StillRunning
    row.lease_owner = owner
    row.leased_at = now


def store_answer(row: IdempotentRequest, *, status: int, answer: str, headers: dict[str, str]) -> bool:
    """Store the answer; False when another process took over meanwhile: its answer stays."""
    return bool(_row_still_leased(row).update(status=status, answer=answer, headers=headers))


def _row_still_leased(row: IdempotentRequest) -> QuerySet[IdempotentRequest]:
    """Return the row as long as the same process has it and no answer is stored."""
    return IdempotentRequest.objects.filter(pk=row.pk, lease_owner=row.lease_owner, status=None)


def digest(data: Any) -> str:
    """Return a digest of a body (SHA-256, hexadecimal) that is the same however its JSON was spelt."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def idempotency_key_of(request: Request, rows: type[Model]) -> str:
    """Return the request's ``Idempotency-Key`` as one of its user's own, with a digest of what was asked for; empty without one.

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
    prefix = f"api:{request.user.pk}:{hashlib.sha256(sent.encode()).hexdigest()}:"
    key = prefix + digest([request.get_full_path(), request.data])[:32]
    # What follows the prefix is hexadecimal, which is less than "g". A range, because every database has an index for it.
    in_range = rows._default_manager.filter(idempotency_key__gte=prefix, idempotency_key__lt=f"{prefix}g")
    used = {}
    for stored_key, pk in in_range.values_list("idempotency_key", "pk"):
        if str(stored_key).startswith(prefix):  # a database that sorts in another order may give others, too
            used[stored_key] = pk
    if used and key not in used:
        kind = rows._meta.verbose_name
        first = next(iter(used.values()))
        raise Conflict(f"this {HEADER} was used for another request, which made {kind} {first}; allowed: a new key")
    return key
