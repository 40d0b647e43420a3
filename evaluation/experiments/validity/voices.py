"""How well the offline voice tells people apart, in two plays, beside scikit-learn's logistic regression on character n-grams.

For each speaker with enough lines a voice is learned from earlier lines of its own against those of all others, and asked about the lines
of scenes that it was not learned from: its own and the others'. The area under the ROC curve (AUC) is the chance that an own window scores
higher than another's; 0.5 is guessing. Everything was chosen on *Twelfth Night*; *All's Well* was opened once it was done.
"""

from __future__ import annotations

import csv
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agents.kit.text.authors import NameMask, learn_voice, own_voice
from agents.kit.text.wording import signed
from evaluation.experiments.validity.rows import Group, ValidityRow, figure_text, percent
from evaluation.statistics.bootstrap import LEVEL, Estimate, Interval
from evaluation.statistics.separation import Stratum

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FOLDER = Path(__file__).with_name("data")
PLAYS = {"Twelfth Night": "twelfth_night.csv", "All's Well That Ends Well": "alls_well_that_ends_well.csv"}
GROUP: Group = "Voice"
LICENCE = "public domain"
LIBRARY_MISSING = "scikit-learn is not installed"

FOLDS = 5  # parts of the play, by whole scenes; each is asked about once
LEAST_LINES = 50  # of a speaker whose voice is learned
LEAST_OF_OTHERS = 5  # lines that make another speaker
NOTHING_SAID = 4.5  # the score that is as much for as against; of each line where no voice was learned
HIGH = 7  # a score that reads as "its own"


@dataclass(frozen=True, slots=True)
class Case:
    """How many earlier lines the voice is learned from (None: all), and how many later ones a window has."""

    earlier: int | None
    window: int

    @property
    def text(self) -> str:
        known = "all earlier lines" if self.earlier is None else f"{self.earlier} earlier lines"
        asked = "single lines" if self.window == 1 else f"windows of {self.window} lines"
        return f"{asked}, {known}"


MAIN = Case(None, 5)
CASES = (Case(None, 1), MAIN, Case(None, 10), Case(10, 5), Case(25, 5), Case(50, 5))


@dataclass(frozen=True, slots=True)
class Play:
    """The lines of a play in their order, names masked: `speakers` and `scenes` are those of `texts`."""

    title: str
    texts: list[str]
    speakers: list[str]
    scenes: list[str]

    def folds(self) -> list[int]:
        """Return the fold of each line: whole scenes, the longest first, each to the fold that has the fewest lines so far."""
        fold_of_scene: dict[str, int] = {}
        lines_in_fold = [0] * FOLDS
        for scene, lines in Counter(self.scenes).most_common():
            smallest = lines_in_fold.index(min(lines_in_fold))
            fold_of_scene[scene] = smallest
            lines_in_fold[smallest] += lines
        return [fold_of_scene[scene] for scene in self.scenes]


def read_play(title: str, path: Path) -> Play:
    """Return a play from its file of rows ``act, scene, speaker, line``."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    mask = NameMask({row["speaker"] for row in rows})
    texts = [" ".join(mask(row["line"]).split()) for row in rows]
    scenes = [f"{row['act']}.{row['scene']}" for row in rows]
    return Play(title, texts, [row["speaker"] for row in rows], scenes)


class Scorer(Protocol):
    """Scores lines, 0 to 9, by how likely a speaker said them."""

    def scores(self, own: Sequence[int], others: Sequence[Sequence[int]], asked: Sequence[int]) -> list[float] | None:
        """Return the score of each line asked about; None where no voice can be learned.

        Args:
            own: The speaker's lines to learn from, as their numbers in the play; `others` those of each other speaker.
        """
        ...


class OurVoice:
    """The offline judge's voice (`agents.kit.text.authors`)."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def scores(self, own: Sequence[int], others: Sequence[Sequence[int]], asked: Sequence[int]) -> list[float] | None:
        voices_of_others = []
        for lines in others:
            voices_of_others.append([self._texts[line] for line in lines])
        voice = learn_voice([self._texts[line] for line in own], voices_of_others)
        if voice is None:
            return None
        return [round(9 * own_voice(self._texts[line], voice)[0]) for line in asked]


class LibraryVoice:
    """scikit-learn: logistic regression on TF-IDF of runs of 2 to 4 characters, own lines weighing as much as all others together."""

    def __init__(self, texts: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import CountVectorizer

        counter = CountVectorizer(analyzer="char", ngram_range=(2, 4), lowercase=False)
        self._counts: Any = counter.fit_transform(texts)  # n-grams that no line learned from has get no weight

    def scores(self, own: Sequence[int], others: Sequence[Sequence[int]], asked: Sequence[int]) -> list[float] | None:
        from sklearn.feature_extraction.text import TfidfTransformer
        from sklearn.linear_model import LogisticRegression

        learned_from = list(own)
        for lines in others:
            learned_from += lines
        is_own = [number < len(own) for number in range(len(learned_from))]
        weights = TfidfTransformer(sublinear_tf=True).fit(self._counts[learned_from])
        model = LogisticRegression(class_weight="balanced", solver="liblinear", max_iter=1_000)
        model.fit(weights.transform(self._counts[learned_from]), is_own)
        chances = model.predict_proba(weights.transform(self._counts[list(asked)]))[:, 1]
        return [round(9 * float(chance)) for chance in chances]


Part = tuple[str, int]  # a speaker and the fold it is asked about


@dataclass(slots=True)
class Tally:
    """What one scorer made of one play.

    Attributes:
        won: By case and part, how often an own window scored higher than another's.
        learned: By number of earlier lines (None: all), the parts of which a voice was learned; `refused` those of which none could be.
        high_of_others: Single lines of others that scored at least 7, by a voice learned from all earlier lines; `lines_of_others`: all.
    """

    won: dict[Case, dict[Part, Stratum]] = field(default_factory=lambda: defaultdict(dict))
    learned: dict[int | None, set[Part]] = field(default_factory=lambda: defaultdict(set))
    refused: dict[int | None, set[Part]] = field(default_factory=lambda: defaultdict(set))
    high_of_others: int = 0
    lines_of_others: int = 0

    def areas(self, case: Case, *, without: Collection[Part] = ()) -> dict[str, float]:
        """Return the AUC of each speaker that has windows enough, over its folds but for the parts to leave out."""
        wins: dict[str, float] = defaultdict(float)
        pairs: dict[str, int] = defaultdict(int)
        for part, stratum in self.won[case].items():
            if part not in without and stratum.pairs:
                wins[part[0]] += stratum.wins
                pairs[part[0]] += stratum.pairs
        return {speaker: wins[speaker] / pairs[speaker] for speaker in pairs}


@dataclass(frozen=True, slots=True)
class _Trial:
    """One speaker, asked about one fold.

    Attributes:
        own, others: The lines to learn from: the speaker's, and those of each other speaker.
        asked: The lines of the fold, by speaker.
    """

    speaker: str
    fold: int
    own: list[int]
    others: list[list[int]]
    asked: dict[str, list[int]]


def _trials(play: Play) -> Iterator[_Trial]:
    """Yield one trial for each speaker with enough lines and each fold."""
    folds = play.folds()
    for speaker, lines in Counter(play.speakers).most_common():
        if lines < LEAST_LINES:
            continue
        for fold in range(FOLDS):
            known: dict[str, list[int]] = defaultdict(list)
            asked: dict[str, list[int]] = defaultdict(list)
            for number, name in enumerate(play.speakers):
                part = asked if folds[number] == fold else known
                part[name].append(number)
            own = known.pop(speaker)
            others = {name: numbers for name, numbers in known.items() if len(numbers) >= LEAST_OF_OTHERS}
            kept = {name: asked[name] for name in (speaker, *others) if asked[name]}
            yield _Trial(speaker, fold, own, list(others.values()), kept)


def measure(play: Play, scorer: Scorer) -> Tally:
    """Return what a scorer makes of a play."""
    tally = Tally()
    for trial in _trials(play):
        for earlier in dict.fromkeys(case.earlier for case in CASES):
            if earlier is not None and len(trial.own) < earlier:
                continue
            own = trial.own if earlier is None else trial.own[-earlier:]
            asked = [number for numbers in trial.asked.values() for number in numbers]
            scores = scorer.scores(own, trial.others, asked)
            part = (trial.speaker, trial.fold)
            if scores is None:
                tally.refused[earlier].add(part)
                scores = [NOTHING_SAID] * len(asked)
            else:
                tally.learned[earlier].add(part)
            _count(tally, trial, earlier, dict(zip(asked, scores, strict=True)))
    return tally


def _count(tally: Tally, trial: _Trial, earlier: int | None, scores: Mapping[int, float]) -> None:
    """Add the scores of one trial to the tally."""
    for case in CASES:
        if case.earlier != earlier:
            continue
        own: list[float] = []
        others: list[float] = []
        for name, numbers in trial.asked.items():
            means = _window_means([scores[number] for number in numbers], case.window)
            if name == trial.speaker:
                own += means
            else:
                others += means
        tally.won[case][trial.speaker, trial.fold] = stratum_of(own, others)
        if case == Case(None, 1):
            tally.high_of_others += sum(score >= HIGH for score in others)
            tally.lines_of_others += len(others)


def _window_means(scores: Sequence[float], window: int) -> list[float]:
    """Return the mean of each run of so many scores; what is left at the end is passed over."""
    means = []
    for start in range(0, len(scores) - window + 1, window):
        means.append(sum(scores[start : start + window]) / window)
    return means


def stratum_of(first: Sequence[float], second: Sequence[float]) -> Stratum:
    """Return how often a score of the first kind is higher than one of the second."""
    import numpy as np

    a: NDArray[np.float64] = np.asarray(first, dtype=np.float64)
    b: NDArray[np.float64] = np.asarray(second, dtype=np.float64)
    wins = (a[:, None] > b[None, :]).sum() + (a[:, None] == b[None, :]).sum() / 2
    return Stratum(len(first), len(second), len(first) * len(second), float(wins))


def mean_over_speakers(values: Sequence[float]) -> Estimate:
    """Return the mean with its 95 % interval by Student's t over speakers; no interval for fewer than two."""
    from scipy.special import stdtrit

    n = len(values)
    if n == 0:
        return Estimate(None, None, 0, "no speaker has lines enough")
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, None, 1, "one speaker: an interval needs at least 2")
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    reach = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * math.sqrt(variance / n)
    return Estimate(mean, Interval(mean - reach, mean + reach), n)


def difference_over_speakers(
    ours: Sequence[Tally], library: Sequence[Tally], case: Case, *, where_learned: bool = False
) -> Estimate:
    """Return the library's AUC less ours, paired by speaker, over the speakers of all plays given.

    Args:
        where_learned: Leave out the parts of which ours learned no voice, which else count as guessed.
    """
    differences = []
    for our_tally, library_tally in zip(ours, library, strict=True):
        without = our_tally.refused[case.earlier] if where_learned else set()
        our_areas = our_tally.areas(case, without=without)
        for speaker, area in library_tally.areas(case, without=without).items():
            differences.append(area - our_areas[speaker])
    return mean_over_speakers(differences)


def voice_rows() -> list[ValidityRow]:
    """Return the rows of both plays, and of the comparison with the library over all their speakers."""
    has_library = find_spec("sklearn") is not None
    rows: list[ValidityRow] = []
    ours: list[Tally] = []
    library: list[Tally] = []
    for title, file in PLAYS.items():
        play = read_play(title, FOLDER / file)
        ours.append(measure(play, OurVoice(play.texts)))
        if has_library:
            library.append(measure(play, LibraryVoice(play.texts)))
        rows += _rows_of_play(title, ours[-1], library[-1] if has_library else None)
    if has_library:
        for case in CASES:
            rows.append(_row_of_difference(ours, library, case))
    return rows


def _row_of_difference(ours: Sequence[Tally], library: Sequence[Tally], case: Case) -> ValidityRow:
    """Return by how much the library is better in a case, over all speakers and over those of whom ours learned a voice."""
    difference = difference_over_speakers(ours, library, case)
    learned = difference_over_speakers(ours, library, case, where_learned=True)
    return _row(
        "both plays",
        f"scikit-learn's AUC less ours: {case.text}",
        "",
        f"{_signed(difference)}, {difference.n} speakers: {_verdict(difference)}; "
        f"where ours learned a voice {_signed(learned)}, {learned.n} speakers: {_verdict(learned)}",
    )


def _verdict(difference: Estimate) -> str:
    """Say which scorer is better, by the interval of this case alone."""
    if difference.interval is None:
        return "no interval"
    if difference.interval.low > 0:
        return "scikit-learn is better"
    if difference.interval.high < 0:
        return "ours is better"
    return "no difference shown"


def _rows_of_play(title: str, ours: Tally, library: Tally | None) -> list[ValidityRow]:
    """Return the rows of one play; `library` is None where scikit-learn is not installed."""
    rows = []
    for case in CASES:
        estimate = mean_over_speakers(list(ours.areas(case).values()))
        published = LIBRARY_MISSING
        if library is not None:
            of_library = mean_over_speakers(list(library.areas(case).values()))
            published = f"scikit-learn {_text(of_library)}"
        rows.append(_row(title, f"AUC, {case.text}", published, f"{_text(estimate)}, {estimate.n} speakers"))
    published = LIBRARY_MISSING
    if library is not None:
        published = f"scikit-learn {_high_text(library)}"
    rows.append(
        _row(title, f"a line of another speaker scores {HIGH} or more; voices refused", published, _high_text(ours))
    )
    return rows


def _high_text(tally: Tally) -> str:
    refused = len(tally.refused[None])
    share = percent(tally.high_of_others, tally.lines_of_others, 1)
    return f"{share} of {tally.lines_of_others:,}; {refused} of {refused + len(tally.learned[None])} refused"


def _text(estimate: Estimate) -> str:
    if estimate.value is None:
        return estimate.reason
    return figure_text(estimate.value, estimate.interval)


def _signed(estimate: Estimate) -> str:
    if estimate.value is None or estimate.interval is None:
        return estimate.reason
    low, high = estimate.interval.low, estimate.interval.high
    return f"{signed(estimate.value, 2)} [{signed(low, 2)}, {signed(high, 2)}]"


def _row(title: str, claim: str, published: str, ours: str) -> ValidityRow:
    return ValidityRow(group=GROUP, claim=claim, source=title, licence=LICENCE, published=published, ours=ours)
