"""What the guards of a polish refuse and let through, and how long they take."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from scipy.stats import binomtest

from tests.agents.swarm.edits import (
    HARMFUL,
    HARMLESS,
    UNSEEN,
    Figures,
    edits_by_hand,
    example_messages,
    long_forms,
    measure,
    measure_file,
    rewritings,
)
from tests.bench.repetition import milliseconds


def guarding(files: Sequence[Path] = ()) -> Iterator[tuple[str, str, str]]:
    """The share of edits refused, by kind, and the time for a draft of 2,000 characters and its polish.

    Args:
        files: Edits of your own, see `measure_file`; they are measured alone.
    """
    from agents.swarm.guards import refusal

    for path in files:
        yield from _shares(path.name, measure_file(path))
    if files:
        return
    texts = example_messages()
    tried = measure(texts)
    for what, kinds, floor in (
        ("edits of the examples that change what is said", HARMFUL, ">= 99 %"),
        ("   with words of the text's own, not looked for", UNSEEN, "-"),
        ("edits of the examples that change nothing", HARMLESS, "<= 5 %"),
    ):
        yield what, _share(tried, kinds), floor
        for kind in kinds:
            yield f"   {kind}", _share(tried, [kind]), "-"
    by_hand = Figures()
    for changing, message, draft, edited in edits_by_hand():
        by_hand.add("change what is said" if changing else "change nothing", refusal(draft, edited, message=message))
    for draft, polished in rewritings():
        by_hand.add("free rewritings by an editor", refusal(draft, polished))
    yield from _shares("edits by hand", by_hand)
    draft = " ".join(random.Random(1).sample(texts, 30))[:2_000]
    polished = long_forms(draft, random.Random(1))
    median, most = milliseconds(partial(refusal, draft, polished))
    yield "guards on 2,000 characters", f"{median:.2f} ms (95 % within {most:.2f})", "<= 5 ms"
    median, _ = milliseconds(lambda: [refusal(text, f"{text} ") for text in texts], times=5)
    yield "   on a message of the examples", f"{median / len(texts) * 1_000:.0f} µs", "-"


def _shares(name: str, figures: Figures) -> Iterator[tuple[str, str, str]]:
    for kind in figures.tried:
        yield f"{name}: {kind}", _share(figures, [kind]), "-"


def _share(figures: Figures, kinds: Iterable[str]) -> str:
    """Return the share refused with its 95 % interval (Wilson) and the number tried."""
    tried = sum(figures.tried[kind] for kind in kinds)
    refused = sum(figures.refused[kind] for kind in kinds)
    interval = binomtest(refused, tried).proportion_ci(method="wilson")
    return f"{refused / tried:.1%} [{interval.low:.1%}, {interval.high:.1%}] of {tried:,}"
