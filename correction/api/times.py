"""The stretch of time a request asks about."""

from __future__ import annotations

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from agents.api import parameters
from agents.api.schema import SINCE, UNTIL, query
from correction.costs import ALLOWED_WINDOWS, window_of_time
from evaluation.windows import MessageWindow

NAMES = ("window", "since", "until")
STRETCH = (query("window", f"{ALLOWED_WINDOWS}; or since and until instead"), SINCE, UNTIL)


def stretch(request: Request, default: str = "7d") -> MessageWindow:
    """``window`` (a duration back from now, or all), or ``since`` and ``until`` (either may be left out)."""
    spec = parameters.text(request, "window")
    since, until = parameters.moment(request, "since"), parameters.moment(request, "until")
    if since or until:
        if spec:
            raise ValidationError({"window": ["give window, or since and until, not both"]})
        if since and until and since >= until:
            raise ValidationError({"until": [f"until {until.isoformat()} is not after since {since.isoformat()}"]})
        return MessageWindow("", start=since, end=until)
    try:
        return window_of_time(spec or default)
    except ValueError as error:
        raise ValidationError({"window": [str(error)]}) from None
