"""The texts of `templates/prompts/turn/`, rendered as plain text."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.template import Context, Engine, Template


def render(name: str, /, **values: Any) -> str:
    """The template ``prompts/turn/NAME.md`` with `values`; nothing is escaped, for a model reads text, not HTML."""
    path = Path(settings.BASE_DIR / "templates" / "prompts" / "turn" / f"{name}.md")
    return _template(name, path.stat().st_mtime_ns).render(Context(values, autoescape=False)).strip()


@lru_cache(maxsize=32)
def _template(name: str, mtime_ns: int) -> Template:
    engine = Engine(dirs=[str(settings.BASE_DIR / "templates")], autoescape=False)
    return engine.get_template(f"prompts/turn/{name}.md")
