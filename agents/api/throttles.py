"""How often one user may ask for what costs money or the server's time, and how often anybody may try wrong passwords and tokens."""

from __future__ import annotations

import hashlib
import logging
import math
import time
import unicodedata
from contextlib import suppress
from typing import Any, ClassVar

from django.conf import settings
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from redis.exceptions import RedisError
from rest_framework.throttling import SimpleRateThrottle

logger = logging.getLogger(__name__)
PAUSE = 10.0  # seconds in which a cache that did not answer is not asked again: each time costs its timeout
_away_until = 0.0


class Throttle(SimpleRateThrottle):
    """At most so many requests a minute as a setting says, by all routes of the same scope.

    All web processes count together where there is a Redis (`CACHE_URL`), else each on its own. While that Redis is away requests
    pass, and the log says so: it must not take the gate down with it.
    """

    setting: ClassVar[str]
    duration: int  # seconds, of the rate

    @property
    def cache(self) -> BaseCache:  # type: ignore[override]  # DRF's is the default cache
        return caches["throttles"]

    def get_rate(self) -> str:
        return f"{getattr(settings, self.setting)}/minute"

    def get_cache_key(self, request: Any, view: Any) -> str | None:
        return str(self.cache_format % {"scope": self.scope, "ident": self.ident(request)})

    def ident(self, request: Any) -> object:
        """Whose requests are counted together; the client's address unless a subclass says otherwise."""
        return self.get_ident(request)

    def allow_request(self, request: Any, view: Any = None) -> bool:
        global _away_until
        if time.monotonic() < _away_until:
            return True
        try:
            return self.counted(request, view)
        except (RedisError, OSError) as error:
            _away_until = time.monotonic() + PAUSE
            logger.warning(
                "the cache in which requests are counted does not answer (%s): all of them pass for %d seconds",
                type(error).__name__,
                PAUSE,
            )
            return True

    def counted(self, request: Any, view: Any) -> bool:
        """Count the request, and say whether it is allowed."""
        return super().allow_request(request, view)

    def seconds(self) -> int:
        """How long to wait before the next request is counted as allowed."""
        return math.ceil(self.wait() or self.duration)


class Posts(Throttle):
    """POSTs of one user; reading is free."""

    def ident(self, request: Any) -> object:
        return request.user.pk if request.user.is_authenticated else super().ident(request)

    def allow_request(self, request: Any, view: Any = None) -> bool:
        return request.method != "POST" or super().allow_request(request, view)


class PaidRequests(Posts):
    """What may cost money and is asked for by people: evaluations, captures, turns."""

    scope = "paid"
    setting = "API_PAID_PER_MINUTE"


class Sends(Posts):
    """Drafts through the gate: agents at work ask often, and each may cost several judgements."""

    scope = "send"
    setting = "API_SENDS_PER_MINUTE"


class Ingests(Posts):
    """Batches of messages: free, but each may hold many rows."""

    scope = "ingest"
    setting = "API_INGESTS_PER_MINUTE"


class Transcripts(Posts):
    """Whole files: each is read, checked and stored while its sender waits."""

    scope = "transcript"
    setting = "API_TRANSCRIPTS_PER_MINUTE"


class Attempts(Throttle):
    """Guesses, of which many may come at the same moment: one atomic counter, from the first on for a minute.

    A refused attempt counts, too, but does not make the minute longer.
    """

    setting = "WRONG_SIGN_INS_PER_MINUTE"
    key = ""  # of the attempt's counter; stays empty where it was not counted

    def counted(self, request: Any, view: Any) -> bool:
        key = self.get_cache_key(request, view)
        self.cache.add(key, 0, self.duration)
        try:
            count = self.cache.incr(key)
        except ValueError:  # its minute ended in between
            self.cache.add(key, count := 1, self.duration)
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
        name = (
            unicodedata.normalize("NFKC", request.POST.get("username", "")).casefold().strip()
        )  # as the form reads it
        return hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()
