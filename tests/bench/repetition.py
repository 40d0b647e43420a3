"""How long it takes to find that an agent repeats itself."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any


def repetition() -> Iterator[tuple[str, str, str]]:
    """Five messages of 2,000 characters, compared: fresh ones, ones that repeat a good half, and the section made of them."""
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
