"""A reply on its way: how far it passed, what is held back, and where its sentences end."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4, uuid5

from pydantic import BaseModel, Field

from agents.kit.text.fences import MAX_EVENT_CHARACTERS
from agents.kit.text.tokens import sentence_ends
from correction.gate.results import GateResult
from correction.models import GateDimensionResult, Outcome

MOST_CHECKS = 8  # of a reply in one round; where it brings more sentences, some are checked together
LONGEST_PART = 3_000  # characters that are new in one check: a judge is shown the last LONGEST_SHOWN of what it judges
LONGEST_SHOWN = MAX_EVENT_CHARACTERS
MOST_REMEMBERED = 50  # beginnings that passed, by their digests
SESSIONS = UUID("6d6f1e5c-8a3d-4f0e-9c55-2b1f0c9f2d10")  # namespace of the ids of their gate sessions
_COLUMNS = (
    *("dimension", "status", "score", "threshold", "passed", "reasoning", "recommendations", "reason", "judge"),
    *("proposition_id", "parts", "call_id", "duration_ms"),
)
CALL_FAILED = ("timeout", "overload", "error", "budget")


class StoredResult(BaseModel):
    """A gate's result as the row of a reply keeps it until it is logged."""

    dimensions: list[dict[str, Any]]
    judge: str
    duration_ms: int

    @classmethod
    def of(cls, result: GateResult) -> StoredResult:
        dimensions = []
        for row in result.dimensions:
            columns = {name: getattr(row, name) for name in _COLUMNS}
            columns["threshold"] = str(row.threshold)
            columns["status"] = str(row.status)
            dimensions.append(columns)
        return cls(dimensions=dimensions, judge=result.judge, duration_ms=result.duration_ms)

    def load(self) -> GateResult:
        """Return the result with rows that are not saved yet."""
        rows = tuple(GateDimensionResult(**columns) for columns in self.dimensions)
        return GateResult(dimensions=rows, judge=self.judge, duration_ms=self.duration_ms)

    def after(self, earlier: StoredResult | None) -> StoredResult:
        """Return this result, but with each dimension for which a call failed `earlier`: that text passed unjudged stays to be seen."""
        if earlier is None:
            return self
        unjudged = {row["dimension"]: row for row in earlier.dimensions if row["status"] in CALL_FAILED}
        dimensions = [unjudged.get(row["dimension"], row) for row in self.dimensions]
        return StoredResult(dimensions=dimensions, judge=self.judge, duration_ms=earlier.duration_ms + self.duration_ms)


class Whose(StrEnum):
    """Whose words a reply goes on with."""

    MODEL = "model"
    OURS = "ours"  # a sentence failed and was written again with all that follows


class ReplySoFar(BaseModel):
    """One choice of a call.

    Attributes:
        session: Id of its gate session.
        written: What the model wrote so far, where the reply has other words.
        rounds: How many rounds brought more of it.
        passed: The beginning that passed and may be out. From a rewriting on it is the whole reply.
        rest: What follows it, unfinished: it passed, and is held back.
        checked: Digests of beginnings that passed, the latest last.
        withheld: The unfinished rest where it failed: it is not returned.
        waited_ms: Milliseconds that its rounds waited for judging.
        result: Of the latest check that passed, to be logged with the whole reply.
        failure: Of the latest check that failed and was not followed by a rewriting.
        is_stopped: Whether the call ends with an error, because a sentence failed that cannot be changed.
        judged_from: Length of the beginning that failed and was said for want of a better one: what follows is judged without it.
        outcome: How the gate session ends where every attempt failed, all of which are stored; None: with `result`.
        best: Number of the attempt that is said then; None where none is.
    """

    session: UUID = Field(default_factory=uuid4)
    written: str = ""
    rounds: int = 0
    passed: str = ""
    rest: str = ""
    checked: list[str] = []
    withheld: str = ""
    whose: Whose = Whose.MODEL
    waited_ms: int = 0
    result: StoredResult | None = None
    failure: StoredResult | None = None
    is_stopped: bool = False
    judged_from: int = 0
    outcome: Outcome | None = None
    best: int | None = None

    @property
    def text(self) -> str:
        """Return the reply so far, with what is held back."""
        return self.passed + self.rest

    @property
    def raw(self) -> str:
        """Return what the model wrote so far."""
        return self.written or self.passed + self.rest + self.withheld

    def note_text(self, text: str) -> None:
        """Note what the model wrote so far."""
        if len(text) > len(self.raw):
            self.rounds += 1
        if self.whose == Whose.OURS:
            self.written = text
            return
        self.rest = text[len(self.passed) :]
        self.withheld = ""

    def note_place(self, end: int) -> None:
        """Note that the model's text passed up to this place."""
        text = self.text
        self.passed = text[:end]
        self.rest = text[end:]

    def force(self, end: int, result: GateResult | None = None) -> None:
        """Say the model's text up to this place although it failed; what follows is judged without it.

        Args:
            result: Its verdict, where it is not stored yet.
        """
        self.note_place(end)
        self.judged_from = end
        if result is not None:
            self.failure = StoredResult.of(result)

    def withhold(self, result: GateResult, *, from_place: int) -> None:
        """Keep back what follows this place.

        Args:
            result: Its verdict: it failed.
        """
        text = self.text
        self.withheld = text[from_place:]
        self.rest = text[len(self.passed) : from_place]
        self.failure = StoredResult.of(result)

    def say(self, text: str) -> None:
        """Say another text than the model's from now on."""
        self.written = self.raw
        self.passed = text
        self.rest = ""
        self.withheld = ""
        self.whose = Whose.OURS

    def has_passed(self, beginning: str) -> bool:
        """Return whether this beginning of the reply was checked and passed."""
        return not beginning.strip() or digest_of(beginning) in self.checked

    def note_passed(self, beginning: str, result: StoredResult) -> None:
        """Remember that a beginning passed."""
        self.checked = [*self.checked, digest_of(beginning)][-MOST_REMEMBERED:]
        self.result = result.after(self.result)


def digest_of(text: str) -> str:
    """Return what tells a text from others, without regard to white space at its end."""
    return hashlib.blake2b(text.rstrip().encode(), digest_size=12).hexdigest()


def match_replies(texts: Sequence[str], replies: Sequence[ReplySoFar], *, work_id: str) -> list[ReplySoFar]:
    """Return the reply that each text belongs to, a new one where it is none that is known.

    LiteLLM sends the texts by the order of the choices, but only of those that have a text yet: where there are as many as replies, the
    order says which are which, else how they begin.

    Args:
        work_id: Tells the call from all others; the ids of new gate sessions are made of it, so that a round that comes twice makes none.
    """
    if len(texts) == len(replies) and all(_belong(text, reply) for text, reply in zip(texts, replies, strict=True)):
        return list(replies)
    free = sorted(replies, key=lambda reply: -len(reply.raw))  # stable: equal ones stay in their order
    matched: list[ReplySoFar] = []
    number_of_replies = len(replies)
    for text in texts:
        later = [reply for reply in free if text.startswith(reply.raw)]
        earlier = []
        if len(texts) <= len(replies):
            earlier = [reply for reply in free if reply.raw.startswith(text)]  # a round that came late, or twice
        reply = next(iter([*later, *earlier]), None)
        if reply is None:
            number_of_replies += 1
            reply = ReplySoFar(session=uuid5(SESSIONS, f"{work_id} {number_of_replies}"))
        else:
            free.remove(reply)
        matched.append(reply)
    return matched


def _belong(text: str, reply: ReplySoFar) -> bool:
    """Return whether a text may be a reply's, from this round or an earlier one."""
    return text.startswith(reply.raw) or reply.raw.startswith(text)


def new_ends(passed: str, text: str) -> list[int]:
    """Return the positions in a growing text, rising, up to which it is to be checked: ends of sentences behind `passed`.

    Where there are more than MOST_CHECKS, sentences are put together, so that all parts have about as many; a part that is too long to be
    shown is cut.
    """
    ends = [end for end in sentence_ends(text, growing=True) if text[len(passed) : end].strip()]
    ends_with_cuts = _with_cuts([*_at_most_checked(ends), len(text)], start=len(passed), ends=ends, text=text)
    return ends_with_cuts[:-1]  # the last is the end of what is unfinished


def whole_ends(passed: str, text: str) -> list[int]:
    """Return the same for a text that is complete; the last position is its end."""
    ends = [end for end in sentence_ends(text) if text[len(passed) : end].strip() and text[end:].strip()]
    return _with_cuts(_at_most_checked([*ends, len(text)]), start=len(passed), ends=ends, text=text)


def _at_most_checked(ends: list[int]) -> list[int]:
    """Return at most MOST_CHECKS of the positions, the last among them."""
    if len(ends) <= MOST_CHECKS:
        return ends
    return [ends[(number + 1) * len(ends) // MOST_CHECKS - 1] for number in range(MOST_CHECKS)]


def _with_cuts(positions: Sequence[int], *, start: int, ends: Sequence[int], text: str) -> list[int]:
    """Return the positions, and others between them where one is more than LONGEST_PART behind the one before.

    Args:
        start: Where the first part begins.
        ends: Ends of sentences, where a long part is cut first; else it is cut at white space, else anywhere.
    """
    cut_positions: list[int] = []
    for cut in positions:
        while cut - start > LONGEST_PART:
            start = _cut_position(start, ends, text)
            cut_positions.append(start)
        cut_positions.append(cut)
        start = cut
    return cut_positions


def _cut_position(start: int, ends: Sequence[int], text: str) -> int:
    """Return where a long part that begins at `start` is cut."""
    most = start + LONGEST_PART
    before = [end for end in ends if start < end <= most]
    if before:
        return before[-1]
    space = text.rfind(" ", start + 1, most)
    return space if space > 0 else most


def excerpt_of(text: str) -> str:
    """Return what a judge is shown of a text: its end where it is too long, for the rest was judged before."""
    text = text.strip()
    if len(text) <= LONGEST_SHOWN:
        return text
    left_out = len(text) - LONGEST_SHOWN + 100
    return f"[… {left_out} characters before this]\n{text[left_out:]}"
