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
from agents.swarm.calibration import MessageCalibration
from agents.swarm.models import DialogState

RISK = 0.30
QUIET_TURNS = 3  # after a question, in which only required information is asked for
SAME_WORDS = 0.7  # share of words two questions have in common when they count as the same
MOST_REMEMBERED = 50  # questions remembered of a conversation


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


def decide(calibration: MessageCalibration, state: DialogState, message: str) -> Decision:
    """Return what to do about a message.

    Missing information decides first. Else a question is asked where the risk is high, none was asked in the last turns and not this one
    before; else an assumption is stated where there is one; else the agent just answers.

    Args:
        calibration: Of this message.
        state: Before this message is counted; with the question that waits for its answer (`pending`), and those asked before (`asked`).
        message: Its text.
    """
    if calibration.missing:
        return _about_missing(calibration, state, message)
    question = first_question(calibration.question)
    is_risky = calibration.risk > RISK
    if is_risky and question and not _asked_lately(state) and not _was_asked(question, state):
        return Decision(kind="clarify", text=question)
    if calibration.assumption:
        return Decision(kind="assume", text=calibration.assumption)
    return Decision()


def _about_missing(calibration: MessageCalibration, state: DialogState, message: str) -> Decision:
    """Ask for required information; where that was done before, say what cannot be answered without it.

    It also counts as done where the person's own message is nearly the question that would be asked.
    """
    missing = tuple(dict.fromkeys(calibration.missing))
    names = " and ".join(missing)
    question = first_question(calibration.question) or f"What I need to know first: {names}?"
    if _was_asked_for(missing, state) or _was_asked(question, state) or _in_nearly_the_same_words(question, message):
        return Decision(
            kind="cannot", text=calibration.cannot or f"Without {names} I cannot answer that.", missing=missing
        )
    return Decision(kind="clarify", text=question, missing=missing)


def settle(state: DialogState, decision: Decision, *, position: int) -> None:
    """Note in the state, without saving it, whether a question waits now, and remember it among the last that were asked.

    A question that waited before is settled, whatever this message holds.

    Args:
        state: Counts the message at `position` already.
    """
    state.pending = {}
    if decision.kind == "clarify":
        question = {
            "question": decision.text,
            "missing": list(decision.missing),
            "position": position,
            "turn": state.turn,
        }
        state.pending = question
        state.asked = [*state.asked, question][-MOST_REMEMBERED:]


def first_question(text: str) -> str:
    """Return a text up to its first question mark: a calibrator that asks two things at once asks the first."""
    return re.split(r"(?<=[?\uff1f\u061f])", text, maxsplit=1)[0].strip()


def _asked_lately(state: DialogState) -> bool:
    """Return whether a question was asked within the last turns before the one that begins."""
    last = max((question.get("turn", 0) for question in state.asked), default=0)
    return bool(last) and state.turn < last + QUIET_TURNS


def _was_asked_for(missing: Iterable[str], state: DialogState) -> bool:
    """Return whether any of this information was asked for before, or a question for required information, even other, still waits."""
    waiting: Mapping[str, Any] = state.pending or {}
    if waiting.get("missing"):
        return True
    asked_for: set[str] = set()
    for question in state.asked:
        asked_for.update(_normalized(name) for name in question.get("missing", ()))
    return any(_normalized(name) in asked_for for name in missing)


def _was_asked(question: str, state: DialogState) -> bool:
    return any(_in_nearly_the_same_words(question, str(earlier.get("question", ""))) for earlier in state.asked)


def _in_nearly_the_same_words(question: str, other: str) -> bool:
    words = set(tokenize(question))
    other_words = set(tokenize(other))
    return bool(words) and len(words & other_words) >= SAME_WORDS * len(words | other_words)


def _normalized(name: str) -> str:
    """Return a name of information for comparing: case and punctuation aside."""
    return " ".join(tokenize(name))
