"""Names as they may stand in a prompt outside of a fence."""

from __future__ import annotations

import re
from functools import lru_cache

from agents.text.fences import neutral

PLAIN_NAME = re.compile(r"[#@]?[^\W_][\w'\u2019&-]*(?:\.? [^\W_][\w'\u2019&-]*){0,3}\.?")
LONGEST_NAME = 60


@lru_cache(maxsize=1024)  # a prompt names the same few speakers and channels again and again
def one_line(name: str) -> str:
    """A name as it may stand outside a fence.

    Names come from imported files, so they are data like everything else: one line, at most 60 characters, nothing like a marker,
    and in quotation marks when it is more than a few plain words.
    """
    text = neutral(" ".join(name.split()), 10_000)[0]
    if len(text) <= LONGEST_NAME and PLAIN_NAME.fullmatch(text):
        return text
    text = text.translate({ord(mark): "'" for mark in '"\u201c\u201d\u201e'})
    return f"\u201c{text if len(text) <= LONGEST_NAME else text[:LONGEST_NAME] + '…'}\u201d"
