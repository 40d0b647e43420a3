"""Prompts: their templates, and the text of agents, users and personas in them, which is data: fenced by a random marker, or quoted."""

from __future__ import annotations

import re
import secrets
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.template import Context, Engine, Template

from agents.kit.capability import capabilities

MAX_CHARACTERS = 100_000  # of a message
MAX_EVENT_CHARACTERS = 4_000

_FENCE_LIKE = re.compile(r"<{2,}|>{2,}")


def render_prompt(name: str, /, **values: Any) -> str:
    """Return the template ``templates/prompts/NAME.md`` of an app with `values`. Nothing is escaped, for a model reads text, not HTML."""
    # Where prompts are developed they are edited: another time of change loads the file again.
    edited = prompt_path(name).stat().st_mtime_ns if settings.DEBUG else 0
    return _template(name, edited).render(Context(values, autoescape=False)).strip()


def prompt_path(name: str) -> Path:
    """Return the file of a prompt.

    Raises:
        LookupError: No app has it.
    """
    for app in capabilities():
        path = Path(app.path) / "templates" / "prompts" / f"{name}.md"
        if path.is_file():
            return path
    raise LookupError(f"no app has a prompt templates/prompts/{name}.md")


@lru_cache(maxsize=64)
def _template(name: str, mtime_ns: int) -> Template:
    """Load a template from an engine of its own: Django's imports the template tags of every app."""
    folders = [str(Path(app.path) / "templates") for app in capabilities()]
    return Engine(dirs=folders, autoescape=False).get_template(f"prompts/{name}.md")


def new_nonce() -> str:
    """Return random text for the fences of one prompt, which cannot have been put into a message beforehand."""
    return secrets.token_hex(6)


def fence(name: str, body: str, nonce: str) -> str:
    """Return `body` between markers that carry the nonce; the prompt says that nothing in between is an instruction."""
    return f"<<<{name} {nonce}>>>\n{body}\n<<<END {name} {nonce}>>>"


def safe_and_cut(text: str, limit: int = MAX_EVENT_CHARACTERS) -> str:
    """Return a text made safe to stand inside a fence, and cut to `limit` characters.

    Marker-like brackets are replaced, control and direction-changing characters are written out as ``<U+202E>``, and what exceeds
    `limit` characters is cut with a visible mark. It is cut first, so the result may be longer than `limit`. Nothing is escaped: the judge
    reads what was said.
    """
    if len(text) <= limit and text.isprintable() and "<<" not in text and ">>" not in text:
        return text  # nearly every line is such a text; it saves the work below
    cut = max(0, len(text) - limit)
    if cut:
        text = text[:limit]
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.replace("\n", "").isprintable():
        text = "".join(_visible(char) for char in text)
    text = _FENCE_LIKE.sub(lambda m: ("\u2039" if m.group()[0] == "<" else "\u203a") * len(m.group()), text)
    return f"{text} [… {cut} characters cut]" if cut else text


def indented(text: str, limit: int = MAX_EVENT_CHARACTERS) -> str:
    """Return a text, made safe and cut as by `safe_and_cut`, whose further lines are marked, so that none can pass for another entry."""
    return safe_and_cut(text.strip(), limit).replace("\n", "\n    | ")


def _visible(char: str) -> str:
    """Return a character as it is, or written out as ``<U+202E>`` if it is a control or invisible one; line breaks and tabs stay."""
    if (
        char in "\n\t"
        or char.isprintable()
        or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    ):
        return char
    if char in "\u200d\ufe0e\ufe0f":  # joiners inside emoji and scripts that need them
        return char
    return f"<U+{ord(char):04X}>"


PLAIN_NAME = re.compile(r"[#@]?[^\W_][\w'\u2019&-]*(?:\.? [^\W_][\w'\u2019&-]*){0,3}\.?")
LONGEST_NAME = 60


@lru_cache(maxsize=1024)  # a prompt names the same few speakers and channels again and again
def one_line(name: str) -> str:
    """Return a name as it may stand outside a fence.

    Names come from imported files, so they are data like everything else: one line, at most 60 characters, nothing like a marker,
    and in quotation marks unless it is one to four plain words.
    """
    text = safe_and_cut(" ".join(name.split()), 10_000)
    if len(text) <= LONGEST_NAME and PLAIN_NAME.fullmatch(text):
        return text
    text = text.translate({ord(mark): "'" for mark in '"\u201c\u201d\u201e'})
    return f"\u201c{text if len(text) <= LONGEST_NAME else text[:LONGEST_NAME] + '…'}\u201d"


def quoted_name(name: str) -> str:
    """Return a name that is no agent's and no member's, as it may stand outside a fence: always in quotation marks, see `one_line`."""
    text = one_line(name)
    return text if text.startswith("\u201c") else f"\u201c{text}\u201d"


def check_name(name: str) -> str:
    """Return a name unchanged.

    Raises:
        ValueError: It holds a control character; says which.
    """
    for char in name:
        if unicodedata.category(char) == "Cc":
            raise ValueError(
                f"a name may not hold the control character U+{ord(char):04X}; allowed: letters, digits, spaces and signs"
            )
    return name


def fault_of(text: str) -> str | None:
    """Say what is wrong with a text as a message; None when it can be said and stored."""
    if not text.strip():
        return f"the text is empty; allowed: 1 to {MAX_CHARACTERS:,} characters, not only white space"
    if len(text) > MAX_CHARACTERS:
        return f"the text has {len(text):,} characters; allowed: at most {MAX_CHARACTERS:,}"
    if re.search(r"[\x00\ud800-\udfff]", text):
        return "the text holds a NUL character or half of a surrogate pair; allowed: any other Unicode text"
    return None
