"""Decide what to do about a request that can be understood in several ways, or that lacks something an answer needs. Pure.

One question a turn at most, and no question twice. A question is asked where a wrong answer is likely to cost (risk above `RISK`), or where
required information is missing. Otherwise an assumption is made, and labelled. Where required information is still missing after
the question, the reply says what it cannot answer; it is never assumed. The next message settles a question, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agents.models import DialogState
from agents.swarm.calibration import Calibration
from agents.text.tokens import tokenize

RISK = 0.30
SAME = 0.7  # share of words two questions have in common when they count as the same
MOST_ASKED = 50  # questions remembered of a conversation, and assumptions


@dataclass(frozen=True, slots=True)
class Clarify:
    """Ask this and nothing else. `missing` names the required information asked for, if the question is for that."""

    question: str
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assume:
    """Answer, and say that this is assumed."""

    text: str


@dataclass(frozen=True, slots=True)
class Cannot:
    """Say what cannot be answered without `missing`, which was asked for before."""

    what: str
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nothing:
    """Answer."""


Decision = Clarify | Assume | Cannot | Nothing


def decide(calibration: Calibration, state: DialogState, message: str) -> Decision:
    """What to do about this message.

    Args:
        calibration: Of this message.
        state: With the question that waits for its answer (`pending`), and those asked before (`asked`).
        message: Its text.
    """
    question, missing = one_question(calibration.question), tuple(dict.fromkeys(calibration.missing))
    waiting: Mapping[str, Any] = state.pending or {}
    if missing:
        earlier = {_key(name) for entry in (*state.asked, waiting) for name in entry.get("missing", ())}
        was_asked = bool(waiting.get("missing")) or any(_key(name) in earlier for name in missing)
        text = question or f"What I need to know first: {' and '.join(missing)}?"
        if was_asked or _asked(text, state) or _repeats(text, [message]):
            return Cannot(calibration.cannot or f"Without {' and '.join(missing)} I cannot answer that.", missing)
        return Clarify(text, missing)
    if calibration.risk > RISK and question and not waiting and not _asked(question, state):
        return Clarify(question)
    return Assume(calibration.assumption) if calibration.assumption else Nothing()


def settle(state: DialogState, decision: Decision, *, position: int, message: str) -> None:
    """Note in the state what was decided about the message at `position`. Does not save it."""
    state.pending = {}
    if isinstance(decision, Clarify):
        asked = {"question": decision.question, "missing": list(decision.missing), "position": position}
        state.pending = asked
        state.asked = [*state.asked, asked][-MOST_ASKED:]
    elif isinstance(decision, Assume):
        entry = {"text": decision.text, "position": position, "quote": message[:300], "pinned": False, "by": "model"}
        others = [one for one in state.assumptions if one.get("text") != decision.text]
        state.assumptions = [*others, entry][-MOST_ASKED:]


def one_question(text: str) -> str:
    """A text up to its first question mark: a calibrator that asks two things at once asks the first."""
    return re.split(r"(?<=[?\uff1f\u061f])", text, maxsplit=1)[0].strip()


def _asked(question: str, state: DialogState) -> bool:
    return _repeats(question, (str(entry.get("question", "")) for entry in state.asked))


def _repeats(question: str, others: Iterable[str]) -> bool:
    """Whether it is one of these in nearly the same words."""
    words = set(tokenize(question))
    for other in others:
        theirs = set(tokenize(other))
        if words and len(words & theirs) >= SAME * len(words | theirs):
            return True
    return False


def _key(name: str) -> str:
    return " ".join(tokenize(name))
