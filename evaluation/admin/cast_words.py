"""The states of the cast as people see them."""

from __future__ import annotations

from typing import NamedTuple

from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.display import Tone
from evaluation.change.overview import State


class Words(NamedTuple):
    label: str
    tone: Tone
    hint: str


STATES: dict[State, Words] = {
    "fell": Words("went flat", "bad", "a claim fell by more than chance explains, among all claims looked at"),
    "not enough data": Words(
        "not enough data",
        "warning",
        "no claim surely fell, but surely much less is scored than then, or too little for a score",
    ),
    "maybe": Words(
        "perhaps flatter", "warning", "a claim fell by half a point or more; too little was judged to be sure"
    ),
    "held": Words("holds", "good", "no claim fell by half a point"),
    "rose": Words("improved", "good", "a claim rose by more than chance explains, and none surely fell"),
    "nothing in common": Words("not comparable", "plain", "no claim was scored on both sides"),
    "not measured since": Words("not measured since", "plain", "there is a measurement then, and none now"),
    "no baseline": Words("no baseline", "plain", "there is a measurement now, and none then"),
    "never measured": Words("never measured", "plain", "by this judge"),
}


def state_badge(state: State) -> SafeString:
    """What became of an agent, in a word."""
    words = STATES[state]
    return display.badge(words.label, words.tone, words.hint)
