"""Every setting that Plumbline reads from the environment, with the value in effect: what the console's page "Settings" shows.

Names, units and meanings stand in ``effective.yaml``. Of a secret only whether it is set leaves this module; of a URL what
`without_password` leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings

from project.environment import LOCAL_DIR, env

HIDDEN = "•••"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """One setting as it is now.

    Attributes:
        value: What is in effect, as text; of a secret only "set" or "not set".
        unit: What the value counts in, or which values there are; empty where it has none.
        origin: "set" (in the environment or ``.env``), "set by file" (``NAME_FILE``), or "default".
    """

    name: str
    value: str
    unit: str
    what: str
    origin: str


def groups() -> list[tuple[str, list[Effective]]]:
    """Return all settings, by subject, in the order of ``effective.yaml``."""
    return [
        (title, [_effective(name, **declaration) for name, declaration in rows.items()])
        for title, rows in known().items()
    ]


def known() -> dict[str, dict[str, dict[str, Any]]]:
    """Return what ``effective.yaml`` says: subject, name, then unit, what, secret and url."""
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def _effective(name: str, *, what: str, unit: str = "", secret: bool = False, url: bool = False) -> Effective:
    current = _ELSEWHERE[name]() if name in _ELSEWHERE else getattr(settings, name)
    value = _text(current)
    if secret:
        value = "set" if current else "not set"
    elif url and current:
        value = without_password(str(current))
    return Effective(name=name, value=value, unit=unit, what=what, origin=_origin(name))


def _origin(name: str) -> str:
    if f"{name}_FILE" in env.ENVIRON:
        return "set by file"
    return "set" if env.ENVIRON.get(name, "").strip() else "default"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def without_password(url: str) -> str:
    """Return scheme, host and path of `url`, with ``•••`` for the user. Of an http(s) address the path is left out, too.

    E.g. ``redis://•••@cache:6379/0``; with a query, which may hold a password, only ``redis://•••``; without ``://`` only ``•••``.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return HIDDEN
    if "?" in rest:
        return f"{scheme}://{HIDDEN}"
    who, at, host = rest.rpartition("@")  # the last one: a password may hold any character
    if scheme.lower() in ("http", "https"):
        host = host.partition("/")[0]  # a path can hold a token
    return f"{scheme}://{HIDDEN + at if who else ''}{host}"


def _database() -> str:
    return env.str("DATABASE_URL", default="") or f"sqlite:///{LOCAL_DIR / 'plumbline.sqlite3'}"


def _of_gunicorn(name: str) -> Callable[[], object]:
    def read() -> object:
        from project import gunicorn  # not needed by what serves nothing

        return getattr(gunicorn, name)

    return read


# What no setting of the same name holds.
_ELSEWHERE: dict[str, Callable[[], object]] = {
    "DATABASE_URL": _database,
    "DATABASE_POOLER": lambda: settings.DATABASES["default"].get("DISABLE_SERVER_SIDE_CURSORS", False),
    "DATABASE_POOL": lambda: settings.DATABASES["default"].get("OPTIONS", {}).get("pool", {}).get("max_size", 0),
    "TRUST_PROXY_HEADERS": lambda: settings.SECURE_PROXY_SSL_HEADER is not None,
    "IMPORT_MOST_MB": lambda: settings.IMPORT_MOST_BYTES / 1024**2,
    "WEB_BIND": _of_gunicorn("bind"),
    "WEB_PROCESSES": _of_gunicorn("workers"),
    "WEB_THREADS": _of_gunicorn("threads"),
}
