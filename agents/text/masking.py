"""Names taken out of a text, so that what is left is voice."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

MASK = "\u25a1"  # □

_MENTION = re.compile(r"@[\w.\-]*\w")
_WORD = re.compile(r"[^\W_]+")
# Names in these scripts stand without spaces around them, or with particles and articles attached.
_HAN_OR_KANA = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_ATTACHED = re.compile(rf"[{_HAN_OR_KANA}\u0590-\u06ff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\uac00-\ud7af]")
_HAN = re.compile(rf"[{_HAN_OR_KANA}]{{3,}}")


class NameMask:
    """Replaces names by □, whoever says them, whatever the case.

    Masked are every word of two letters or more of the names given (so first and family names alone, and whole names), also with a
    plural or possessive s, and every ``@mention``. In scripts that write without spaces or attach particles (Chinese, Japanese,
    Korean, Thai, Arabic, Hebrew) a name is masked wherever it stands, and of Han names of three characters or more also the first two
    and the last two. Nicknames and misspellings that were not given are not known.
    """

    def __init__(self, names: Iterable[str]) -> None:
        parts = {part for name in names for part in _WORD.findall(_folded(name)) if len(part) >= 2}
        attached = {part for part in parts if _ATTACHED.search(part)}
        attached |= {piece for part in attached if _HAN.fullmatch(part) for piece in (part[:2], part[-2:])}
        self._words = parts - attached
        longest_first = sorted(attached, key=lambda part: (-len(part), part))
        self._attached = re.compile("|".join(map(re.escape, longest_first))) if attached else None

    def __call__(self, text: str) -> str:
        """The text, NFC-normalised, with every name replaced."""
        text = _MENTION.sub(MASK, unicodedata.normalize("NFC", text))
        if self._attached is not None:
            text = self._attached.sub(MASK, text)
        return _WORD.sub(self._word, text)

    def _word(self, match: re.Match[str]) -> str:
        word = match.group().casefold()
        return MASK if word in self._words or (word.endswith("s") and word[:-1] in self._words) else match.group()


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
