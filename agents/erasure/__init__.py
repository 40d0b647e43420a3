"""Erasing a person: their words, quotes of them and their name go wherever they are kept; numbers stay."""

from agents.erasure.forgetting import Erased, forget, known_places
from agents.erasure.person import Person, Unknown, find_outsider, find_user
from agents.erasure.place import Place
from agents.erasure.words import ERASED, SHORTEST_QUOTE, Words

__all__ = [
    "ERASED",
    "SHORTEST_QUOTE",
    "Erased",
    "Person",
    "Place",
    "Unknown",
    "Words",
    "find_outsider",
    "find_user",
    "forget",
    "known_places",
]
