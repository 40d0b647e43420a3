"""Who calls the API: DRF's tokens, of which not many wrong ones can be tried."""

from __future__ import annotations

from typing import Any

from rest_framework.authentication import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed, Throttled

from agents.api.throttles import WrongTokens


class Tokens(TokenAuthentication):
    """A right token always passes: programs share addresses, and one with a wrong token must not shut the others out.

    A token has 160 random bits; the limit keeps guesses from filling database and log.
    """

    def authenticate(self, request: Any) -> Any:
        try:
            return super().authenticate(request)
        except AuthenticationFailed:
            limit = WrongTokens()
            if limit.allow_request(request):
                raise
            raise Throttled(limit.seconds(), detail="too many wrong tokens") from None
