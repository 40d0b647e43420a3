"""Synthetic conversations (AC-6.5.2): agents played through situations, so that there is something to measure before anybody talks
to them.
"""

from __future__ import annotations

from evaluation.rehearsal.estimate import PlayEstimate, estimate_play
from evaluation.rehearsal.little_speech import ENOUGH, has_little_speech, play_where_little
from evaluation.rehearsal.playing import MOST_REPEATS, play
from evaluation.rehearsal.situations import Situation, load_situations
from evaluation.rehearsal.specs import play_spec
from evaluation.rehearsal.values import Conversation, Play, plays_json

__all__ = [
    "ENOUGH",
    "MOST_REPEATS",
    "Conversation",
    "Play",
    "PlayEstimate",
    "Situation",
    "estimate_play",
    "has_little_speech",
    "load_situations",
    "play",
    "play_spec",
    "play_where_little",
    "plays_json",
]
