"""Two measurements of one target, compared (AC-6.5.4): the functions that commands, pages and programs use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agents.persona import changes_between
from evaluation.baselines import get_baseline
from evaluation.comparison.as_json import comparison_json
from evaluation.comparison.chance import adjusted
from evaluation.comparison.changes import change_of
from evaluation.comparison.file_sides import UnreadableSides, side_json, sides_of_file
from evaluation.comparison.lost import lost_propositions
from evaluation.comparison.selection import (
    asked_on_both,
    of_dimension,
    of_proposition,
    only_scored_once,
    over_window,
    reworded,
)
from evaluation.comparison.sides import side_of_run
from evaluation.comparison.values import Change, Comparison, NotComparable, Side
from evaluation.models import Baseline, EvaluationRun, is_heuristic
from evaluation.runs.coverage import Share
from evaluation.scorers import SCORERS
from evaluation.statistics.difference import MARGIN

__all__ = [
    "UnreadableSides",
    "adjusted",
    "baseline_side",
    "compare",
    "compare_runs",
    "compare_to_baseline",
    "comparison_json",
    "side_json",
    "side_of_run",
    "side_of_runs",
    "sides_of_file",
]

Changes = Callable[[str, str, str], Iterable[object]]
NONE_IN_COMMON = "no proposition was scored on both sides"


def compare(
    baseline: Side,
    current: Side,
    *,
    margin: float = MARGIN,
    propositions: bool = True,
    changes: Changes = lambda target, before, after: (),
) -> Comparison:
    """The change from one measurement to another, per dimension and per proposition.

    A dimension's change is that of the propositions that were asked on both sides and are still the same; where some are not, its scores
    here are not those of the runs, and a note says so. Several comparisons that are looked at together go through `adjusted` together.

    Args:
        baseline: Before.
        current: Now.
        margin: Half-width of "no change", in points, more than 0.
        propositions: Whether to look at each proposition, too.
        changes: Told of the target and two digests of its persona, says what changed between them (`agents.persona`).

    Raises:
        NotComparable: Another target, judge or procedure; names both.
    """
    _check(baseline, current)
    common = [d for d in SCORERS if d in baseline.scores and d in current.scores]
    changed = tuple(
        f"{d}/{p}" for d in common for p in asked_on_both(baseline, current, d) if reworded(baseline, current, d, p)
    )
    one_sided = [
        name for d in common for p in only_scored_once(baseline, current, d) if (name := f"{d}/{p}") not in changed
    ]
    dimensions, by_proposition, windows = [], {}, []
    personas = (current.target, baseline.persona_digest, current.persona_digest)
    persona_changes = tuple(map(str, changes(*personas))) if _stale(baseline, current) else ()
    notes = _notes(baseline, current, changed, persona_changes)
    for dimension in common:
        same = [p for p in asked_on_both(baseline, current, dimension) if f"{dimension}/{p}" not in changed]
        once = over_window(baseline, current, dimension, same)
        windows += [f"{dimension}/{p}" for p in once]
        sides = of_dimension(baseline, current, dimension, [p for p in same if p not in once])
        heuristic, counted = is_heuristic(current.judge), dimension in baseline.counted | current.counted
        change = change_of(*sides, dimension=dimension, margin=margin, counted=counted, heuristic=heuristic)
        why = "; ".join(
            f"{reason} {when}"
            for reason, when in ((baseline.reasons.get(dimension), "before"), (current.reasons.get(dimension), "now"))
            if reason
        )
        if why:
            change = _without_score(change, baseline, current, why)
        elif change.delta is None and None not in (baseline.scores[dimension], current.scores[dimension]):
            change = replace(change, reason=NONE_IN_COMMON, interval_note=NONE_IN_COMMON)
        dimensions.append(_with_shares(change, baseline, current))
        if propositions:
            rows = [
                _with_shares(
                    change_of(
                        of_proposition(baseline, dimension, name),
                        of_proposition(current, dimension, name),
                        dimension=dimension,
                        proposition=name,
                        margin=margin,
                        counted=counted,
                        heuristic=heuristic,
                    ),
                    baseline,
                    current,
                )
                for name in same
            ]
            by_proposition[dimension] = tuple(sorted(rows, key=_worst_first))
    return adjusted(
        [
            Comparison(
                baseline=baseline,
                current=current,
                dimensions=tuple(dimensions),
                propositions=by_proposition,
                only_baseline=_only(baseline, current, common),
                only_current=_only(current, baseline, common),
                changed=changed,
                one_sided=tuple(one_sided),
                stale=_stale(baseline, current),
                persona_changes=persona_changes,
                over_window=tuple(windows),
                lost=lost_propositions(*(_by_message(side, common, changed) for side in (baseline, current))),
                margin=margin,
                notes=tuple(notes),
            )
        ]
    )[0]


def compare_to_baseline(
    run: EvaluationRun, *, margin: float = MARGIN, dimensions: Collection[str] = (), propositions: bool = True
) -> Comparison | None:
    """A completed run against its agent's current baselines of the same judge and procedure (AC-6.5.4).

    Args:
        run: Of an agent.
        margin: As in `compare`.
        dimensions: Only these; default all the run measured.
        propositions: As in `compare`.

    Returns:
        None where there is no baseline in any of the dimensions but the run itself, or the target is a channel.

    Raises:
        NotComparable: The run is not completed.
    """
    runs = dict.fromkeys(run.dimensions, run)
    return compare_runs(runs, margin=margin, dimensions=dimensions, propositions=propositions)


def compare_runs(
    runs: Mapping[str, EvaluationRun],
    *,
    margin: float = MARGIN,
    dimensions: Collection[str] = (),
    propositions: bool = True,
) -> Comparison | None:
    """The same where each dimension may come from an evaluation of its own, such as the newest evidence.

    Args:
        runs: By dimension, at least one, the newest last; of one agent, judge and procedure.
        margin, dimensions, propositions: As in `compare_to_baseline`.
    """
    last = list(runs.values())[-1]
    if last.agent is None:
        return None
    found = get_baseline(agent=last.agent, judge=last.judge, procedure=last.procedure)
    wanted = {d: run for d, run in runs.items() if d in found and (not dimensions or d in dimensions)}
    rows = [found[d] for d, run in wanted.items() if found[d].evaluation_run_id != run.pk]
    if not rows:
        return None
    current = side_of_runs({b.dimension: wanted[b.dimension] for b in rows})
    return compare(
        baseline_side(rows, current), current, margin=margin, propositions=propositions, changes=changes_between
    )


def side_of_runs(runs: Mapping[str, EvaluationRun]) -> Side:
    """Evaluations of one agent, judge and procedure as one side, each in its dimensions; at least one, the newest last."""
    dimensions: dict[int, list[str]] = {}
    for name, run in runs.items():
        dimensions.setdefault(run.pk, []).append(name)
    by_key = {run.pk: run for run in runs.values()}
    sides = [side_of_run(by_key[pk], dimensions=names) for pk, names in dimensions.items()]
    if len(sides) == 1:
        return sides[0]
    scopes = {side.scope for side in sides}
    return replace(
        sides[-1],
        **_merged(sides),
        name="; ".join(f"{', '.join(side.scores)}: {side.name}" for side in sides),
        evaluation_run=None,
        scope=sides[0].scope if len(scopes) == 1 else None,
    )


def baseline_side(baselines: Iterable[Baseline], current: Side | None = None) -> Side:
    """Baselines of one agent, judge and procedure as one side; each dimension may come from a run of its own.

    Args:
        baselines: At least one.
        current: What it will be compared with: a persona that changed since in any dimension is then seen.
    """
    rows = sorted(baselines, key=lambda b: (b.captured_at, b.pk))
    days = list(dict.fromkeys(b.captured_at.date().isoformat() for b in rows))
    sides = [
        side_of_run(run, dimensions=[b.dimension for b in rows if b.evaluation_run_id == run.pk])
        for run in {b.evaluation_run_id: b.evaluation_run for b in rows}.values()
    ]
    digests = [b.persona_digest for b in rows]
    other = next((d for d in digests if current is not None and d and d != current.persona_digest), digests[-1])
    return replace(
        sides[-1],
        **_merged(sides),
        name=f"baseline of {days[0]}" if len(days) == 1 else f"baselines of {days[0]} to {days[-1]}",
        persona_digest=other,
        evaluation_run=sides[-1].evaluation_run if len(sides) == 1 else None,
    )


def _without_score(change: Change, baseline: Side, current: Side, why: str) -> Change:
    """The change of a dimension that has no score on a side because too little was scored there."""
    before, now = (side.scores.get(change.dimension) for side in (baseline, current))
    return Change(
        dimension=change.dimension,
        baseline=before,
        current=now,
        delta=None,
        interval=None,
        interval_note=why,
        verdict="not enough data",
        reason=why,
        n=change.n,
        baseline_n=change.baseline_n,
        unit=change.unit,
    )


def _with_shares(change: Change, baseline: Side, current: Side) -> Change:
    name = (change.dimension, change.proposition)
    return replace(change, share=current.share(*name), baseline_share=baseline.share(*name))


def _by_message(side: Side, dimensions: Iterable[str], changed: Collection[str]) -> dict[tuple[str, str], Share]:
    """How much was scored of each proposition that is judged message by message and still the same."""
    return {
        (d, p): share
        for d in dimensions
        for p, share in side.by_message.get(d, {}).items()
        if f"{d}/{p}" not in changed
    }


def _merged(sides: Sequence[Side]) -> dict[str, Any]:
    """What sides of different dimensions hold together."""
    names = (
        "scores",
        "proposition_scores",
        "observations",
        "unscored",
        "judged",
        "digests",
        "shares",
        "by_message",
        "reasons",
    )
    merged = {name: {k: v for side in sides for k, v in getattr(side, name).items()} for name in names}
    where = sides[0].where if all(side.where == sides[0].where for side in sides) else None
    return {**merged, "counted": frozenset().union(*(side.counted for side in sides)), "where": where}


def _check(baseline: Side, current: Side) -> None:
    if baseline.target != current.target:
        raise NotComparable(
            f"{baseline.name} is of {baseline.target}, {current.name} of {current.target}: only measurements of the same one compare"
        )
    if baseline.judge != current.judge:
        raise NotComparable(
            f"{baseline.target}: {baseline.name} was judged by {_judge(baseline)}, {current.name} by {_judge(current)}; scores of "
            "different judges do not compare: measure both with one of them"
        )
    if baseline.procedure != current.procedure:
        raise NotComparable(
            f"{baseline.target}: {baseline.name} was judged as {baseline.procedure}, {current.name} as {current.procedure}; scores of "
            "different procedures do not compare: measure both in the same way"
        )


def _judge(side: Side) -> str:
    return f"{side.judge} (heuristic)" if is_heuristic(side.judge) else side.judge


def _stale(baseline: Side, current: Side) -> bool:
    return (
        bool(baseline.persona_digest and current.persona_digest) and baseline.persona_digest != current.persona_digest
    )


def _only(side: Side, other: Side, common: Iterable[str]) -> tuple[str, ...]:
    dimensions = [d for d in SCORERS if d in side.scores and d not in other.scores]
    asked: Mapping[str, Mapping[str, float | None]] = other.proposition_scores
    rows = [f"{d}/{p}" for d in common for p in side.proposition_scores.get(d, {}) if p not in asked.get(d, {})]
    return (*dimensions, *rows)


def _notes(baseline: Side, current: Side, changed: tuple[str, ...], persona_changes: tuple[str, ...]) -> list[str]:
    notes = []
    if _stale(baseline, current):
        what = f" ({'; '.join(persona_changes)})" if persona_changes else ""
        notes.append(f"the persona was edited between the two{what}: a difference is not drift alone")
    if None not in (baseline.scope, current.scope) and baseline.scope != current.scope:
        said = [side.scope in side.name for side in (baseline, current) if side.scope]
        if not all(said):
            notes.append(f"of other messages: before {baseline.scope or 'all'}, now {current.scope or 'all'}")
    if changed:
        why = "its words, weight or rule, or the trait it speaks of, changed"
        notes.append(f"not the same proposition any more, so not compared: {', '.join(changed)} ({why})")
    for side in (baseline, current):
        if not side.digests and any(side.proposition_scores.values()):
            notes.append(f"{side.name} does not say how its propositions were worded; they are taken to be the same")
    return notes


def _worst_first(change: Change) -> tuple[bool, float, str]:
    return (change.delta is None, change.delta or 0.0, change.proposition)
