"""Forms of a sentence that leave little doubt: the patterns beside the linear model, over kinds of words, so for many languages.

They were written looking at the training sentences. A form stays while clearly more than nine of ten messages that fit it are requests.
"""

from __future__ import annotations

import re

from correction.behavior.features import kinds_of
from correction.behavior.lexicon import tokens

_NOT_OF_OURS = re.compile(r" (?:taskobject|taskverb|said|they|person|lately|supposing|prefer|unasked|praise|K)(?: |$)")
_ASKING = r"^\^ (?:(?:please|asking|maybe|lasting|always|often|,|bit) )*"
_OPENING = r"^\^ (?:_ , )?"
_COMMANDING = r"^\^ (?:(?:please|lasting|always|often|,) )*"
_END = r"(?: (?:please|with|[.?]|always|lasting|often|,))*$"
FORMS: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern)
    for name, pattern in {
        "asks to stop": _OPENING + _ASKING[4:] + r"(?:stop|less)(?: _| this| your| with){0,2} (?:talk|conduct|Q)\b",
        "forbids": _ASKING + r"(?:not|never) (?:write|talk)(?: _| this| your){0,2} (?:conduct|with|me|Q)\b",
        "asks to be": _ASKING + r"be(?: bit| more| less| too| always)* (?:comparative|quality)(?: [.]| with| please|$)",
        "asks to use": r"^\^ (?:(?:please|maybe|,) )*(?:asking|wish) (?:please )?write(?: bit| more| less)? "
        r"conduct(?! ,| conduct| _ quality)\b(?!.* not\b)",
        "from now on": r"^\^ lasting (?:, )?(?:(?:please|always|never|often) )*(?:write|talk|be|stop|less|more|not)\b(?! _ Q)",
        "wants more or less": _COMMANDING
        + r"(?:more|less|not|comparative|stop|bit less|bit more|bit comparative) conduct"
        + _END,
        "finds too much": r"^\^ (?:_ )?your conduct (?:_ |keeps |this )*too (?:quality|comparative|more|_)" + _END,
        "says what one does too much": r"^\^ (?:_ , )?(?:keeps|you)(?: talk| write| are| _)? too (?:quality|more|conduct|_ conduct)"
        + _END,
    }.items()
}
_LIKE_SOMEBODY = re.compile(r"^\^ (?:(?:please|maybe|lasting|,) )*asking (?:talk|write) likea(?: _| person)?" + _END)
_CALL_ME = re.compile(
    r"^(?:(?:please|pls|just|and|so|oh|hey|ok),? )*(?:call|address) me (?:as )?"
    r"(?!(?:a|an|the|when|if|once|back|later|tomorrow|tonight|at|on|in|by|after|before|crazy|old|maybe|again|asap|now|today|first|please|"
    r"soon|any|paranoid)\b)[\w'-]+(?: [\w'-]+){0,2}(?:,? (?:please|ok|thanks))?[.!]*$"
)


def clear_form(part: str) -> str:
    """The name of the form that a message, or a part of one (`features.parts`), fits; empty where it fits none."""
    if _CALL_ME.search(part):
        return "says what to be called"
    kinds = " ".join(kinds_of(tokens(part)))
    if _LIKE_SOMEBODY.search(kinds):
        return "asks to speak like somebody"
    if _NOT_OF_OURS.search(kinds):
        return ""
    return next((name for name, form in FORMS.items() if form.search(kinds)), "")
