"""One side of a comparison from an evaluation run: every scored judgement, clustered by what was judged."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from statistics import median_low

from django.db.models import Avg, Case, Count, Max, Q, When
from django.utils import timezone

from agents.models import Message
from evaluation.comparison.linked_sides import LinkedPart, linked_observations, linked_parts, repeats_of_one
from evaluation.comparison.values import NotComparable, Side
from evaluation.models import BY_MESSAGE, COUNTED, EvaluationRun, EvaluationScore
from evaluation.runs.coverage import COVERABLE, NOTHING, Share, total, why_too_little
from evaluation.runs.summary import rounded
from evaluation.scorers import SCORERS
from evaluation.statistics.bootstrap import Observation

DELETED = "message:deleted"
ByProposition = dict[str, dict[str, list[Observation]]]


def side_of_run(run: EvaluationRun, *, name: str = "", dimensions: Collection[str] | None = None) -> Side:
    """A completed run as one side of a comparison, in three queries; two more for an agent's channels.

    Args:
        run: Of an agent or of a channel.
        name: What people call it; default ``evaluation N of DATE``.
        dimensions: Only these; default all the run measured.

    Raises:
        NotComparable: The run is not completed: what it has is partial.
    """
    if run.status != EvaluationRun.Status.COMPLETED:
        why = f": {run.error}" if run.error else ""
        raise NotComparable(
            f"evaluation {run.pk} of {target_of(run)} is {run.status}{why}; only completed ones compare"
        )
    wanted = [d for d in SCORERS if d in run.dimensions and (dimensions is None or d in dimensions)]
    tally = _Tally(wanted)
    _add_messages(tally, run)
    _add_windows(tally, run)
    digests = {d: dict(found) for d, found in run.proposition_digests.items() if d in wanted}
    linked = [d for d in wanted if d not in run.own_dimensions]
    if linked:
        parts = linked_parts(run, linked)
        _add_linked(tally, parts)
        digests |= _linked_digests(parts, linked)
    tags = f" ({', '.join(_tags(run))})" if _tags(run) else ""
    return Side(
        name=name or f"evaluation {run.pk} of {_day(run)}{tags}",
        target=target_of(run),
        judge=run.judge,
        procedure=run.procedure,
        persona_digest=run.persona_digest,
        scores=tally.scores(),
        proposition_scores=tally.proposition_scores(),
        observations={d: {p: tuple(rows) for p, rows in by.items() if rows} for d, by in tally.observations.items()},
        counted=frozenset(d for d in wanted if d in COUNTED),
        unscored=dict(tally.unscored),
        judged=dict(tally.judged),
        simulated=run.simulated,
        evaluation_run=run.pk,
        scope=_scope(run),
        shares=tally.shares,
        by_message=tally.by_message,
        reasons=tally.reasons(),
        where={} if run.simulated else run.where,
        digests=digests,
    )


def target_of(run: EvaluationRun) -> str:
    """The agent's slug, or ``#`` and the channel's."""
    if run.agent is not None:
        return run.agent.slug
    return f"#{run.channel.slug}" if run.channel else ""


def mean_of(observations: Iterable[Observation]) -> float | None:
    """Σ weight · value ÷ Σ weight, as scores are stored; None without any."""
    rows = [(o.weight * o.value, o.weight) for o in observations]
    weight = sum(w for _, w in rows)
    return rounded(sum(points for points, _ in rows) / weight) if weight else None


class _Tally:
    """What is gathered of a run: observations per dimension and proposition, counts, and how much was (not) judged."""

    def __init__(self, dimensions: Iterable[str]) -> None:
        self.observations: ByProposition = {d: {} for d in dimensions}
        self.counts: dict[str, dict[str, int | None]] = {d: {} for d in dimensions if d in COUNTED}
        self.unscored: dict[str, int] = dict.fromkeys(self.observations, 0)
        self.judged: dict[str, int] = dict.fromkeys(self.observations, 0)
        self.shares: dict[str, dict[str, Share]] = {d: {} for d in self.observations}
        self.by_message: dict[str, dict[str, Share]] = {d: {} for d in self.observations}

    def add(self, dimension: str, proposition: str, *observations: Observation) -> None:
        self.observations[dimension].setdefault(proposition, []).extend(observations)

    def settled(self, dimension: str, *, judged: int, unscored: int) -> None:
        self.judged[dimension] += judged
        self.unscored[dimension] += unscored

    def share(self, dimension: str, proposition: str, found: Share, *, by_message: bool) -> None:
        for shares in (self.shares, self.by_message) if by_message else (self.shares,):
            shares[dimension][proposition] = shares[dimension].get(proposition, NOTHING) + found

    def reasons(self) -> dict[str, str]:
        found = {d: why_too_little(total(by.values())) for d, by in self.by_message.items()}
        return {d: why for d, why in found.items() if why}

    def scores(self) -> dict[str, float | None]:
        short = self.reasons()
        return {d: None if d in short else self._score(d, by) for d, by in self.observations.items()}

    def _score(self, dimension: str, by: Mapping[str, list[Observation]]) -> float | None:
        if dimension in COUNTED:
            counts = [n for n in self.counts[dimension].values() if n is not None]
            return sum(counts) if counts else None
        return mean_of(o for rows in by.values() for o in rows)

    def proposition_scores(self) -> dict[str, dict[str, float | None]]:
        return {
            d: dict(sorted((self.counts[d] if d in COUNTED else {p: mean_of(rows) for p, rows in by.items()}).items()))
            for d, by in self.observations.items()
        }


def _add_messages(tally: _Tally, run: EvaluationRun) -> None:
    """Judgements of messages (and pairs): the mean of the repeats of each, clustered by the message."""
    keys: dict[int, str] | None = None
    rows = EvaluationScore.objects.filter(
        evaluation_run=run, message__isnull=False, dimension__in=list(tally.observations)
    )
    items = (
        rows.order_by()
        .values_list("dimension", "proposition_id", "message")
        .annotate(
            mean=Avg("score", filter=Q(status="scored")),
            heaviest=Max("weight"),
            judged=Count("pk", filter=~Q(status="pending")),
            missing=Count("pk", filter=Q(status="unscored")),
            coverable=Count("pk", filter=COVERABLE),
        )
    )
    for dimension, proposition, message, mean, weight, judged, missing, coverable in items.iterator(chunk_size=2000):
        tally.settled(dimension, judged=judged, unscored=missing)
        share = Share(int(mean is not None), int(coverable > 0))
        tally.share(dimension, proposition, share, by_message=dimension in BY_MESSAGE)
        if mean is None:
            tally.add(dimension, proposition)
            continue
        if keys is None:
            keys = dict(_clusters(run))
        tally.add(dimension, proposition, Observation(float(mean), weight, keys.get(message, DELETED)))


def _clusters(run: EvaluationRun) -> Iterator[tuple[int, str]]:
    """What the scores of each judged message belong together by: the message, or the situation that was simulated.

    A message's key is made of its channel, its id there and its text, so that it means the same in a file and in another database.
    Turns and repeats of one situation are no independent samples of how the agent behaves; with one situation alone, each time it was
    simulated is.
    """
    judged = EvaluationScore.objects.filter(evaluation_run=run, status="scored", message__isnull=False).values(
        "message"
    )
    messages = Message.objects.filter(pk__in=judged).order_by()
    if not run.simulated:
        for pk, channel, name, text in messages.values_list("pk", "channel__slug", "external_id", "text").iterator():
            content = "\0".join((channel, name, text)).encode(errors="replace")
            yield pk, f"message:{hashlib.blake2s(content, digest_size=6).hexdigest()}"
        return
    tags = dict(messages.values_list("pk", "tags").iterator())
    situations = {t.get("situation", "") for t in tags.values()}
    for pk, found in tags.items():
        again = f"/{found.get('repeat', '1')}" if len(situations) == 1 else ""
        yield pk, f"situation:{found.get('situation', '')}{again}"


def _add_windows(tally: _Tally, run: EvaluationRun) -> None:
    """Judgements of the whole window (and of messages deleted since): each repeat is one.

    What adherence judges over the window stands in it beside judgements of messages, and is compared on its own.
    """
    counts: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    windows: dict[tuple[str, str], list[tuple[int, int, float]]] = defaultdict(list)
    rows = EvaluationScore.objects.filter(
        evaluation_run=run, message__isnull=True, dimension__in=list(tally.observations)
    )
    fields = ("dimension", "proposition_id", "repeat", "status", "score", "count", "weight", "over_window", "coverable")
    rows = rows.annotate(coverable=Case(When(COVERABLE, then=True), default=False))
    for dimension, proposition, repeat, status, score, count, weight, over_window, coverable in (
        rows.order_by("pk").values_list(*fields).iterator()
    ):
        tally.settled(dimension, judged=status != "pending", unscored=status == "unscored")
        tally.add(dimension, proposition)
        if repeat == 1:
            deleted = dimension in BY_MESSAGE and not over_window
            tally.share(dimension, proposition, Share(int(status == "scored"), int(coverable)), by_message=deleted)
        if dimension in COUNTED:
            tally.counts[dimension].setdefault(proposition, None)
            if count is not None:
                counts[dimension, proposition][repeat] = count
        elif status == "scored" and score is not None:
            if dimension in BY_MESSAGE and not over_window:
                tally.add(dimension, proposition, Observation(float(score), weight, DELETED))
            else:
                windows[dimension, proposition].append((repeat, score, weight))
    for (dimension, proposition), scored in windows.items():
        tally.add(dimension, proposition, *repeats_of_one(scored))
    for (dimension, proposition), by_repeat in counts.items():
        tally.counts[dimension][proposition] = median_low(by_repeat.values())
        tally.add(dimension, proposition, *(Observation(n, 1.0, f"repeat:{r}") for r, n in by_repeat.items()))


def _add_linked(tally: _Tally, parts: list[LinkedPart]) -> None:
    for part in parts:
        tally.settled(part.dimension, judged=part.judged, unscored=part.unscored)
        for proposition, share in part.shares.items():
            tally.share(part.dimension, proposition, share, by_message=False)
    for dimension in dict.fromkeys(part.dimension for part in parts):
        found = [part for part in parts if part.dimension == dimension]
        for proposition, observations in linked_observations(found).items():
            tally.add(dimension, proposition, *observations)
        if dimension in COUNTED:
            for part in found:
                for proposition, by_repeat in part.counts.items():
                    before = tally.counts[dimension].get(proposition)
                    if by_repeat:
                        tally.counts[dimension][proposition] = (before or 0) + median_low(by_repeat.values())
                    else:
                        tally.counts[dimension].setdefault(proposition, None)


def _linked_digests(parts: list[LinkedPart], dimensions: Iterable[str]) -> dict[str, dict[str, str]]:
    """Of the propositions asked in an agent's channels; a channel can have its own wording, so the digests of all are joined."""
    found: dict[str, dict[str, set[str]]] = {d: defaultdict(set) for d in dimensions}
    for part in parts:
        for proposition, digest in part.run.proposition_digests.get(part.dimension, {}).items():
            found[part.dimension][proposition].add(digest)
    return {d: {p: "+".join(sorted(all_of)) for p, all_of in by.items()} for d, by in found.items()}


def _day(run: EvaluationRun) -> str:
    return timezone.localtime(run.finished_at or run.created_at).date().isoformat()


def _tags(run: EvaluationRun) -> list[str]:
    return [] if run.simulated else [f"{key}={value}" for key, value in sorted(run.where.items())]


def _scope(run: EvaluationRun) -> str:
    """Which messages; those of a simulation are its own, whatever its name."""
    bins = ["evenly by turn"] if run.turn_bins else []
    return ", ".join([*([] if run.window == "all" else [run.window]), *_tags(run), *bins])
