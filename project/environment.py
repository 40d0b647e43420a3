"""What the environment (and ``.env``) says, and the kind of place this is: somebody's machine, or production."""

from pathlib import Path
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent
LOCAL_DIR = BASE_DIR / ".local"


class Environment(environ.FileAwareEnv):  # type: ignore[misc]  # untyped
    """The environment, in which ``NAME_FILE`` names a file that holds NAME: secrets come so into containers."""

    def get_value(self, var: str, *args: Any, **kwargs: Any) -> Any:
        try:
            value = super().get_value(var, *args, **kwargs)
        except (OSError, UnicodeDecodeError) as error:
            raise ImproperlyConfigured(f"{var}_FILE: {getattr(error, 'strerror', None) or 'not a text file'}") from None
        # An editor ends a file with a newline; nobody means it.
        return value.rstrip("\r\n") if isinstance(value, str) and f"{var}_FILE" in self.ENVIRON else value


env = Environment()
env.smart_cast = False
if (BASE_DIR / ".env").is_file():
    env.read_env(str(BASE_DIR / ".env"))

DEBUG = env.bool("DEBUG", default=False)
LOCAL_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=LOCAL_HOSTS)
PRODUCTION = env.bool("PRODUCTION", default=not DEBUG and bool(set(ALLOWED_HOSTS) - {*LOCAL_HOSTS, "testserver"}))


def number(name: str, default: float) -> float:
    """A number from the environment, or a sentence that names it."""
    raw = env.str(name, default="")
    try:
        return float(raw) if raw else default
    except ValueError:
        raise ImproperlyConfigured(f"{name} is {raw!r}; allowed: a number (default {default:g})") from None
