"""The second collapse: which of the ideas listed over all parts of a conversation are the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agents.llm import Label, LLMRequest
from agents.text.tokens import tokenize
from evaluation.execution import Session
from evaluation.idea_requests import collapse_request
from evaluation.models import Idea

BATCH = 60  # new ideas compared in one call with all that are known


class Collapse:
    """Goes through a list of ideas in order: literal repetitions are found here, the others by the judge, batch after batch.

    Ideas of a batch are compared with each other and with all distinct ones before it, so that no pair goes unlooked at.
    """

    def __init__(self, ideas: Sequence[Idea]) -> None:
        self._ideas = {idea.pk: idea for idea in ideas}
        self.same: dict[int, int] = {}
        self._known: list[int] = []
        self._rest: list[int] = []
        self._asked: list[int] = []
        self._failures = 0
        first: dict[tuple[str, ...], int] = {}
        for idea in ideas:
            original = first.setdefault(tuple(tokenize(idea.idea)) or (idea.idea,), idea.pk)
            if original != idea.pk:
                self.same[idea.pk] = original
            else:
                self._rest.append(idea.pk)

    def request(self, name: str, label: Label, session: Session) -> LLMRequest | None:
        """The next question; None when every idea was looked at."""
        if not self._known and len(self._rest) <= 1:
            self._known += self._rest
            self._rest = []
        if not self._rest:
            return None
        self._asked = self._rest[:BATCH]
        shown = [self._ideas[pk] for pk in (*self._known, *self._asked)]
        return collapse_request(
            name=name,
            ideas=[(idea.idea, idea.description) for idea in shown],
            known=max(1, len(self._known)),
            label=label,
            model=session.run.judge,
            nonce=session.nonce,
            max_tokens=(1000 + 40 * len(self._asked)) * (1 + self._failures),
        )

    def may_ask_again(self, in_passing: bool) -> bool:
        """Whether a question that was not answered is worth a second try: once, where the failure may pass."""
        self._failures += 1
        return in_passing and self._failures == 1

    def take(self, places: Mapping[int, int]) -> None:
        """Take in an answer: places in the list shown, a repetition to the idea it repeats."""
        shown = [*self._known, *self._asked]
        for later, first in sorted(places.items()):
            if later < len(self._known):
                continue  # both are known to differ
            self.same[shown[later]] = shown[first]
        self._known += [pk for pk in self._asked if pk not in self.same]
        self._rest = self._rest[len(self._asked) :]
        self._failures = 0

    def store(self) -> None:
        """Write what is the same as what; a chain of repetitions points to its first idea."""
        for pk, idea in self._ideas.items():
            original = pk
            while original in self.same:
                original = self.same[original]
            idea.same_as_id = None if original == pk else original
        Idea.objects.bulk_update(list(self._ideas.values()), ["same_as"], batch_size=500)
