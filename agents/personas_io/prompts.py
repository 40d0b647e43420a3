"""A prompt file per character: the text is the system prompt, the file's name the agent's."""

from __future__ import annotations

import re
from typing import Any

from agents.personas_io.shape import slug_of

_HEADING = re.compile(r"^#[ \t]+(\S.*)$", re.MULTILINE)


def read(stem: str, text: str) -> dict[str, Any]:
    """The fields of a persona file. The first ``# Heading`` is the display name; without one, the file's name is."""
    heading = _HEADING.search(text)
    name = heading.group(1).strip().rstrip("#").strip() if heading else ""
    return {
        "slug": slug_of(stem),
        "display_name": (name or re.sub(r"[-_]+", " ", stem).strip().title())[:120],
        "system_prompt": text,
    }
