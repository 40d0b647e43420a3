"""How well offline self-consistency tells an agent's own messages from swapped ones, by how many earlier messages it knows.

An agent's voice is learned from so many consecutive messages and asked about the next ones; then about windows of another speaker's
messages instead. "Heard": the other speaker's voice is among the others it is learned against, by messages that are not asked about.
"Unheard": it is not, as with a drift to a voice that nobody had before. The area under the ROC curve (AUC) is the chance that an own
window scores higher than a swapped one: 0.5 is guessing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.bench.conversations import Speech, example_speech, speech_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EARLIER, WINDOWS = (5, 10, 15, 20), (5, 10)
RESAMPLES = 500
GOAL = 0.8


def auc(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """Return the probability that a labelled score is higher than an unlabelled one, ties counted half (Mann-Whitney); NaN without both."""
    from scipy.stats import rankdata

    positive, negative = int(labels.sum()), int((~labels).sum())
    if not positive or not negative:
        return float("nan")
    ranks = rankdata(scores)
    return float((ranks[labels].sum() - positive * (positive + 1) / 2) / (positive * negative))


class Asked(NamedTuple):
    """Scores of windows, each the mean of its messages' 0 to 9, of one speaker: own ones and swapped ones."""

    own: list[float]
    swapped: list[float]


def windows_of(speech: Speech, *, earlier: int, heard: bool) -> dict[int, dict[str, Asked]]:
    """By window and speaker with enough messages. Unheard are at most the first five others, each left out in turn."""
    asked: dict[int, dict[str, Asked]] = {window: {} for window in WINDOWS}
    for speaker, own in speech.items():
        others = {name: texts for name, texts in speech.items() if name != speaker and len(texts) >= 2 * WINDOWS[0]}
        for start in range(0, len(own) - earlier - WINDOWS[0] + 1, 2):
            known, later = own[start : start + earlier], own[start + earlier :]
            if heard:
                score = scorer(known, [texts[::2] for texts in others.values()])
                tries = [(score, [texts[1::2] for texts in others.values()])]
            else:
                left_out = {name: [t for n, t in others.items() if n != name] for name in list(others)[:5]}
                tries = [(scorer(known, background), [others[name]]) for name, background in left_out.items()]
            for score, swapped in tries:
                scores, others_scores = list(map(score, later)), [list(map(score, texts)) for texts in swapped]
                for window, by_speaker in asked.items():
                    if own_windows := _means(scores, window)[:1]:
                        of = by_speaker.setdefault(speaker, Asked([], []))
                        of.own.extend(own_windows)
                        of.swapped.extend(mean for values in others_scores for mean in _means(values, window))
    return {w: {s: of for s, of in by_speaker.items() if of.swapped} for w, by_speaker in asked.items()}


def _means(scores: Sequence[float], window: int) -> list[float]:
    return [sum(scores[at : at + window]) / window for at in range(0, len(scores) - window + 1, window)]


def scorer(known: Sequence[str], others: Sequence[Sequence[str]]) -> Callable[[str], float]:
    """Score messages as the offline judge would, 4.5 where the voice cannot be told from the others'."""
    from agents.kit.text.authors import learn_voice, own_voice

    voice = learn_voice(known, others) if others else None
    return lambda text: 4.5 if voice is None else round(9 * own_voice(text, voice)[0])


def area(asked: dict[str, Asked]) -> tuple[float, float, float]:
    """AUC over all speakers, with its 95 % interval over speakers."""
    import numpy as np

    def of(names: Sequence[str]) -> float:
        own = [score for name in names for score in asked[name].own]
        swapped = [score for name in names for score in asked[name].swapped]
        return auc(np.asarray(own + swapped), np.asarray([True] * len(own) + [False] * len(swapped)))

    names, rng = list(asked), np.random.default_rng(0)
    drawn = [of([names[n] for n in rng.integers(len(names), size=len(names))]) for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return of(names), float(low), float(high)


def measure_voice(paths: Sequence[Path]) -> None:
    """Print the curve for the example agents and for each file."""
    from rich.console import Console
    from rich.table import Table

    from agents.kit.text.authors import NameMask
    from evaluation.scorers.consistency import LEAST_OWN

    console = Console(width=150)
    for name, speech in (("example agents", example_speech()), *((path.name, speech_of(path)) for path in paths)):
        mask = NameMask(speech)
        masked = {speaker: [" ".join(mask(text).split()) for text in texts] for speaker, texts in speech.items()}
        table = Table(
            title=f"{name}: {sum(map(len, speech.values()))} messages of {len(speech)} speakers", title_justify="left"
        )
        for heading in (
            "Earlier messages",
            "Window",
            "AUC, heard",
            "AUC, unheard",
            "Speakers",
            "Left out: too few messages",
        ):
            table.add_column(heading)
        passed: dict[int, bool] = {}
        for earlier in EARLIER:
            asked_of = [windows_of(masked, earlier=earlier, heard=heard) for heard in (True, False)]
            for window in WINDOWS:
                both = [by_window[window] for by_window in asked_of]
                shown = []
                for asked in both:
                    value, low, high = area(asked) if asked else (None, None, None)
                    shown.append("-" if value is None else f"{value:.2f} ({low:.2f} to {high:.2f})")
                    passed[earlier] = passed.get(earlier, True) and (value is None or value >= GOAL)
                left = [f"{speaker} {len(texts)}" for speaker, texts in speech.items() if speaker not in both[0]]
                table.add_row(str(earlier), str(window), *shown, str(len(both[0])), ", ".join(left)[:60])
        console.print(table)
        least = next((earlier for earlier in EARLIER if all(passed[n] for n in EARLIER if n >= earlier)), None)
        console.print(
            f"At least {GOAL:g} everywhere from {least} earlier messages on; scored from {LEAST_OWN}.\n"
            if least
            else f"Never at least {GOAL:g} everywhere; scored from {LEAST_OWN}.\n"
        )
