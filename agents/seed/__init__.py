"""The sixteen example agents and their conversations, as data files, and the service that loads them."""

from enum import StrEnum
from functools import lru_cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


@lru_cache(maxsize=1)
def example_slugs() -> frozenset[str]:
    """Return the slugs of the example agents, by the names of their files."""
    return frozenset(path.stem for path in (FOLDER / "personas").glob("*.yaml"))


class Demo(StrEnum):
    """The names of what `manage.py demo` adds besides its numbered channels, and what removing the examples needs to recognize."""

    CHANNEL = "demo-front-desk"
    SCHEDULE = "demo-every-56-hours"
    INTERVENTION = "demo-many-apologies"
