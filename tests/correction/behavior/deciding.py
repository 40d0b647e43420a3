"""A process that settles or applies the behaviour requests it is given, for tests of several at once."""

from __future__ import annotations

import sys

SETTLE = """
import sys, django; django.setup()
from correction.behavior.applying import BehaviorError, apply_request, reject_request, retry_request
from correction.behavior.applying import settle_request
from correction.models import BehaviorRequest
acts = {
    "apply": lambda row: apply_request(request=row),
    "reject": lambda row: reject_request(request=row, user=None, why="no"),
    "retry": lambda row: retry_request(request=row),
}
print("ready", flush=True); sys.stdin.readline()
for pk in map(int, sys.argv[2:]):
    request = BehaviorRequest.objects.get(pk=pk)
    if sys.argv[1] == "settle":
        assert settle_request(request=request, owner="host:1:test")
        print(request.status)
        continue
    try:
        print(acts[sys.argv[1]](request).status)
    except BehaviorError as error:
        print(str(error).partition(" cannot")[0])
"""


def command(act: str, *keys: int) -> list[str]:
    """What to run: `act` is ``settle``, ``apply``, ``reject`` or ``retry``."""
    return [sys.executable, "-c", SETTLE, act, *map(str, keys)]
