"""A cache in Redis for what may be lost: while Redis is away each process goes on with a cache of its own, and the log says so."""

from __future__ import annotations

import logging
import time
from typing import Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)
PAUSE = 10.0  # seconds in which a Redis that did not answer is not asked again: each time costs its timeout


class SharedCache(RedisCache):
    """Redis, or while it does not answer this process' memory: for `get`, `set` and `clear`, all that counting requests needs."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._own = LocMemCache(f"instead of {server}", {"KEY_PREFIX": self.key_prefix})
        self._away_until = 0.0

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        if not self._is_away():
            try:
                return super().get(key, default, version)
            except (RedisError, OSError) as error:
                self._goes_away(error)
        return self._own.get(key, default, version)

    def set(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        if not self._is_away():
            try:
                return super().set(key, value, timeout, version)
            except (RedisError, OSError) as error:
                self._goes_away(error)
        return self._own.set(key, value, timeout, version)

    def clear(self) -> None:
        """Forget what was cached, and nothing else that this Redis holds, such as the broker's messages."""
        self._own.clear()
        client = self._cache.get_client(write=True)
        for key in client.scan_iter(match=f"{self.key_prefix}:*"):
            client.delete(key)

    def _is_away(self) -> bool:
        return time.monotonic() < self._away_until

    def _goes_away(self, error: Exception) -> None:
        self._away_until = time.monotonic() + PAUSE
        logger.warning(
            "the cache that web processes share does not answer (%s): limits hold per process for %d seconds",
            type(error).__name__,
            PAUSE,
        )
