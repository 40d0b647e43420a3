"""Decide what to do about a request that can be understood in several ways, or that lacks something an answer needs. Pure.

One question a turn at most, and no question twice. A question is asked where required information is missing, or where a wrong answer is
likely to cost (risk above `RISK`) and the last question is more than `QUIET_TURNS` turns ago. Else an assumption is made, and labelled.
Where required information is still missing after the question, the reply says what it cannot answer; it is never assumed. The next
message settles a question, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from agents.kit.text.tokens import tokenize
from agents.swarm.calibration import Calibration
from agents.swarm.models import DialogState

RISK = 0.30
QUIET_TURNS = 3  # after a question, in which only required information is asked for
SAME = 0.7  # share of words two questions have in common when they count as the same
MOST_ASKED = 50  # questions remembered of a conversation


class Decision(BaseModel):
    """What to do about a message.

    Attributes:
        kind: Ask `text` and nothing else; answer and say that `text` is assumed; say `text`, what cannot be answered; or answer.
        missing: The required information that is asked for, or was asked for before and is missing still.
    """

    model_config = ConfigDict(frozen=True)

    kind: Literal["clarify", "assume", "cannot", "nothing"] = "nothing"
    text: str = ""
    missing: tuple[str, ...] = ()


def decide(calibration: Calibration, state: DialogState, message: str) -> Decision:
    """What to do about this message.

    Args:
        calibration: Of this message.
        state: Before this message is counted; with the question that waits for its answer (`pending`), and those asked before (`asked`).
        message: Its text.
    """
    question, missing = one_question(calibration.question), tuple(dict.fromkeys(calibration.missing))
    waiting: Mapping[str, Any] = state.pending or {}
    if missing:
        earlier = {_key(name) for entry in (*state.asked, waiting) for name in entry.get("missing", ())}
        was_asked = bool(waiting.get("missing")) or any(_key(name) in earlier for name in missing)
        text = question or f"What I need to know first: {' and '.join(missing)}?"
        if was_asked or _asked(text, state) or _repeats(text, [message]):
            cannot = calibration.cannot or f"Without {' and '.join(missing)} I cannot answer that."
            return Decision(kind="cannot", text=cannot, missing=missing)
        return Decision(kind="clarify", text=text, missing=missing)
    if calibration.risk > RISK and question and not _asked_lately(state) and not _asked(question, state):
        return Decision(kind="clarify", text=question)
    return Decision(kind="assume", text=calibration.assumption) if calibration.assumption else Decision()


def settle(state: DialogState, decision: Decision, *, position: int) -> None:
    """Note in the state, which counts the message at `position` already, whether a question waits now. Does not save it."""
    state.pending = {}
    if decision.kind == "clarify":
        question = {
            "question": decision.text,
            "missing": list(decision.missing),
            "position": position,
            "turn": state.turn,
        }
        state.pending = question
        state.asked = [*state.asked, question][-MOST_ASKED:]


def one_question(text: str) -> str:
    """A text up to its first question mark: a calibrator that asks two things at once asks the first."""
    return re.split(r"(?<=[?\uff1f\u061f])", text, maxsplit=1)[0].strip()


def _asked_lately(state: DialogState) -> bool:
    """Whether a question was asked within the last turns before the one that begins."""
    last = max((entry.get("turn", 0) for entry in state.asked), default=0)
    return bool(last) and state.turn < last + QUIET_TURNS


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
