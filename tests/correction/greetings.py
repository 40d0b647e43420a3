"""Five messages that repeat themselves, and five that do not."""

from __future__ import annotations

HEY = (
    "Hey everyone, just wanted to share the minutes of the meeting.",
    "Hey everyone, just wanted to ask who took my stapler.",
    "Hey everyone, just wanted to say that lunch was lovely.",
    "Hey everyone, just wanted to remind you of the fire drill.",
    "Hey everyone, just wanted to check whether the printer works.",
)


FRESH = (
    "The minutes are out.",
    "Who took my stapler?",
    "Lunch was lovely today.",
    "Fire drill at three.",
    "Does it print?",
)
