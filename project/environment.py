"""What the environment (and ``.env``) says, and whether this is a personal machine or production."""

from pathlib import Path
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent
LOCAL_DIR = BASE_DIR / ".local"
TRUE = ("true", "on", "ok", "y", "yes", "1")  # as django-environ reads them
FALSE = ("false", "off", "n", "no", "0")


class Environment(environ.FileAwareEnv):  # type: ignore[misc]  # untyped
    """The environment, in which ``NAME_FILE`` names a file that holds NAME: secrets come so into containers."""

    def get_value(self, var: str, *args: Any, **kwargs: Any) -> Any:
        try:
            value = super().get_value(var, *args, **kwargs)
        except (OSError, UnicodeDecodeError) as error:
            raise ImproperlyConfigured(f"{var}_FILE: {getattr(error, 'strerror', None) or 'not a text file'}") from None
        # An editor ends a file with a newline.
        return value.rstrip("\r\n") if isinstance(value, str) and f"{var}_FILE" in self.ENVIRON else value

    def list(self, *args: Any, **kwargs: Any) -> Any:
        """Return what stands between the commas, without the spaces around it."""
        values = super().list(*args, **kwargs)
        return values and [value.strip() if isinstance(value, str) else value for value in values]


env = Environment()
env.smart_cast = False
if (BASE_DIR / ".env").is_file():
    env.read_env(str(BASE_DIR / ".env"))


def flag(name: str, default: bool) -> bool:
    """Read yes or no from the environment; any other word is an error that names it, where django-environ takes it for no."""
    raw = env.str(name, default="").strip().lower()
    if raw not in (*TRUE, *FALSE, ""):
        raise ImproperlyConfigured(
            f"{name} is {raw!r}; allowed: {', '.join((*TRUE, *FALSE))} (default {str(default).lower()})"
        )
    return raw in TRUE if raw else default


DEBUG = flag("DEBUG", default=False)
LOCAL_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=LOCAL_HOSTS)
PRODUCTION = flag("PRODUCTION", default=not DEBUG and bool(set(ALLOWED_HOSTS) - {*LOCAL_HOSTS, "testserver"}))
# What is left to a default that serves one person on one machine.
NOT_SET = [name for name in ("SECRET_KEY", "DATABASE_URL") if not env.str(name, default="")]


def number(name: str, default: float) -> float:
    """Read a number from the environment; anything else is an error that names it."""
    raw = env.str(name, default="")
    try:
        return float(raw) if raw else default
    except ValueError:
        raise ImproperlyConfigured(f"{name} is {raw!r}; allowed: a number (default {default:g})") from None
