"""What our intervals and tests promise, tried on simulated data of which the truth is known. Seeded: equal at every call.

Each row prints the share of the trials in which the promise was kept or broken, with its own 95 % interval, which decides the outcome
(`rows.outcome_at_least`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from evaluation.experiments.validity.judges import TwoByTwo, kappa_of, usual_kappa_interval
from evaluation.experiments.validity.rows import (
    OURS,
    Group,
    Outcome,
    ValidityRow,
    outcome_at_least,
    outcome_at_most,
    percent,
    share_text,
)
from evaluation.experiments.validity.voices import stratum_of
from evaluation.statistics.agreement import quadratic_weighted_kappa
from evaluation.statistics.arms import detectable_d, permutation_p, welch
from evaluation.statistics.bootstrap import LEVEL, Estimate, Interval, Observation, bootstrap_difference, bootstrap_mean
from evaluation.statistics.change_point import DAYS_PER_MONTH, FALSE_ALARMS_PER_MONTH, Point, find_drops
from evaluation.statistics.difference import ALPHA, difference_p, holm, shares_interval
from evaluation.statistics.prediction_powered import prediction_powered_mean
from evaluation.statistics.separation import area_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Scores = NDArray[np.float64]
    Draw = Callable[[np.random.Generator], float]

GROUP: Group = "Statistics"
TRIALS = 2_000
RESAMPLES = 1_000

# How often a judge gives 0, 1, … 9: two distributions that are skewed to the top, as judges' are.
BEFORE = (0.01, 0.01, 0.02, 0.03, 0.05, 0.08, 0.15, 0.25, 0.28, 0.12)
NOW = (0.02, 0.03, 0.05, 0.07, 0.10, 0.15, 0.20, 0.20, 0.13, 0.05)


def simulation_rows(trials: int = TRIALS) -> list[ValidityRow]:
    """Return the rows of all simulations.

    Args:
        trials: Of each; for families of comparisons and for alarms a fraction of it. Fewer tell less, and take less time.
    """
    return [
        *_coverage_rows(trials),
        *_kappa_rows(trials),
        _weighted_kappa_row(trials),
        *_null_rows(trials),
        *_clustered_rows(trials),
        *_alarm_rows(histories=max(1, trials // 100)),
    ]


# -- intervals
def _coverage_rows(trials: int) -> list[ValidityRow]:
    """Return a row for each interval: how often it holds the truth."""
    return [
        _coverage("mean score of 10 messages: bootstrap", "Hesterberg 2015", trials, _holds_mean),
        _coverage(
            "difference of means, 20 against 20 messages: bootstrap", "Hesterberg 2015", trials, _holds_difference
        ),
        _coverage("difference of two shares, 5 % of 28 against 30 % of 24", "Newcombe 1998", trials, _holds_shares),
        _coverage("swap test: AUC of 0.76 from 15 and 15 scores", "Newcombe 2006", trials, _holds_area),
        _coverage(
            "people's mean from 60 labels and 600 judged messages", "PPI++, arXiv:2311.01453", trials, _holds_powered
        ),
    ]


def _coverage(name: str, source: str, trials: int, holds: Callable[[np.random.Generator], bool]) -> ValidityRow:
    hits = sum(holds(generator) for generator in _generators(name, trials))
    return _row(
        f"the 95 % interval holds the truth: {name}",
        source,
        "at least 95 %",
        share_text(hits, trials),
        outcome_at_least(hits, trials, LEVEL),
    )


def _generators(name: str, trials: int) -> list[np.random.Generator]:
    """Return a generator of random numbers for each trial, the same for the same name."""
    import numpy as np

    return [np.random.default_rng([trial, *name.encode()]) for trial in range(trials)]


def _holds(estimate: Estimate, truth: float) -> bool:
    return estimate.interval is not None and _contains(estimate.interval, truth)


def _contains(interval: Interval, truth: float) -> bool:
    return interval.low - 1e-9 <= truth <= interval.high + 1e-9


def _draw_scores(generator: np.random.Generator, shares: Sequence[float], n: int) -> Scores:
    return generator.choice(10, size=n, p=shares).astype(float)


def _mean_of(shares: Sequence[float]) -> float:
    return math.fsum(score * share for score, share in enumerate(shares))


def _observations(scores: Scores) -> list[Observation]:
    return [Observation(float(score)) for score in scores]


def _holds_mean(generator: np.random.Generator) -> bool:
    estimate = bootstrap_mean(_observations(_draw_scores(generator, BEFORE, 10)), resamples=RESAMPLES)
    return _holds(estimate, _mean_of(BEFORE))


def _holds_difference(generator: np.random.Generator) -> bool:
    before = _observations(_draw_scores(generator, BEFORE, 20))
    now = _observations(_draw_scores(generator, NOW, 20))
    estimate = bootstrap_difference(before, now, resamples=RESAMPLES)
    return _holds(estimate, _mean_of(NOW) - _mean_of(BEFORE))


def _holds_shares(generator: np.random.Generator) -> bool:
    before = int(generator.binomial(28, 0.05))
    now = int(generator.binomial(24, 0.30))
    return _contains(shares_interval((before, 28), (now, 24)), 0.25)


def _holds_area(generator: np.random.Generator) -> bool:
    own = generator.normal(1, 1, 15).tolist()
    swapped = generator.normal(0, 1, 15).tolist()
    truth = 0.5 * (1 + math.erf(0.5))  # of two normal distributions that lie one standard deviation apart
    return _holds(area_of([stratum_of(own, swapped)]), truth)


def _holds_powered(generator: np.random.Generator) -> bool:
    """Try a judge that is a point too high and noisy: people's mean is known, as their scores have the shares `NOW`."""
    people = _draw_scores(generator, NOW, 660)
    judged = people + 1 + generator.normal(0, 1.5, 660).round()
    estimate = prediction_powered_mean(people[:60].tolist(), judged[:60].tolist(), judged[60:].tolist())
    return _holds(estimate, _mean_of(NOW))


# -- agreement
KAPPA = 0.9
VIOLATIONS = 0.3  # share of the items
LOWER_TAIL = 0.025


def _kappa_rows(trials: int) -> list[ValidityRow]:
    """Return how often the lower end of kappa's interval lies above the truth, for ours and for the usual one, of 40 and of 80 items."""
    rows = []
    for items in (40, 80):
        too_high = too_high_usual = 0
        defined = 0
        name = f"kappa of {items} items"
        for generator in _generators(name, trials):
            table = _draw_table(generator, items)
            interval = kappa_of(table, resamples=RESAMPLES).interval
            if interval is None:
                continue
            defined += 1
            too_high += interval.low > KAPPA
            too_high_usual += usual_kappa_interval(table).low > KAPPA
        claim = f"the lower end of kappa's interval is too high: {items} items, true kappa {KAPPA}, 30 % violations"
        outcome = outcome_at_most(too_high, defined, LOWER_TAIL)
        ours = f"{share_text(too_high, defined)}; by the usual standard error {percent(too_high_usual, defined)}"
        rows.append(_row(claim, "bootstrap, one disagreement more", "at most 2.5 %", ours, outcome))
    return rows


def _draw_table(generator: np.random.Generator, items: int) -> TwoByTwo:
    """Draw the table of two raters who say yes equally often and agree with the true kappa."""
    variance = VIOLATIONS * (1 - VIOLATIONS)
    both = VIOLATIONS**2 + KAPPA * variance
    one_alone = (1 - KAPPA) * variance
    cells = generator.multinomial(items, [both, one_alone, one_alone, 1 - both - 2 * one_alone])
    return TwoByTwo(*(int(count) for count in cells))


LABELS = 40
JUDGE_ERRORS = (
    0.01,
    0.04,
    0.10,
    0.70,
    0.10,
    0.04,
    0.01,
)  # how often the judge is 3, 2, 1 points too low, right, 1, 2, 3 too high


def _weighted_kappa_row(trials: int) -> ValidityRow:
    """Return how often the lower end of weighted kappa's interval lies above the truth; passports are decided by it."""
    people, judge, shares = _joint_scores()
    disagreement = float((shares * (people - judge) ** 2).sum())
    mean_people = float((shares * people).sum())
    mean_judge = float((shares * judge).sum())
    by_chance = float((shares * (people**2 + judge**2)).sum()) - 2 * mean_people * mean_judge
    truth = 1 - disagreement / by_chance
    too_high = defined = 0
    for generator in _generators("weighted kappa", trials):
        drawn = generator.choice(people.size, size=LABELS, p=shares)
        estimate = quadratic_weighted_kappa(people[drawn].tolist(), judge[drawn].tolist(), resamples=RESAMPLES)
        if estimate.interval is not None:
            defined += 1
            too_high += estimate.interval.low > truth
    return _row(
        f"the lower end of weighted kappa's interval is too high: {LABELS} labels from 0 to 9, true kappa {truth:.2f}",
        "bootstrap, one disagreement more",
        "at most 2.5 %",
        share_text(too_high, defined),
        outcome_at_most(too_high, defined, LOWER_TAIL),
    )


def _joint_scores() -> tuple[Scores, Scores, Scores]:
    """Return people's score, the judge's, and how often the two come together, for each pair of scores; the judge's stay within 0 to 9."""
    import numpy as np

    people = []
    judge = []
    shares = []
    for score, share in enumerate(BEFORE):
        for error, share_of_error in zip(range(-3, 4), JUDGE_ERRORS, strict=True):
            people.append(float(score))
            judge.append(float(min(9, max(0, score + error))))
            shares.append(share * share_of_error)
    return np.asarray(people), np.asarray(judge), np.asarray(shares)


# -- nothing changed
AGENTS_OF_A_BUILD = 16
DIMENSIONS = 2
MESSAGES = 20


def _null_rows(trials: int) -> list[ValidityRow]:
    """Return how often builds in which nothing changed report a change of an agent, corrected and not."""
    builds = max(1, trials // 5)
    corrected = uncorrected = 0
    for generator in _generators("builds", builds):
        p_values = []
        for _ in range(AGENTS_OF_A_BUILD * DIMENSIONS):
            before = _observations(_draw_scores(generator, BEFORE, MESSAGES))
            now = _observations(_draw_scores(generator, BEFORE, MESSAGES))
            p = difference_p(before, now)
            p_values.append(1.0 if p is None else p)
        uncorrected += min(p_values) < ALPHA
        corrected += min(holm(p_values)) < ALPHA
    claim = (
        f"a build in which nothing changed is called changed: {AGENTS_OF_A_BUILD} agents × {DIMENSIONS} dimensions, "
        f"{MESSAGES} independent messages each, after Holm's correction"
    )
    outcome = outcome_at_most(corrected, builds, ALPHA)
    ours = f"{share_text(corrected, builds)}; uncorrected {percent(uncorrected, builds)}"
    return [_row(claim, "Holm 1979; Welch 1947", "at most 5 %", ours, outcome)]


# -- experiments
PAIRS = 12
AGENTS = 4  # of a conversation
ALIKE = 0.3  # intraclass correlation of their scores


def _clustered_rows(trials: int) -> list[ValidityRow]:
    """Return how often the test by conversations, and the naive one beside it, see a difference where there is none and where there is."""
    clustered = naive = 0
    name = "arms without an effect"
    for generator in _generators(name, trials):
        treatment = _draw_arm(generator)
        control = _draw_arm(generator)
        p = permutation_p(treatment, control)
        clustered += p is not None and p < ALPHA
        test = welch(_values_of(treatment), _values_of(control))
        naive += test is not None and test.p < ALPHA
    design = f"{PAIRS} pairs of conversations of {AGENTS} agents, intraclass correlation {ALIKE}"
    null = _row(
        f"an experiment without an effect is significant: {design}",
        "permutation of pairs",
        "at most 5 %",
        f"{share_text(clustered, trials)}; each score for itself (Welch) {percent(naive, trials)}",
        outcome_at_most(clustered, trials, ALPHA),
    )
    smallest = detectable_d(PAIRS) or 0.0
    significant = 0
    for generator in _generators("arms with an effect", trials):
        differences = generator.normal(smallest, 1, PAIRS)
        effect = {number: [float(value)] for number, value in enumerate(differences)}
        p = permutation_p(effect, {number: [0.0] for number in effect})
        significant += p is not None and p < ALPHA
    power = _row(
        f"the difference that {PAIRS} pairs are said to find with 80 % power ({smallest:.2f} standard deviations) is found",
        "Hoeffding 1952",
        "at least 80 %",
        share_text(significant, trials),
        outcome_at_least(significant, trials, 0.8),
    )
    return [null, power]


def _draw_arm(generator: np.random.Generator) -> dict[int, list[float]]:
    """Draw the scores of an arm's conversations; those of one conversation are alike."""
    arm = {}
    for number in range(PAIRS):
        shared = generator.normal(0, math.sqrt(ALIKE))
        arm[number] = (shared + generator.normal(0, math.sqrt(1 - ALIKE), AGENTS)).tolist()
    return arm


def _values_of(arm: dict[int, list[float]]) -> list[float]:
    return [score for scores in arm.values() for score in scores]


# -- alarms
SERIES = 80  # 40 agents × 2 dimensions
DAYS = 90
DAY_EFFECT = 0.3  # standard deviation of what makes one day better than another, in points
PROMISED_UP_TO = 0.5  # correlation of a day's effect with that of the day before
BETWEEN_MESSAGES = 1.5
WITHIN_MESSAGE = 0.8
MESSAGES_A_DAY = 20
START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def _alarm_rows(histories: int) -> list[ValidityRow]:
    """Return how many false alarms a month there are while nothing changes, over all agents and dimensions.

    Days that hang together more than a correlation of 0.5 break the promise, as `find_drops` says: that row promises nothing.
    """
    # The promised rate lies near its limit, so it takes many histories to tell.
    return [_alarm_row(15 * histories, PROMISED_UP_TO), _alarm_row(histories, 0.8)]


def _alarm_row(histories: int, carry_over: float) -> ValidityRow:
    from scipy.special import gammaincinv

    alarms = 0
    for generator in _generators(f"alarms {carry_over}", histories):
        for _ in range(SERIES):
            points = _draw_history(generator, carry_over)
            alarms += len(find_drops(points, every=DAY, series=SERIES).alarms)
    months = histories * DAYS / DAYS_PER_MONTH
    # Exact interval of a Poisson rate (Garwood 1936).
    low = float(gammaincinv(alarms, 0.025)) / months if alarms else 0.0
    high = float(gammaincinv(alarms + 1, 0.975)) / months
    is_promised = carry_over <= PROMISED_UP_TO
    outcome: Outcome = ""
    if is_promised:
        outcome = _outcome_of_rate(low, high)
    return _row(
        f"false alarms a month: 40 agents × 2 dimensions, measured daily, days correlated by {carry_over}",
        "Page 1954; Siegmund 1985",
        f"at most {FALSE_ALARMS_PER_MONTH:g}" if is_promised else "not promised",
        f"{alarms / months:.2f} [{low:.2f}, {high:.2f}], {histories} histories of {DAYS} days",
        outcome,
    )


def _outcome_of_rate(low: float, high: float) -> Outcome:
    """Return whether the promised rate of false alarms is kept, by the ends of the interval."""
    if high <= FALSE_ALARMS_PER_MONTH:
        return "holds"
    if low > FALSE_ALARMS_PER_MONTH:
        return "fails"
    return "not shown"


def _draw_history(generator: np.random.Generator, carry_over: float) -> list[Point]:
    """Draw a series of daily scores in which nothing changes: whole numbers from 0 to 9, three propositions a message."""
    import numpy as np

    level = generator.uniform(4, 8)
    effect = generator.normal(0, DAY_EFFECT)
    points = []
    for day in range(DAYS):
        messages = generator.normal(level + effect, BETWEEN_MESSAGES, (MESSAGES_A_DAY, 1))
        scores = np.clip(np.rint(messages + generator.normal(0, WITHIN_MESSAGE, (MESSAGES_A_DAY, 3))), 0, 9)
        # What `error_of` returns of messages that count alike, without a second for each history.
        error = float(scores.mean(axis=1).std(ddof=1)) / math.sqrt(MESSAGES_A_DAY)
        points.append(Point(START + day * DAY, float(scores.mean()), error))
        fresh = generator.normal(0, DAY_EFFECT * math.sqrt(1 - carry_over**2))
        effect = carry_over * effect + fresh
    return points


def _row(claim: str, source: str, promised: str, ours: str, outcome: Outcome) -> ValidityRow:
    return ValidityRow(
        group=GROUP, claim=claim, source=source, licence=OURS, published=promised, ours=ours, outcome=outcome
    )
