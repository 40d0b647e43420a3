"""What moved between the two measurements of each agent, from sums that the database makes: as many queries for many as for one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import Count, F, IntegerField, Q, Sum

from evaluation.cast.values import DimensionMove, Judged, Move, Part, Sides
from evaluation.comparison.chance import ALPHA, holm
from evaluation.comparison.lost import lost_propositions
from evaluation.comparison.values import Lost
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.coverage import COVERABLE, MESSAGES, NOTHING, Share, why_too_little
from evaluation.statistics.bootstrap import RESOLUTION
from evaluation.statistics.difference import MARGIN

Parts = Mapping[int, Mapping[tuple[str, str], Part]]  # by evaluation, then by dimension and proposition
SIMULATED = "simulated"


@dataclass(frozen=True, slots=True)
class Compared:
    """What moved between two measurements of an agent.

    Attributes:
        moves: The propositions scored on both sides, the largest fall first.
        changed: Propositions that are another one now, as ``dimension/id``.
        lost: Propositions of which surely less than half as much is scored as then.
        then, now: How much was scored, of all and of what is judged message by message, per dimension.
    """

    moves: Sequence[Move] = ()
    changed: Sequence[str] = ()
    lost: Sequence[Lost] = ()
    then: Mapping[str, tuple[Share, Share]] = field(default_factory=dict)
    now: Mapping[str, tuple[Share, Share]] = field(default_factory=dict)


def moves_of(found: Mapping[int, Sides], judged: Judged) -> dict[int, Compared]:
    """By agent what moved."""
    runs = {pk for sides in found.values() for pk in _runs(sides)}
    parts, digests = _parts(runs), _digests(runs)
    compared = {agent: _compared(sides, parts, digests) for agent, sides in found.items()}
    return _sure(compared, tested=SIMULATED not in judged.procedure.split("+"))


def dimension_moves(compared: Compared) -> list[DimensionMove]:
    """The dimensions over what was scored on both sides; what is judged once over a window is left out where messages were judged.

    One of which too little was scored on a side has no score there.
    """
    by_dimension: dict[str, list[Move]] = defaultdict(list)
    for move in compared.moves:
        by_dimension[move.dimension].append(move)
    found = []
    for dimension in sorted({*by_dimension, *(d for d in compared.now if d in compared.then)}):
        rows = by_dimension[dimension]
        by_message = [move for move in rows if move.now.n or move.then.n] or rows
        then, now = (_mean([getattr(move, side) for move in by_message]) for side in ("then", "now"))
        then_share, now_share = (side.get(dimension, (NOTHING, NOTHING)) for side in (compared.then, compared.now))
        short = [why_too_little(share[1]) for share in (then_share, now_share)]
        if (then is not None and now is not None) or any(short):
            found.append(
                DimensionMove(
                    dimension=dimension,
                    then=None if short[0] else then,
                    now=None if short[1] else now,
                    then_share=then_share[0],
                    now_share=now_share[0],
                    reason=short[1] or short[0],
                )
            )
    return found


def is_sure(move: Move) -> bool:
    """Whether more than chance stands behind it, and it is more than nothing."""
    return abs(move.delta) >= MARGIN and move.p is not None and move.p <= ALPHA


def _runs(sides: Sides) -> list[int]:
    now = [run.pk for run in sides.now.values()]
    return [*sides.then.values(), *now] if sides.then and now else []


def _parts(runs: Iterable[int]) -> Parts:
    once = Q(status="scored", repeat=1, message__isnull=False, score__isnull=False)
    scored = Q(status="scored", score__isnull=False)
    squares = F("score") * F("score")
    rows: Iterable[tuple[Any, ...]] = (
        EvaluationScore.objects.filter(evaluation_run__in=set(runs), count__isnull=True)
        .order_by()
        .values_list("evaluation_run", "dimension", "proposition_id", "weight", "inverted")
        .annotate(
            points=Sum("score", filter=scored),
            scored=Count("pk", filter=scored),
            unscored=Count("pk", filter=Q(status="unscored")),
            n=Count("pk", filter=once),
            total=Sum("score", filter=once),
            squares=Sum(squares, filter=once, output_field=IntegerField()),
            hits=Count("pk", filter=Q(status="scored", repeat=1)),
            asked=Count("pk", filter=COVERABLE & Q(repeat=1)),
            single=Count("pk", filter=MESSAGES),
        )
    )
    found: dict[int, dict[tuple[str, str], Part]] = defaultdict(dict)
    for (
        run,
        dimension,
        proposition,
        weight,
        inverted,
        points,
        judged,
        missing,
        n,
        total,
        squared,
        hits,
        asked,
        single,
    ) in rows:
        found[run][dimension, proposition] = Part(
            mean=round(points / judged, 4) if judged else None,
            scored=judged,
            unscored=missing,
            weight=weight,
            inverted=inverted,
            n=n,
            total=float(total or 0),
            squares=float(squared or 0),
            share=Share(hits, asked),
            by_message=bool(single),
        )
    return found


def _digests(runs: Iterable[int]) -> dict[int, Mapping[str, Mapping[str, str]]]:
    rows = EvaluationRun.objects.filter(pk__in=set(runs)).order_by()
    return dict(rows.values_list("pk", "proposition_digests"))


def _compared(sides: Sides, parts: Parts, digests: Mapping[int, Mapping[str, Mapping[str, str]]]) -> Compared:
    moves: list[Move] = []
    changed: list[str] = []
    then_shares: dict[tuple[str, str], Share] = {}
    now_shares: dict[tuple[str, str], Share] = {}
    for dimension, before in sides.then.items():
        run = sides.now[dimension].pk if dimension in sides.now else None
        for (name, proposition), now in parts.get(run or 0, {}).items():
            then = parts.get(before, {}).get((dimension, proposition))
            if name != dimension or run is None or then is None:
                continue
            old, new = (digests.get(pk, {}).get(dimension, {}).get(proposition) for pk in (before, run))
            if None not in (old, new) and old != new:
                changed.append(f"{dimension}/{proposition}")
                continue
            if then.by_message and now.by_message:
                then_shares[dimension, proposition], now_shares[dimension, proposition] = then.share, now.share
            if then.mean is not None and now.mean is not None:
                moves.append(
                    Move(
                        dimension=dimension,
                        proposition=proposition,
                        then=then,
                        now=now,
                        then_run=before,
                        now_run=run,
                    )
                )
    runs = {*sides.then.values(), *(run.pk for run in sides.now.values())}
    measured = {pk: _by_dimension(parts.get(pk, {})) for pk in runs}
    return Compared(
        moves=sorted(moves, key=lambda move: (move.delta, move.dimension, move.proposition)),
        changed=sorted(changed),
        lost=lost_propositions(then_shares, now_shares),
        then={d: measured[pk][d] for d, pk in sides.then.items() if d in measured[pk]},
        now={d: measured[run.pk][d] for d, run in sides.now.items() if d in measured[run.pk]},
    )


def _by_dimension(parts: Mapping[tuple[str, str], Part]) -> dict[str, tuple[Share, Share]]:
    """How much was scored per dimension: of all, and of what is judged message by message."""
    found: dict[str, tuple[Share, Share]] = {}
    for (dimension, _), part in parts.items():
        all_of, by_message = found.get(dimension, (NOTHING, NOTHING))
        found[dimension] = (all_of + part.share, by_message + part.share if part.by_message else by_message)
    return found


def _sure(compared: Mapping[int, Compared], *, tested: bool) -> dict[int, Compared]:
    """The same with the chance of each difference, corrected for everything that is looked at together (Holm)."""
    chances = {
        (agent, number): p
        for agent, found in compared.items()
        for number, move in enumerate(found.moves)
        if tested and (p := welch_p(move.then, move.now)) is not None
    }
    corrected = dict(zip(chances, holm(list(chances.values())), strict=True))
    return {
        agent: replace(
            found, moves=[replace(move, p=corrected.get((agent, number))) for number, move in enumerate(found.moves)]
        )
        for agent, found in compared.items()
    }


def welch_p(then: Part, now: Part) -> float | None:
    """Two-sided p of no difference between the means of two samples of messages (Welch); None for fewer than two messages on a side.

    As in `evaluation.comparison.chance`, no variance is taken to be smaller than the rounding of scores to whole numbers gives.
    """
    from scipy.special import stdtr

    if min(then.n, now.n) < 2:
        return None
    variances = []
    for side in (then, now):
        spread = max(0.0, side.squares - side.total**2 / side.n) / (side.n - 1)
        variances.append((max(spread, RESOLUTION**2 / 12) / side.n, side.n - 1))
    total = sum(variance for variance, _ in variances)
    freedom = total**2 / sum(variance**2 / free for variance, free in variances)
    delta = now.total / now.n - then.total / then.n
    return float(2 * stdtr(freedom, -abs(delta) / math.sqrt(total)))


def _mean(parts: Iterable[Part]) -> float | None:
    """None where nothing was scored, or nothing of it has a weight."""
    rows = [(part.weight * part.scored, part.mean) for part in parts if part.mean is not None]
    weights = sum(weight for weight, _ in rows)
    return round(sum(weight * mean for weight, mean in rows) / weights, 4) if weights else None
