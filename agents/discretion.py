"""What an error may say outside the database: not what agents and users wrote, which exceptions often quote."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseProblem

HIDDEN = "(hidden: it may quote messages or personas)"
# Their sentences are about machines. Of a database's, the first line is: the lines after it quote the row.
SPEAKABLE = (OSError, ImportError, ImproperlyConfigured, DatabaseProblem, MemoryError, RecursionError)


def spoken(error: BaseException) -> str:
    """The error's sentence when it cannot quote what somebody wrote, else a remark that it is hidden."""
    if not isinstance(error, SPEAKABLE) or isinstance(error, UnicodeError):
        return HIDDEN
    return str(error).strip().partition("\n")[0][:300]
