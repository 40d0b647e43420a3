"""``Idempotency-Key``: a POST that is sent again, because its answer was lost on the way, acts once."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from typing import TYPE_CHECKING, Any

from django.core.files.uploadedfile import UploadedFile
from django.db import Error as DatabaseError
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents import idempotency
from agents.api.problems import CONTENT_TYPE, Conflict
from agents.models import IdempotentRequest

logger = logging.getLogger(__name__)
HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
KEPT_HEADERS = ("Location", "ETag")
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


class KeyUsed(APIException):
    """The key stands for another request."""

    status_code = 422
    default_detail = f"this {HEADER} was used for another request within 24 hours; allowed: one key per request"


if TYPE_CHECKING:
    _View = APIView
else:
    _View = object


class IdempotentPosts(_View):
    """First base of a view whose POST acts: a request with the same key and body as an earlier one gets its answer again.

    Nothing is kept of an answer that says to try again (409, 429) and of a server error. What happens between acting and storing the
    answer cannot be undone: after a crash there, or when the database does not take the answer, the request acts again.
    """

    _claimed: IdempotentRequest | None = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        key = request.headers.get(HEADER)
        if request.method != "POST" or key is None:
            return
        if not _KEY.fullmatch(key):
            raise ValidationError(
                {HEADER: [f"{HEADER} {key[:60]!r}: allowed: 1 to 255 printable characters, no space"]}
            )
        sent = idempotency.Sent("POST", request.get_full_path(), digest(request.data))
        try:
            row, act = idempotency.begin(user_id=_pk(request), key=key, sent=sent)
        except idempotency.OtherRequest:
            raise KeyUsed from None
        except idempotency.StillRunning:
            raise Conflict(f"the first request with this {HEADER} is still running; ask again in a moment") from None
        if not act:
            raise _Answered(row)
        self._claimed = row

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, _Answered):
            return self._stored(exc.row)
        try:
            return super().handle_exception(exc)
        except Exception:
            self._release()
            raise

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        row = self._claimed
        if row is not None:
            kept = isinstance(response, Response) and response.status_code < 500
            if kept and response.status_code not in (409, 429):
                headers = {name: response[name] for name in KEPT_HEADERS if name in response}
                answer = JSONRenderer().render(response.data).decode() if response.data is not None else ""
                try:
                    idempotency.keep(row, status=response.status_code, answer=answer, headers=headers)
                except DatabaseError:  # it was done: whoever asked is told so all the same
                    logger.exception("the answer to %s %s under a key was not kept", request.method, request.path)
                self._claimed = None
            else:
                self._release()
        return super().finalize_response(request, response, *args, **kwargs)

    def _stored(self, row: IdempotentRequest) -> Response:
        data = json.loads(row.answer) if row.answer else None
        response = Response(data, status=row.status, headers={**row.headers, REPLAYED: "true"})
        if response.status_code >= 400 and self.request.accepted_renderer.format == "json":
            response.content_type = CONTENT_TYPE
        return response

    def _release(self) -> None:
        if self._claimed is not None:
            idempotency.release(self._claimed)
            self._claimed = None


class _Answered(Exception):
    """Not an error: leaves the handling of a request whose answer is stored."""

    def __init__(self, row: IdempotentRequest) -> None:
        self.row = row
        super().__init__()


def _pk(request: Request) -> int:
    assert request.user.pk is not None  # noqa: S101 (for the type checker: nobody anonymous comes here)
    return int(request.user.pk)


def digest(data: Any) -> str:
    """Of what was sent, however it was spelt; of files, what is in them."""
    found = hashlib.sha256()
    fields = dict(data.lists()) if hasattr(data, "lists") else data
    found.update(json.dumps(fields, sort_keys=True, default=lambda value: _of_file(value)).encode())
    return found.hexdigest()


def _of_file(file: UploadedFile[Any]) -> str:
    found = hashlib.sha256()
    for chunk in file.chunks():
        found.update(chunk)
    file.seek(0)
    return found.hexdigest()
