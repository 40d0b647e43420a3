"""The change of one number, from the scores behind it on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evaluation.comparison.chance import difference_interval, difference_p, from_fixed_p
from evaluation.comparison.sides import DELETED, mean_of
from evaluation.comparison.spread import detectable, spread
from evaluation.comparison.values import Change
from evaluation.runs.summary import rounded
from evaluation.statistics.bootstrap import Observation, bootstrap_difference, bootstrap_mean
from evaluation.statistics.difference import Decision, verdict
from evaluation.statistics.estimates import Interval

Scores = Sequence[Observation]
MOST_RESAMPLED = 200  # messages a side; four thousand resamples of more take seconds and change nothing
NOISE_ALONE = "of the judge's noise alone: other messages might have scored otherwise"
UNITS = {"message": "messages", "situation": "situations", "channel": "channels", "repeat": "repeats"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One number as it stands on one side: the score (or count), and the judgements behind it where they are known."""

    score: float | None
    observations: tuple[Observation, ...] = ()


def change_of(
    before: Measured,
    now: Measured,
    *,
    dimension: str,
    proposition: str = "",
    margin: float,
    counted: bool = False,
    heuristic: bool = False,
) -> Change:
    """Delta, interval and verdict.

    Messages are drawn anew on each side. Where the same situations, channels or messages stand on both sides they are compared one by
    one. A window judged as a whole has only its repeats to draw from: the interval is then of the judge's noise alone.

    Args:
        before, now: The baseline and the current side.
        margin: Half-width of "no change", in points.
        counted: A count, not a score.
        heuristic: Judged offline: repeats are all the same and tell nothing.
    """
    first, second, note = _comparable(before.observations, now.observations)
    units = {unit_of(first), unit_of(second)} - {""}
    whole = "repeats" in units
    frame = Change(
        dimension=dimension,
        proposition=proposition,
        counted=counted,
        baseline=before.score,
        current=now.score,
        delta=_delta(before.score, now.score),
        interval=None,
        interval_note=note,
        verdict="cannot tell yet",
        reason=_why_no_interval(before, now, first, second, units, counted=counted, heuristic=heuristic),
        n=clusters(second),
        baseline_n=clusters(first),
        unit=next(iter(units)) if len(units) == 1 else "messages",
    )
    if frame.reason:
        return replace(frame, interval_note=frame.reason)
    if not first or not second:
        return _from_fixed(frame, first, second, margin, whole=whole)
    return _between(frame, first, second, margin, whole=whole)


def _why_no_interval(
    before: Measured,
    now: Measured,
    first: Scores,
    second: Scores,
    units: set[str],
    *,
    counted: bool,
    heuristic: bool,
) -> str:
    """Why nothing can be said about how sure the change is; empty when something can."""
    empty = [name for name, side in (("in the baseline", before), ("now", now)) if side.score is None]
    if empty:
        return f"nothing was {'counted' if counted else 'scored'} {' and '.join(empty)}"
    if not units:
        return "neither side holds single judgements: there is no interval without them"
    if len(units) > 1:
        return f"one side is judged over {' and the other over '.join(sorted(units))}: there is no interval"
    few = min(clusters(side) for side in (first, second) if side) < 2
    if units == {"repeats"}:
        what = "a count" if counted else "the whole window is judged at once"
        if heuristic:
            return f"{what}, by a judge that always says the same: an interval takes an LLM judge and --repeats 3 on both sides"
        return f"{what}: an interval takes repeats (--repeats 3) on both sides" if few else ""
    return f"fewer than 2 {next(iter(units))} on a side: there is no interval" if few else ""


def _between(frame: Change, first: Scores, second: Scores, margin: float, *, whole: bool) -> Change:
    """Two sides whose judgements are known."""
    paired = not whole and _clusters(first) == _clusters(second)
    interval = _interval(first, second, paired=paired)
    if interval is None:
        return replace(frame, interval_note=(why := "too few scores for an interval"), reason=why)
    baseline, current = (frame.baseline, frame.current) if frame.counted else (mean_of(first), mean_of(second))
    decision = verdict(
        _delta(baseline, current),
        interval,
        margin,
        n=None if whole else frame.n,
        baseline_n=None if whole or paired else frame.baseline_n,
        unit=frame.unit,
    )
    note = frame.interval_note
    if whole:
        decision = _beyond_margin(decision, interval, margin)
        note = NOISE_ALONE
    sd = None if whole else spread(first, second, paired=paired)
    return replace(
        frame,
        baseline=baseline,
        current=current,
        delta=_delta(baseline, current),
        interval=interval if frame.counted else _possible(interval),
        interval_note=note,
        verdict=decision.verdict,
        reason=decision.reason,
        n_more=decision.n_more,
        smallest_detectable=detectable(sd, n=frame.n, baseline_n=frame.baseline_n, paired=paired),
        sd=sd,
        paired=paired,
        p_value=difference_p(first, second, paired=paired),
    )


def _interval(first: Scores, second: Scores, *, paired: bool) -> Interval | None:
    """By resampling messages; of so many that their mean is normal whatever they are like, by Student's t."""
    sizes = clusters(first), clusters(second)
    if min(sizes) > MOST_RESAMPLED or max(sizes) > 10 * MOST_RESAMPLED:
        return difference_interval(first, second, paired=paired)
    return bootstrap_difference(first, second, paired=paired).interval


def clusters(observations: Scores) -> int:
    """How many messages (situations, channels, repeats) these scores are of."""
    return len(_clusters(observations))


def unit_of(observations: Scores) -> str:
    """What their clusters are; empty without any."""
    return next((UNITS.get(str(o.cluster).partition(":")[0], "messages") for o in observations), "")


def _delta(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else rounded(now - before)


def _clusters(observations: Scores) -> set[object]:
    return {o.cluster for o in observations if o.weight}


def _comparable(first: Scores, second: Scores) -> tuple[Scores, Scores, str]:
    """Situations and channels on one side only are left out, where at least two stand on both; with a note."""
    units = {unit_of(first), unit_of(second)}
    if units not in ({"situations"}, {"channels"}):
        return first, second, _same_messages(first, second)
    (unit,) = units
    one, two = _clusters(first), _clusters(second)
    both = one & two
    if len(both) < 2 or one == two:
        return first, second, ""
    sides = ([o for o in side if o.cluster in both] for side in (first, second))
    return (*sides, f"{unit} on one side only, left out: {len(one ^ two)}")  # type: ignore[return-value]


def _same_messages(first: Scores, second: Scores) -> str:
    if unit_of(first) != "messages" or unit_of(second) != "messages":
        return ""
    one, two = _clusters(first) - {DELETED}, _clusters(second) - {DELETED}
    if one and one == two:
        return "the same messages stand on both sides: nothing new was said, what differs is how they were judged"
    if one & two:
        return f"messages that stand on both sides: {len(one & two)}, which makes the interval wider than it need be"
    return ""


def _from_fixed(frame: Change, first: Scores, second: Scores, margin: float, *, whole: bool) -> Change:
    """The interval of the side whose judgements are known; the other's score is taken as exact."""
    known, fixed = (second, frame.baseline) if second else (first, frame.current)
    estimate = bootstrap_mean(known)
    if estimate.interval is None or fixed is None:
        return replace(frame, interval_note=estimate.reason, reason=estimate.reason)
    low, high = estimate.interval.low - fixed, estimate.interval.high - fixed
    interval = Interval(low, high) if second else Interval(-high, -low)
    decision = verdict(frame.delta, interval, margin, n=None if whole else estimate.n, unit=frame.unit)
    which = "baseline" if second else "current side"
    note = f"the {which} holds no single judgements: its score is taken as exact"
    if whole:
        decision, note = _beyond_margin(decision, interval, margin), f"{note}; the interval is {NOISE_ALONE}"
    sd = None if whole else spread(known, ())
    return replace(
        frame,
        interval=interval if frame.counted else _possible(interval),
        interval_note=note,
        verdict=decision.verdict,
        reason=decision.reason,
        n_more=decision.n_more,
        smallest_detectable=detectable(sd, n=frame.n, baseline_n=frame.baseline_n, paired=False),
        sd=sd,
        p_value=from_fixed_p(fixed, known),
    )


def _possible(interval: Interval) -> Interval:
    """What lies within a change of scores of 0 to 9: their means cannot differ by more."""
    return Interval(max(interval.low, -9.0), min(interval.high, 9.0), interval.level)


def _beyond_margin(decision: Decision, interval: Interval, margin: float) -> Decision:
    """Two texts always differ a little: what only the judge's noise speaks for must be more than the margin."""
    if decision.verdict == "drifted" and interval.low < margin and interval.high > -margin:
        return Decision("cannot tell yet", None, f"beyond the judge's noise, but not surely by more than {margin:g}")
    return decision
