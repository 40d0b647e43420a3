"""What changed from one text to another, word by word."""

from __future__ import annotations

import difflib
import re
from collections import Counter

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin import display

MOST_WORDS = 8_000  # of both texts together
MOST_PAIRS = 300_000  # of equal words, one in each text: what the comparison's time grows with
_WORDS = re.compile(r"\w+\s*|[^\w\s]+\s*|\s+")  # with the space after them: spaces alone would be found everywhere


def word_diff(before: str, after: str) -> SafeString | None:
    """`after` with what it took out and put in marked; None when the texts are too long to compare word by word."""
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    words = ([piece.rstrip() for piece in old], [piece.rstrip() for piece in new])
    there = Counter(words[1])
    if len(old) + len(new) > MOST_WORDS or sum(there[word] for word in words[0]) > MOST_PAIRS:
        return None
    pieces = difflib.SequenceMatcher(None, words[0], words[1], autojunk=False).get_opcodes()
    return format_html(
        '<div class="pl-block pl-diff" dir="auto">{}</div>',
        format_html_join("", "{}", ((_piece("".join(old[a:b]), "".join(new[c:d]), kind),) for kind, a, b, c, d in pieces)),
    )  # fmt: skip


def _piece(old: str, new: str, kind: str) -> SafeString:
    if kind == "equal":
        return display.visible(new)
    gone = format_html("<del>{}</del>", display.visible(old)) if old else ""
    came = format_html("<ins>{}</ins>", display.visible(new)) if new else ""
    return format_html("{}{}", gone, came)
