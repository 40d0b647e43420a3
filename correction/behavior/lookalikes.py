"""Texts by what they look like: nobody gets around a name or a pattern with a letter of another script, or one that is not seen."""

from __future__ import annotations

import unicodedata

# Letters of other scripts, and what Latin letter each looks like.
_LOOKS_LIKE = str.maketrans(
    "авсԁеёһіїјкӏмнорԛгѕтцԝхуүАВСЕНІЈКМОРЅТХУαβεικνορτυχγΑΒΕΖΗΙΚΜΝΟΡΤΥΧɑɡıłøϲſ",
    "abcdeehiijklmhopqrstuwxyyABCEHIJKMOPSTXYabeikvoptuxyABEZHIKMNOPTYXagilocs",
)
_DIGITS = str.maketrans("01", "ol")


def without_unseen(text: str) -> str:
    """Without accents, invisible and direction marks, and with one form of each letter; look-alikes become Latin letters."""
    decomposed = unicodedata.normalize("NFKD", text)
    kept = "".join(char for char in decomposed if unicodedata.category(char) not in ("Mn", "Cf"))
    return unicodedata.normalize("NFKC", kept.translate(_LOOKS_LIKE))


def skeleton(name: str) -> str:
    """What names are compared by where one must not pass for another: letters and digits as they look, without case.

    A name without any is what it is, but for its case.
    """
    folded = without_unseen(without_unseen(name).casefold())
    return "".join(char for char in folded if char.isalnum()).translate(_DIGITS) or folded
