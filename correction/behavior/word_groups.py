"""Groups of words that are used alike, in many languages: what the detector knows of words that few training sentences hold.

They stand in `behavior_data/word_groups.txt`, where its README says how they were made: a group a line, each within a wider one and a
widest one.
"""

from __future__ import annotations

from functools import lru_cache

from correction.behavior.lexicon import DATA

WORD_GROUPS = DATA / "word_groups.txt"
UNKNOWN = ("_", "_", "_")
SHORTEST_BEGINNING = 4  # letters that an unknown word must share with a known one to be taken for a form of it
LONGEST_ENDING = 4  # letters at its end that it may differ in

Groups = tuple[str, str, str]  # widest, wider and own


class WordGroups:
    """Finds the groups of words.

    Args:
        text: A group a line: its widest and its wider group, and its words, separated by spaces. A line that begins with ``= `` lists the
            common words, one with ``# `` is passed over.

    Attributes:
        common: Words so frequent that each says more than its group.
    """

    def __init__(self, text: str) -> None:
        self._words: dict[str, Groups] = {}
        self._beginnings: dict[str, Groups] = {}
        lines = [line.split() for line in text.splitlines() if line.strip()]
        self.common = frozenset(word for line in lines if line[0] == "=" for word in line[1:])
        for number, (widest, wider, *words) in enumerate(line for line in lines if line[0] not in "=#"):
            for word in words:
                self._words[word] = (widest, wider, str(number))
        for word, groups in self._words.items():
            for length in range(max(SHORTEST_BEGINNING, len(word) - LONGEST_ENDING), len(word)):
                self._beginnings.setdefault(word[:length], groups)

    def of(self, word: str) -> Groups:
        """The groups of a word; those of another form of it where it has none; `UNKNOWN` where there is neither."""
        if found := self._words.get(word):
            return found
        for length in range(len(word), max(SHORTEST_BEGINNING, len(word) - LONGEST_ENDING) - 1, -1):
            if found := self._words.get(word[:length]) or self._beginnings.get(word[:length]):
                return found
        return UNKNOWN


@lru_cache(maxsize=1)
def word_groups() -> WordGroups:
    """The groups of the repository, read once per process."""
    return WordGroups(WORD_GROUPS.read_text(encoding="utf-8"))
