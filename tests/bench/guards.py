"""What the guards of a polish refuse and let through, on the example conversations, and how long they take."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

from tests.agents.swarm.edits import HARMFUL, HARMLESS, example_messages, long_forms, measure, rewritings
from tests.bench.repetition import milliseconds


def guarding() -> Iterator[tuple[str, str, str]]:
    """The share of edits refused, by kind, and the time for a draft of 2,000 characters and its polish."""
    from agents.swarm.guards import refusal

    texts = example_messages()
    figures = measure(texts)
    for what, kinds, floor in (("change what is said", HARMFUL, ">= 99 %"), ("change nothing", HARMLESS, "<= 5 %")):
        tried = sum(figures.tried[kind] for kind in kinds)
        yield f"edits that {what}, refused", f"{figures.share(kinds):.2%} of {tried:,}", floor
        for kind in kinds:
            yield f"   {kind}", f"{figures.share([kind]):.2%} of {figures.tried[kind]:,}", "-"
    pairs = rewritings()
    used = sum(not refusal(draft, polished) for draft, polished in pairs)
    yield "an editor's rewritings, used", f"{used / len(pairs):.0%} of {len(pairs)}", "-"
    draft = " ".join(random.Random(1).sample(texts, 30))[:2_000]
    polished = long_forms(draft, random.Random(1))
    median, most = milliseconds(partial(refusal, draft, polished))
    yield "guards on 2,000 characters", f"{median:.2f} ms (95 % within {most:.2f})", "<= 5 ms"
    median, _ = milliseconds(lambda: [refusal(text, f"{text} ") for text in texts], times=5)
    yield "   on a message of the examples", f"{median / len(texts) * 1_000:.0f} µs", "-"
