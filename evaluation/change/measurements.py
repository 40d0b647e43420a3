"""One measurement of an agent or a channel, to be compared with another: every scored judgement, clustered by what was judged."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low
from typing import Any

from django.db.models import Case, Q, When
from django.utils import timezone

from agents.models import Message
from evaluation.change.change import DELETED, mean_of
from evaluation.models import BY_MESSAGE, COUNTED, Baseline, ChannelShare, EvaluationRun, EvaluationScore
from evaluation.runs.summary import COVERABLE, NOTHING, WITHOUT_SCORE, Share, total, why_too_little
from evaluation.scorers import SCORERS
from evaluation.statistics.bootstrap import Observation

PARTS = ("scores", "proposition_scores", "observations", "unscored", "judged", "digests", "shares", "by_message", "reasons")  # fmt: skip


class NotComparable(ValueError):
    """Two measurements cannot be compared: another judge, another procedure, other things measured. Says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was measured of one target, from evaluations or from a file.

    Attributes:
        name: How it is called for people: ``baseline of 2026-11-20``, ``build=41``, ``FILE``.
        target: Slug of the agent, or ``#`` and that of the channel.
        judge: Model that judged.
        procedure: As `EvaluationRun.procedure`.
        persona_digest: Of the persona it was measured under; empty when not known.
        scores: Mean per dimension, 0 to 9, None when nothing was scored; counts for counted dimensions.
        proposition_scores: The same per dimension and proposition.
        observations: Scored judgements per dimension and proposition: mean of the repeats, weight of the proposition. The cluster is
            a text: ``message:KEY`` the message judged, ``situation:ID`` where speech was simulated (so that the same situations pair),
            ``channel:SLUG`` for an agent's channel dimensions, ``repeat:N`` where a whole window is judged at once. Missing for a file
            that holds none.
        counted: Dimensions that are counts (ideas): in no 0–9 comparison.
        unscored: Judgements that could not be made, per dimension; `judged` those that were settled at all.
        evaluation_run: Its row; None for a file, and where several evaluations are behind it.
        scope: Which messages, as people say it, e.g. ``7d, build=41``; empty: all; None where that is not known.
        where: The tags its messages have; None where that is not known.
        digests: Per dimension and proposition, of everything in it that can change a score; missing where that is not known.
        shares: Per dimension and proposition how much was scored of what the judge can score; missing where that is not known.
        by_message: The same of what is judged message by message.
        reasons: Why dimensions have no score although there was something to score.
    """

    name: str
    target: str
    judge: str
    procedure: str
    persona_digest: str = ""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    proposition_scores: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    observations: Mapping[str, Mapping[str, tuple[Observation, ...]]] = field(default_factory=dict)
    counted: frozenset[str] = frozenset()
    unscored: Mapping[str, int] = field(default_factory=dict)
    judged: Mapping[str, int] = field(default_factory=dict)
    evaluation_run: int | None = None
    scope: str | None = None
    where: Mapping[str, str] | None = None
    digests: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    shares: Mapping[str, Mapping[str, Share]] = field(default_factory=dict)
    by_message: Mapping[str, Mapping[str, Share]] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    def share(self, dimension: str, proposition: str = "") -> Share | None:
        """How much was scored, of a dimension or one proposition in it; None where that is not known."""
        shares = self.shares.get(dimension, {})
        return shares.get(proposition) if proposition else total(shares.values()) if shares else None


def measurement_of(run: EvaluationRun, *, name: str = "", dimensions: Collection[str] | None = None) -> Measurement:
    """A completed evaluation, in two queries; one more for an agent's channels.

    Args:
        run: Of an agent or of a channel.
        name: What people call it; default ``evaluation N of DATE``.
        dimensions: Only these; default all the run measured.

    Raises:
        NotComparable: The evaluation is not completed: what it has is partial.
    """
    target = run.agent.slug if run.agent is not None else f"#{run.channel.slug}" if run.channel else ""
    if run.status != EvaluationRun.Status.COMPLETED:
        why = f": {run.error}" if run.error else ""
        raise NotComparable(f"evaluation {run.pk} of {target} is {run.status}{why}; only completed ones compare")
    wanted = [d for d in SCORERS if d in run.dimensions and (dimensions is None or d in dimensions)]
    own, linked = ([d for d in wanted if (d in run.own_dimensions) is here] for here in (True, False))
    digests = {d: dict(of) for d, of in run.proposition_digests.items() if d in own}
    channels: list[ChannelShare] = []
    if linked:
        shares = run.channel_shares.select_related("channel_run__channel")
        channels = list(shares.exclude(channel_run__status__in=WITHOUT_SCORE))
        for dimension in linked:  # a channel can have its own wording, so the digests of all are joined
            joined: dict[str, set[str]] = defaultdict(set)
            for share in channels:
                for proposition, digest in share.channel_run.proposition_digests.get(dimension, {}).items():
                    joined[proposition].add(digest)
            digests[dimension] = {p: "+".join(sorted(all_of)) for p, all_of in joined.items()}
    tags = [] if run.simulated else [f"{key}={value}" for key, value in sorted(run.where.items())]
    day = timezone.localtime(run.finished_at or run.created_at).date().isoformat()
    scope = [] if run.window == "all" else [run.window]
    judged = _Judged(run, own, linked, channels)
    reasons = {d: why for d, by in judged.by_message.items() if (why := why_too_little(total(by.values())))}
    return Measurement(
        name=name or f"evaluation {run.pk} of {day}" + (f" ({', '.join(tags)})" if tags else ""),
        target=target,
        judge=run.judge,
        procedure=run.procedure,
        persona_digest=run.persona_digest,
        scores={d: None if d in reasons else judged.score(d) for d in wanted},
        proposition_scores={d: judged.proposition_scores(d) for d in wanted},
        observations={d: {p: tuple(rows) for p, rows in by.items() if rows} for d, by in judged.observations.items()},
        counted=frozenset(d for d in wanted if d in COUNTED),
        unscored=judged.unscored,
        judged=judged.settled,
        evaluation_run=run.pk,
        scope=", ".join([*scope, *tags, *(["evenly by position"] if run.position_bins else [])]),
        where={} if run.simulated else run.where,
        digests=digests,
        shares=judged.shares,
        by_message=judged.by_message,
        reasons=reasons,
    )


def measurement_of_runs(runs: Mapping[str, EvaluationRun]) -> Measurement:
    """Evaluations of one agent, judge and procedure as one, each in its dimensions; at least one, the newest last."""
    by_key = {run.pk: run for run in runs.values()}
    parts = [measurement_of(run, dimensions=[d for d, r in runs.items() if r.pk == pk]) for pk, run in by_key.items()]
    if len(parts) == 1:
        return parts[0]
    name = "; ".join(f"{', '.join(part.scores)}: {part.name}" for part in parts)
    scope = parts[0].scope if len({part.scope for part in parts}) == 1 else None
    return replace(parts[-1], **_merged(parts), name=name, evaluation_run=None, scope=scope)


def measurement_of_baselines(baselines: Iterable[Baseline], candidate: Measurement | None = None) -> Measurement:
    """Baselines of one agent, judge and procedure as one; each dimension may come from a run of its own.

    Args:
        baselines: At least one.
        candidate: What it will be compared with: a persona that changed since in any dimension is then seen.
    """
    rows = sorted(baselines, key=lambda b: (b.captured_at, b.pk))
    days = list(dict.fromkeys(b.captured_at.date().isoformat() for b in rows))
    runs = {b.evaluation_run_id: b.evaluation_run for b in rows}
    parts = [
        measurement_of(run, dimensions=[b.dimension for b in rows if b.evaluation_run_id == pk])
        for pk, run in runs.items()
    ]
    digests = [b.persona_digest for b in rows]
    return replace(
        parts[-1],
        **_merged(parts),
        name=f"baseline of {days[0]}" if len(days) == 1 else f"baselines of {days[0]} to {days[-1]}",
        persona_digest=next((d for d in digests if candidate and d and d != candidate.persona_digest), digests[-1]),
        evaluation_run=parts[-1].evaluation_run if len(parts) == 1 else None,
    )


def _merged(parts: Sequence[Measurement]) -> dict[str, Any]:
    """What measurements of different dimensions hold together."""
    merged = {name: {k: v for part in parts for k, v in getattr(part, name).items()} for name in PARTS}
    where = parts[0].where if all(part.where == parts[0].where for part in parts) else None
    return {**merged, "counted": frozenset().union(*(part.counted for part in parts)), "where": where}


Shares = dict[str, dict[str, Share]]  # by dimension and proposition


class _Judged:
    """The judgements of a run, and of its agent's channels: observations per dimension and proposition, and how much was (not) judged.

    What is judged message by message is the mean of the repeats of each message. What is judged over a window has one observation per
    channel; with one window alone its repeats, which share one weight so that their mean counts once. A channel's propositions share out
    the weight of the agent's messages there, so that the weighted mean of the observations is the mean of the channels' scores weighted
    by messages. What adherence judges over the window is in it with judgements of messages, and is compared on its own.
    """

    def __init__(
        self, run: EvaluationRun, own: Sequence[str], linked: Sequence[str], channels: Sequence[ChannelShare]
    ) -> None:
        dimensions = (*own, *linked)
        self.observations: dict[str, dict[str, list[Observation]]] = {d: {} for d in dimensions}
        self.counts: dict[str, dict[str, int | None]] = {d: {} for d in dimensions if d in COUNTED}
        self.unscored, self.settled = dict.fromkeys(dimensions, 0), dict.fromkeys(dimensions, 0)
        self.shares: Shares = {d: {} for d in dimensions}
        self.by_message: Shares = {d: {} for d in dimensions}
        messages: dict[tuple[str, str, int], list[tuple[int | None, float, bool]]] = defaultdict(list)
        windows: dict[tuple[str, str], dict[int, _Window]] = defaultdict(lambda: defaultdict(_Window))
        where = Q(evaluation_run=run, dimension__in=own)
        where |= Q(evaluation_run__in=[c.channel_run_id for c in channels], dimension__in=linked)
        rows = EvaluationScore.objects.filter(where).order_by("pk")
        rows = rows.annotate(coverable=Case(When(COVERABLE, then=True), default=False))
        fields = ("message", "repeat", "status", "score", "count", "weight", "over_window", "coverable")
        for (
            part,
            dimension,
            proposition,
            message,
            repeat,
            status,
            score,
            count,
            weight,
            over_window,
            coverable,
        ) in rows.values_list("evaluation_run", "dimension", "proposition_id", *fields).iterator():
            self.settled[dimension] += status != "pending"
            self.unscored[dimension] += status == "unscored"
            of = self.observations[dimension].setdefault(proposition, [])
            value = score if status == "scored" else None
            if message is not None:
                messages[dimension, proposition, message].append((value, weight, coverable))
                continue
            deleted = dimension in BY_MESSAGE and not over_window
            if repeat == 1:
                self._add_share(dimension, proposition, Share(int(status == "scored"), int(coverable)), deleted)
            window = windows[dimension, proposition][part]
            if status == "scored" and count is not None:
                window.counts[repeat] = count
            elif value is not None and deleted:
                of.append(Observation(float(value), weight, DELETED))
            elif value is not None:
                window.scores.append((repeat, value, weight))
        self._add_messages(run, messages)
        self._add_windows(windows, {c.channel_run_id: c for c in channels})

    def _add_share(self, dimension: str, proposition: str, share: Share, by_message: bool) -> None:
        for shares in (self.shares, self.by_message) if by_message else (self.shares,):
            shares[dimension][proposition] = shares[dimension].get(proposition, NOTHING) + share

    def _add_messages(
        self, run: EvaluationRun, messages: Mapping[tuple[str, str, int], Sequence[tuple[int | None, float, bool]]]
    ) -> None:
        keys = dict(_clusters(run)) if messages else {}
        for (dimension, proposition, message), rows in messages.items():
            scores = [score for score, _, _ in rows if score is not None]
            coverable = any(coverable for _, _, coverable in rows)
            self._add_share(dimension, proposition, Share(int(bool(scores)), int(coverable)), dimension in BY_MESSAGE)
            if scores:
                heaviest = max(weight for _, weight, _ in rows)
                one = Observation(sum(scores) / len(scores), heaviest, keys.get(message, DELETED))
                self.observations[dimension][proposition].append(one)

    def _add_windows(
        self, windows: Mapping[tuple[str, str], Mapping[int, _Window]], channels: Mapping[int, ChannelShare]
    ) -> None:
        weights: dict[tuple[str, int], float] = defaultdict(float)  # of all propositions, by dimension and window
        for (dimension, _), parts in windows.items():
            for part, window in parts.items():
                weights[dimension, part] += window.scores[0][2] if window.scores else 0.0
        for (dimension, proposition), parts in windows.items():
            of = self.observations[dimension][proposition]
            if dimension in COUNTED:
                by_part = [window.counts for window in parts.values() if window.counts]
                repeats = sorted(set.intersection(*map(set, by_part))) if by_part else []  # those no channel lacks
                of += (Observation(float(sum(by[n] for by in by_part)), 1.0, f"repeat:{n}") for n in repeats)
                self.counts[dimension][proposition] = (
                    sum(median_low(by.values()) for by in by_part) if by_part else None
                )
                continue
            alone = sum(name == dimension and weight > 0 for (name, _), weight in weights.items()) == 1
            for part, rows in ((part, window.scores) for part, window in parts.items() if window.scores):
                if alone:
                    of += (Observation(float(score), weight / len(rows), f"repeat:{n}") for n, score, weight in rows)
                    continue
                link = channels.get(part)
                said, slug = (
                    (link.messages, link.channel_run.channel.slug) if link and link.channel_run.channel else (1, "")
                )
                weight = said * rows[0][2] / weights[dimension, part]
                of.append(Observation(sum(score for _, score, _ in rows) / len(rows), weight, f"channel:{slug}"))

    def score(self, dimension: str) -> float | None:
        if dimension in COUNTED:
            counts = [n for n in self.counts[dimension].values() if n is not None]
            return sum(counts) if counts else None
        return mean_of(o for rows in self.observations[dimension].values() for o in rows)

    def proposition_scores(self, dimension: str) -> dict[str, float | None]:
        if dimension in COUNTED:
            return dict(sorted(self.counts[dimension].items()))
        return {p: mean_of(rows) for p, rows in sorted(self.observations[dimension].items())}


@dataclass(slots=True)
class _Window:
    """One proposition over one window: (repeat, score, weight) of each scored judgement, and the count of each repeat."""

    scores: list[tuple[int, int, float]] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)


def _clusters(run: EvaluationRun) -> Iterator[tuple[int, str]]:
    """What the scores of each judged message belong together by: the message, or the situation that was simulated.

    A message's key is made of its channel, its id there and its text, so that it means the same in a file and in another database.
    Positions and repeats of one situation are no independent samples of how the agent behaves; with one situation alone, each repeat is.
    """
    judged = EvaluationScore.objects.filter(evaluation_run=run, status="scored", message__isnull=False)
    messages = Message.objects.filter(pk__in=judged.values("message")).order_by()
    if not run.simulated:
        for pk, channel, name, text in messages.values_list("pk", "channel__slug", "external_id", "text").iterator():
            content = "\0".join((channel, name, text)).encode(errors="replace")
            yield pk, f"message:{hashlib.blake2s(content, digest_size=6).hexdigest()}"
        return
    tags = dict(messages.values_list("pk", "tags").iterator())
    one_situation = len({of.get("situation", "") for of in tags.values()}) == 1
    for pk, of in tags.items():
        again = f"/{of.get('repeat', '1')}" if one_situation else ""
        yield pk, f"situation:{of.get('situation', '')}{again}"
