"""Checks of every request to the API: a bounded body, a token or session, permissions, and limits per minute.

Django REST framework imports this module while it loads its views (settings name it), so it must not import them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import logging
import math
import unicodedata
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.db.models import QuerySet
from redis.exceptions import RedisError
from rest_framework.authentication import TokenAuthentication
from rest_framework.exceptions import APIException, AuthenticationFailed, ParseError, Throttled
from rest_framework.parsers import BaseParser, JSONParser, get_encoding  # type: ignore[attr-defined]  # not in the stubs
from rest_framework.permissions import DjangoModelPermissions
from rest_framework.request import Request
from rest_framework.throttling import ScopedRateThrottle, SimpleRateThrottle
from rest_framework.utils.json import strict_constant

from agents.kit.files.json_input import keys_once
from agents.kit.models import ApiToken
from agents.kit.text.wording import time_text

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from rest_framework.views import APIView


DEEPEST = 50  # levels; what is stored is read and written again where less of the stack is left
TOO_DEEP = f"the JSON is nested too deeply; allowed: at most {DEEPEST} levels"


class BodyTooLarge(APIException):
    """A body above what the route takes."""

    status_code = 413


class UnknownEncoding(APIException):
    """A body that is packed in a way that is not read."""

    status_code = 415


def read_bounded(stream: Any, parser_context: Mapping[str, Any] | None) -> bytes:
    """Return the body of a request, unpacked where it was sent with gzip.

    Its size, packed and unpacked, is at most the view's ``most_bytes``, else `DATA_UPLOAD_MAX_MEMORY_SIZE`; no more is ever unpacked.

    Raises:
        BodyTooLarge: It is larger.
        UnknownEncoding: It is packed with something else than gzip.
        ParseError: It is no gzip.
    """
    context = parser_context or {}
    most = getattr(context.get("view"), "most_bytes", None) or settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    too_large = BodyTooLarge(f"the body is too large; allowed: at most {most:,} bytes")
    body: bytes = stream.read(most + 1)
    if len(body) > most:
        raise too_large
    request = context.get("request")
    encoding = request.headers.get("Content-Encoding", "").strip().lower() if request is not None else ""
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise UnknownEncoding(f"Content-Encoding {encoding[:80]!r}: allowed: gzip, or none")
    try:
        unpacked = gzip.GzipFile(fileobj=io.BytesIO(body)).read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ParseError(f"the body is no whole gzip file, as its Content-Encoding says: {error}") from None
    if len(unpacked) > most:
        raise too_large
    return unpacked


class BoundedJSONParser(BaseParser):
    """JSON of bounded size and depth: more is the sender's error, not the server's."""

    media_type = JSONParser.media_type

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON value of a body.

        Raises:
            BodyTooLarge, UnknownEncoding: See `read_bounded`.
            ParseError: It is no text of its charset or no JSON (NaN, a key twice), or nested deeper than DEEPEST.
        """
        body = read_bounded(stream, parser_context)
        try:
            text = body.decode(get_encoding(parser_context or {}))
            data = json.loads(text, parse_constant=strict_constant, object_pairs_hook=keys_once)
        except ValueError as error:
            raise ParseError(f"JSON parse error - {error}") from None
        except RecursionError:
            raise ParseError(TOO_DEEP) from None
        if _is_deeper_than(data, DEEPEST):
            raise ParseError(TOO_DEEP)
        return data


def _is_deeper_than(data: Any, levels: int) -> bool:
    """Return whether a value stands in more levels of lists and objects; without recursion, which could go too deep itself."""
    values = [data]
    for _ in range(levels + 1):
        values_below: list[Any] = []
        for value in values:
            if isinstance(value, dict):
                values_below += value.values()
            elif isinstance(value, list):
                values_below += value
        values = values_below
    return bool(values)


_VIEW = ["%(app_label)s.view_%(model_name)s"]
_PERMISSIONS_BY_METHOD = {**DjangoModelPermissions.perms_map, "GET": _VIEW, "HEAD": _VIEW, "OPTIONS": _VIEW}
_PERMISSIONS_OF_ACTIONS = {**_PERMISSIONS_BY_METHOD, "POST": ["%(app_label)s.change_%(model_name)s"]}


class ModelPermissions(DjangoModelPermissions):
    """Reading needs the view permission of the model of the view's ``queryset``; Django REST framework alone leaves it open."""

    perms_map = _PERMISSIONS_BY_METHOD

    def _queryset(self, view: Any) -> QuerySet[Any]:
        rows: QuerySet[Any] = view.queryset  # not that of the request, which may end in a 404
        return rows


class ActionPermissions(ModelPermissions):
    """For routes whose POST acts on what is there: it needs the change permission."""

    perms_map = _PERMISSIONS_OF_ACTIONS


class ReadsMessages(ModelPermissions):
    """For routes of something else that also show what was said: who may not view messages may not read them there."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        return super().has_permission(request, view) and request.user.has_perm("agents.view_message")


logger = logging.getLogger(__name__)


class Throttle(SimpleRateThrottle):
    """At most so many requests a minute as a setting says, by all routes of the same scope.

    All web processes count together where there is a Redis (`CELERY_BROKER_URL`), else each on its own. While that Redis is away requests
    pass, and the log says so: it must not take the gate down with it.
    """

    setting: ClassVar[str]
    num_requests: int  # allowed in `duration` seconds
    duration: int

    @property
    def cache(self) -> BaseCache:  # type: ignore[override]  # DRF's is the default cache
        return caches["throttles"]

    def get_rate(self) -> str:
        return f"{getattr(settings, self.setting)}/minute"

    def get_cache_key(self, request: Any, view: Any) -> str | None:
        return str(self.cache_format % {"scope": self.scope, "ident": self.ident(request)})

    def ident(self, request: Any) -> object:
        """Return whose requests are counted together; the client's address unless a subclass says otherwise."""
        return self.get_ident(request)

    def allow_request(self, request: Any, view: Any = None) -> bool:
        """Count the request, and return whether it is allowed; it is where the cache of counts does not answer."""
        try:
            return self.counted(request, view)
        except (RedisError, OSError) as error:
            logger.warning(
                "the cache in which requests are counted does not answer (%s): this one passes", type(error).__name__
            )
            return True

    def counted(self, request: Any, view: Any) -> bool:
        """Count the request, and return whether it is allowed."""
        return super().allow_request(request, view)

    def seconds(self) -> int:
        """Return how long to wait before the next request is counted as allowed."""
        return math.ceil(self.wait() or self.duration)


# Scopes of limits, each the name of its setting.
PAID = "API_PAID_PER_MINUTE"  # may cost money and is asked for by people: evaluations, captures, turns
SENDS = "API_SENDS_PER_MINUTE"  # drafts through the gate: agents ask often, and each may cost several judgements
INGESTS = "API_INGESTS_PER_MINUTE"  # batches of messages: free, but each may hold many rows
TRANSCRIPTS = "API_TRANSCRIPTS_PER_MINUTE"  # whole files: each is read, checked and stored while its sender waits


class Posts(Throttle, ScopedRateThrottle):
    """POSTs of one user to routes of the same `throttle_scope`, which names the setting; reading is free."""

    @property
    def setting(self) -> str:  # type: ignore[override]  # is the view's
        return str(self.scope)

    def get_cache_key(self, request: Any, view: Any) -> str | None:
        return ScopedRateThrottle.get_cache_key(self, request, view)

    def allow_request(self, request: Any, view: Any = None) -> bool:
        return request.method != "POST" or super().allow_request(request, view)


class Attempts(Throttle):
    """Guesses, of which many may come at the same moment: one atomic counter, from the first on for a minute.

    A refused attempt counts, too, but does not make the minute longer.
    """

    setting = "WRONG_SIGN_INS_PER_MINUTE"
    key = ""  # of the attempt's counter; stays empty where it was not counted

    def counted(self, request: Any, view: Any) -> bool:
        """Count the attempt, refused or not, and return whether it is allowed; keep the counter's key, so that it can be taken back."""
        key = self.get_cache_key(request, view)
        self.cache.add(key, 0, self.duration)
        try:
            count = self.cache.incr(key)
        except ValueError:  # its minute ended in between
            count = 1
            self.cache.add(key, count, self.duration)
        if count <= 1:  # Redis may make the counter again without an end, where it expires just now
            self.cache.touch(key, self.duration)
        self.key = str(key)
        return count <= self.num_requests

    def wait(self) -> float | None:
        return None  # when the minute began is not stored: seconds() says a whole one


class WrongTokens(Attempts):
    """Requests with a wrong token, by address."""

    scope = "wrong_token"


class SignIns(Attempts):
    """Attempts to sign in, by address. Each counts before the password is looked at, so that many at a time count, too."""

    scope = "sign_in"

    def forgive(self) -> None:
        """Take the attempt back: the password was right."""
        if not self.key:
            return
        with suppress(RedisError, OSError, ValueError):  # else it counts, for a minute; a ValueError: that is over
            self.cache.decr(self.key)


class SignInsOfUser(SignIns):
    """The same by user name, from all addresses: more of them, so that one address cannot lock a user out."""

    scope = "sign_in_name"
    ADDRESSES = 5  # that may guess at their own limit before the name is refused

    def get_rate(self) -> str:
        return f"{settings.WRONG_SIGN_INS_PER_MINUTE * self.ADDRESSES}/minute"

    def ident(self, request: Any) -> object:
        # As the form reads it.
        name = unicodedata.normalize("NFKC", request.POST.get("username", "")).casefold().strip()
        return hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()


class Tokens(TokenAuthentication):
    """A right token always passes: programs share addresses, and one with a wrong token must not shut the others out.

    A token has at least 160 random bits; the limit keeps guesses from filling database and log.
    """

    def authenticate_credentials(self, key: str) -> tuple[User, object]:
        """Return the user and the token of a key, which is looked up by its digest.

        Raises:
            AuthenticationFailed: There is no such token, it has expired, or its user is not active.
        """
        token = ApiToken.objects.select_related("user").filter(digest=ApiToken.digest_of(key)).first()
        if token is None or not token.user.is_active:
            raise AuthenticationFailed(
                "this token is not known; make one in the console under More › Access › API tokens."
            )
        if token.expires_at is not None and token.is_expired:
            ended = time_text(token.expires_at, zone=True)
            raise AuthenticationFailed(
                f"this token expired on {ended}; make a new one in the console under More › Access › API tokens."
            )
        return token.user, token

    def find_user_and_token(self, request: Any) -> Any:
        """Return the user and the token of the header in which this class looks for one; None where there is none.

        Raises:
            AuthenticationFailed: The token is wrong.
        """
        return super().authenticate(request)

    def authenticate(self, request: Any) -> Any:
        """Return the user and the token that a request carries; None for a request without one.

        Raises:
            AuthenticationFailed: The token is wrong; each counts against the address's limit.
            Throttled: So many of that address were wrong within a minute.
        """
        try:
            return self.find_user_and_token(request)
        except AuthenticationFailed:
            limit = WrongTokens()
            if limit.allow_request(request):
                raise
            raise Throttled(limit.seconds(), detail="too many wrong tokens.") from None
