"""How long it takes to find that an agent repeats itself."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.conversations import Speech, example_speech, speech_of


def repetition(paths: Sequence[Path] = ()) -> Iterator[tuple[str, str, str]]:
    """Five messages of 2,000 characters, compared: fresh ones, ones that repeat a good half, and the section made of them.

    Then how often it triggers on real conversations: those of the example agents, and those in files.
    """
    from correction.repetition import build_repetition_context, detect_repetition

    for what, share in (("fresh", 0.0), ("repetitive", 0.8)):
        texts = five_messages(share)
        found = detect_repetition(texts, threshold=0.3)
        median, most = milliseconds(partial(detect_repetition, texts, threshold=0.3))
        yield (
            f"repetition in 5 {what} messages of 2,000 characters",
            f"{median:.2f} ms (95 % within {most:.2f}), overlap {found.overlap:.2f}",
            "<= 2 ms",
        )
    median, most = milliseconds(partial(build_repetition_context, found))
    yield "   the section shown to an agent that repeats itself", f"{median:.2f} ms (95 % within {most:.2f})", "-"
    yield "repetition, example agents", triggers(example_speech()), "-"
    for path in paths:
        yield f"repetition, {path.name}", triggers(speech_of(path)), "-"


def triggers(speech: Speech) -> str:
    """How many of the windows of five messages of a speaker trigger, by their overlap or by a phrase in nearly all of them alone."""
    from correction.repetition import LAST_MESSAGES, detect_repetition

    windows = overlap = formula = 0
    phrases: set[str] = set()
    for texts in speech.values():
        for end in range(LAST_MESSAGES, len(texts) + 1):
            result = detect_repetition(texts[end - LAST_MESSAGES : end], threshold=0.3)
            windows += 1
            overlap += result.overlap > result.threshold
            if result.triggered and result.overlap <= result.threshold:
                formula += 1
                phrases.add(result.formula)
    if not windows:
        return "nobody says five messages"
    alone = f" ({', '.join(sorted(phrases)[:3])})" if phrases else ""
    return f"{overlap} of {windows} windows by overlap, {formula} ({formula / windows:.1%}) by a phrase alone{alone}"


def five_messages(share: float) -> list[str]:
    """Messages of 2,000 characters, of whose words `share` stand at the same place in all of them."""
    chance = random.Random(7)
    words = [f"{chance.choice('bcdfgklmnprst')}{chance.choice('aeiou')}{n:x}" for n in range(2_000)]
    common = [chance.choice(words) for _ in range(600)]
    made = ((word if chance.random() < share else chance.choice(words) for word in common) for _ in range(5))
    return [" ".join(text)[:2_000] for text in made]


def milliseconds(work: Callable[[], Any], times: int = 400) -> tuple[float, float]:
    """Median and 95th percentile of a piece of work."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        taken.append((time.perf_counter() - begun) * 1000)
    taken.sort()
    return taken[times // 2], taken[times * 95 // 100]
