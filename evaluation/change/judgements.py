"""What an evaluation judged, read from its rows: the dimensions of a measurement, with every scored judgement as an observation."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median_low
from typing import Any, NamedTuple

from django.db.models import Case, Count, Q, When

from agents.models import Message
from evaluation.change.change import DELETED, mean_of
from evaluation.change.measured import MeasuredDimension, MeasuredProposition, dimension_score
from evaluation.dimensions import Dimension
from evaluation.models import BY_MESSAGE, COUNTED, ChannelShare, EvaluationRun, EvaluationScore
from evaluation.runs.numbers import window_statistics
from evaluation.runs.shares import COVERABLE, NOTHING, Share, total, why_too_little
from evaluation.runs.summary import WITHOUT_SCORE
from evaluation.statistics.bootstrap import Observation

COLUMNS = (
    *("dimension", "proposition_id", "evaluation_run", "message", "repeat", "over_window"),
    *("status", "score", "count", "weight", "inclusion_weight", "coverable", "judge", "inverted", "of_ten"),
)


class _MessageJudgement(NamedTuple):
    """One judgement of a message: its score (None: not scored), its weight in means, and whether the judge can score it."""

    score: int | None
    weight: float
    coverable: bool


class _Cluster(NamedTuple):
    """What the scores of a message belong together by: itself, its situation, or its conversation, where `item` is the message."""

    name: str
    item: str | None = None


class _WindowJudgement(NamedTuple):
    """One scored judgement of a whole window."""

    repeat: int
    score: int
    weight: float


@dataclass(slots=True)
class _PropositionJudgements:
    """The judgements of one proposition.

    Attributes:
        by_message: Whether it is judged message by message.
        messages: By message its judgements, one per repeat.
        windows: The same by window: that of the run, or of a channel's run.
        counts: By window the count of each repeat.
        deleted: The scores of messages that were deleted since.
        share_of_others: How much was scored of what belongs to no message, or to one that was deleted.
        unjudged: Whether the judge could not score one of them.
        is_sampled: Whether a conversation of these was kept by chance: then messages of a conversation are drawn together.
        inverted, of_ten, scored, unscored: As of `MeasuredProposition`.
    """

    by_message: bool
    messages: dict[int, list[_MessageJudgement]] = field(default_factory=lambda: defaultdict(list))
    windows: dict[int, list[_WindowJudgement]] = field(default_factory=lambda: defaultdict(list))
    counts: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    deleted: list[Observation] = field(default_factory=list)
    share_of_others: Share = NOTHING
    unjudged: bool = False
    is_sampled: bool = False
    inverted: bool = False
    of_ten: int | None = None
    scored: int = 0
    unscored: int = 0

    def add(self, row: Any) -> None:
        """Add a row of `EvaluationScore` with the fields of `COLUMNS`."""
        is_scored = row.status == "scored"
        is_unscored = row.status == "unscored"
        self.inverted = row.inverted
        self.of_ten = row.of_ten
        self.scored += is_scored
        self.unscored += is_unscored
        if is_unscored and row.judge:
            self.unjudged = True
        if row.inclusion_weight != 1:
            self.is_sampled = True
        score = row.score if is_scored else None
        weight = row.weight * row.inclusion_weight
        # Without a message it is of a window, or its message was deleted.
        if row.message is not None:
            self.messages[row.message].append(_MessageJudgement(score, weight, row.coverable))
            return
        if row.repeat == 1:  # repeats count once
            self.share_of_others += Share(int(is_scored), int(row.coverable))
        if is_scored and row.count is not None:
            self.counts[row.evaluation_run][row.repeat] = row.count
        elif score is not None and self.by_message:
            self.deleted.append(Observation(float(score), weight, DELETED))
        elif score is not None:
            self.windows[row.evaluation_run].append(_WindowJudgement(row.repeat, score, row.weight))

    @property
    def scored_messages(self) -> set[int]:
        scored = set()
        for message, judgements in self.messages.items():
            if any(judgement.score is not None for judgement in judgements):
                scored.add(message)
        return scored

    @property
    def share(self) -> Share:
        """Return how much was scored of what the judge can score; the repeats of a message count once."""
        coverable = 0
        for judgements in self.messages.values():
            coverable += any(judgement.coverable for judgement in judgements)
        return self.share_of_others + Share(len(self.scored_messages), coverable)

    def observations_of_messages(self, clusters: Mapping[int, _Cluster]) -> list[Observation]:
        """Return the mean of the repeats of each message that was scored.

        Args:
            clusters: What the scores of each message belong together by; none of a message that is gone.
        """
        observations = []
        for message, judgements in self.messages.items():
            scores = [judgement.score for judgement in judgements if judgement.score is not None]
            if scores:
                weight = max(judgement.weight for judgement in judgements)
                cluster = clusters.get(message, _Cluster(DELETED))
                mean = sum(scores) / len(scores)
                observations.append(Observation(mean, weight, cluster.name, item=cluster.item))
        return observations


def measured_dimensions(run: EvaluationRun, dimensions: Sequence[str]) -> dict[str, MeasuredDimension]:
    """Return what a run, and the runs of its agent's channels, judged: by dimension, all that are wanted, also those without judgements.

    What is judged message by message is the mean of the repeats of each message. What is judged over a window has one observation per
    channel, or with one window alone its repeats. An exact statistic of a window has the figures of its messages, also where the claim
    itself is unscored.

    Args:
        dimensions: Those of the run that are wanted.
    """
    own = [name for name in dimensions if name in run.own_dimensions]
    # The others were judged by the runs of its agent's channels.
    linked = [name for name in dimensions if name not in run.own_dimensions]
    channels = _channel_shares(run) if linked else {}
    judgements = _read_judgements(run, own, linked, channels)
    clusters = _clusters_of_messages(run, judgements) if _has_messages(judgements) else {}
    statistics = window_statistics(run.figures)
    measured = {}
    for dimension, by_proposition in judgements.items():
        digests = run.proposition_digests.get(dimension, {})
        if dimension in linked:
            digests = _digests_of_channels(channels.values(), dimension)
        exact = statistics.get(dimension, {})
        weights = _weights_of_windows(by_proposition.values())
        propositions = {}
        for proposition, of_proposition in sorted(by_proposition.items()):
            observations = exact.get(proposition)
            if observations is None:
                observations = [*of_proposition.deleted, *of_proposition.observations_of_messages(clusters)]
                observations += _observations_of_windows(of_proposition, weights, channels)
            propositions[proposition] = _measured(dimension, of_proposition, observations, digests.get(proposition, ""))
        measured[dimension] = _measured_dimension(run, dimension, propositions, by_proposition.values())
    return measured


# -- reading
def _channel_shares(run: EvaluationRun) -> dict[int, ChannelShare]:
    """Return by the run of each of the agent's channels how many messages the agent has there; only of channels with a score."""
    shares = run.channel_shares.select_related("channel_run__channel")
    with_score = shares.exclude(channel_run__status__in=WITHOUT_SCORE)
    return {share.channel_run_id: share for share in with_score}


def _read_judgements(
    run: EvaluationRun, own: Sequence[str], linked: Sequence[str], channel_runs: Collection[int]
) -> dict[str, dict[str, _PropositionJudgements]]:
    """Return the judgements by dimension and proposition, in one query.

    Args:
        own: Dimensions that the run itself judged.
        linked: Those that the runs of its agent's channels judged.
        channel_runs: Primary keys of these runs.
    """
    of_run = Q(evaluation_run=run, dimension__in=own)
    of_channels = Q(evaluation_run__in=list(channel_runs), dimension__in=linked)
    rows = EvaluationScore.objects.filter(of_run | of_channels).order_by("pk")
    rows = rows.annotate(coverable=Case(When(COVERABLE, then=True), default=False))
    judgements: dict[str, dict[str, _PropositionJudgements]] = {name: {} for name in (*own, *linked)}
    row: Any
    for row in rows.values_list(*COLUMNS, named=True).iterator():
        by_proposition = judgements[row.dimension]
        if row.proposition_id not in by_proposition:
            by_message = row.dimension in BY_MESSAGE and not row.over_window
            by_proposition[row.proposition_id] = _PropositionJudgements(by_message)
        by_proposition[row.proposition_id].add(row)
    return judgements


def _has_messages(judgements: Mapping[str, Mapping[str, _PropositionJudgements]]) -> bool:
    """Return whether single messages were judged."""
    return any(of_proposition.messages for of_proposition in _of_all_propositions(judgements))


def _of_all_propositions(
    judgements: Mapping[str, Mapping[str, _PropositionJudgements]],
) -> Iterator[_PropositionJudgements]:
    for by_proposition in judgements.values():
        yield from by_proposition.values()


def _clusters_of_messages(
    run: EvaluationRun, judgements: Mapping[str, Mapping[str, _PropositionJudgements]]
) -> dict[int, _Cluster]:
    """Return what the scores of each judged message belong together by: the message, or the situation that was simulated.

    Where conversations were kept by chance, whole ones were drawn: then it is the conversation.
    """
    scores = EvaluationScore.objects.filter(evaluation_run=run, status="scored", message__isnull=False)
    messages = Message.objects.filter(pk__in=scores.values("message")).order_by()
    if run.simulated:
        by_situation = _clusters_by_situation(dict(messages.values_list("pk", "tags").iterator()))
        return {pk: _Cluster(name) for pk, name in by_situation.items()}
    is_sampled = any(of_proposition.is_sampled for of_proposition in _of_all_propositions(judgements))
    clusters: dict[int, _Cluster] = {}
    columns = ("pk", "channel__slug", "external_id", "text", "sent_at", "position")
    for pk, channel, external_id, text, sent_at, position in messages.values_list(*columns).iterator():
        # The same may be said twice, so without an id the time or the position tells messages apart.
        identity = external_id or (sent_at.isoformat() if sent_at else str(position))
        # Of nothing that depends on the database, so that it means the same in a file and in another database.
        key = f"message:{_short_digest(channel, identity, text)}"
        clusters[pk] = _Cluster(key)
        if is_sampled:
            clusters[pk] = _Cluster(f"conversation:{_short_digest(channel)}", item=key)
    return clusters


def _short_digest(*parts: str) -> str:
    return hashlib.blake2s("\0".join(parts).encode(errors="replace"), digest_size=6).hexdigest()


def _clusters_by_situation(tags_of_messages: Mapping[int, Mapping[str, str]]) -> dict[int, str]:
    """Return by message the situation it was simulated in: all repeats of a situation belong together.

    Where there is one situation alone each of its repeats is a cluster of its own: one cluster would be no sample.
    """
    situations = {tags.get("situation", "") for tags in tags_of_messages.values()}
    clusters = {}
    for pk, tags in tags_of_messages.items():
        cluster = f"situation:{tags.get('situation', '')}"
        if len(situations) == 1:
            cluster += f"/{tags.get('repeat', '1')}"
        clusters[pk] = cluster
    return clusters


def _digests_of_channels(channels: Iterable[ChannelShare], dimension: str) -> dict[str, str]:
    """Return the digests of a dimension's propositions; a channel can have its own wording, so those of all are joined."""
    digests_by_proposition: dict[str, set[str]] = defaultdict(set)
    for channel in channels:
        for proposition, digest in channel.channel_run.proposition_digests.get(dimension, {}).items():
            digests_by_proposition[proposition].add(digest)
    return {proposition: "+".join(sorted(digests)) for proposition, digests in digests_by_proposition.items()}


# -- windows
def _weights_of_windows(judgements: Iterable[_PropositionJudgements]) -> dict[int, float]:
    """Return by window the weight of all propositions."""
    weights: dict[int, float] = defaultdict(float)
    for of_proposition in judgements:
        for window, rows in of_proposition.windows.items():
            weights[window] += rows[0].weight
    return weights


def _observations_of_windows(
    judgements: _PropositionJudgements, weights: Mapping[int, float], channels: Mapping[int, ChannelShare]
) -> list[Observation]:
    """Return the judgements of whole windows: one per channel; with one window alone its repeats.

    Repeats share one weight, so that their mean counts once. The propositions of a channel share the weight of the agent's messages
    there, so that the weighted mean of the observations is the mean of the channels' scores weighted by messages.

    Args:
        weights: By window that of all propositions.
        channels: By window, where windows are of channels.
    """
    is_one_window = sum(weight > 0 for weight in weights.values()) == 1
    observations = []
    for window, rows in judgements.windows.items():
        if is_one_window:
            for row in rows:
                observations.append(Observation(float(row.score), row.weight / len(rows), f"repeat:{row.repeat}"))
            continue
        # One window of several that is of no channel any more (it was deleted) weighs as one message.
        share = 1.0
        slug = ""
        channel = channels.get(window)
        if channel is not None and channel.channel_run.channel is not None:
            share = channel.weight
            slug = channel.channel_run.channel.slug
        mean = fmean(row.score for row in rows)
        observations.append(Observation(mean, share * rows[0].weight / weights[window], f"channel:{slug}"))
    return observations


def _count_of_windows(counts_by_window: Sequence[Mapping[int, int]]) -> int:
    """Return the count over all windows; of the repeats of a window the middle one counts."""
    return sum(median_low(counts.values()) for counts in counts_by_window)


def _observations_of_counts(counts_by_window: Sequence[Mapping[int, int]]) -> list[Observation]:
    """Return the count over all windows of each repeat that no window lacks."""
    repeats = set(counts_by_window[0])
    for counts in counts_by_window[1:]:
        repeats &= set(counts)
    observations = []
    for repeat in sorted(repeats):
        count = sum(counts[repeat] for counts in counts_by_window)
        observations.append(Observation(float(count), 1.0, f"repeat:{repeat}"))
    return observations


# -- results
def _measured(
    dimension: str, judgements: _PropositionJudgements, observations: Sequence[Observation], digest: str
) -> MeasuredProposition:
    """Return one proposition as it was measured; of counted ideas the counts take the place of the observations.

    Args:
        digest: Of everything in the proposition that can change a score; empty where that is not known.
    """
    score = mean_of(observations)
    if dimension in COUNTED and judgements.counts:
        counts_by_window = list(judgements.counts.values())
        score = _count_of_windows(counts_by_window)
        observations = _observations_of_counts(counts_by_window)
    return MeasuredProposition(
        score=score,
        observations=tuple(observations),
        share=judgements.share,
        by_message=judgements.by_message,
        digest=digest,
        unjudged=score is None and judgements.unjudged,
        inverted=judgements.inverted,
        of_ten=judgements.of_ten,
        scored=judgements.scored,
        unscored=judgements.unscored,
        deleted=len(judgements.deleted),
    )


def _measured_dimension(
    run: EvaluationRun,
    name: str,
    propositions: Mapping[str, MeasuredProposition],
    judgements: Iterable[_PropositionJudgements],
) -> MeasuredDimension:
    """Return a dimension by its propositions; without a score where too little was scored."""
    measured = propositions.values()
    scores = [proposition.score for proposition in measured if proposition.score is not None]
    score = dimension_score(measured)
    if name in COUNTED:
        score = sum(scores) if scores else None
    too_little = why_too_little(
        total(proposition.share or NOTHING for proposition in measured if proposition.by_message)
    )
    messages: set[int] = set()
    scored_messages: set[int] = set()
    for of_proposition in judgements:
        if of_proposition.by_message:
            messages |= of_proposition.messages.keys()
            scored_messages |= of_proposition.scored_messages
    because = ""
    if Dimension(name).kind.judged_by == "pair" and (too_little or not scores):  # self-consistency
        because = _commonest_reason(run, name)
    return MeasuredDimension(
        score=None if too_little else score,
        reason=too_little,
        propositions=propositions,
        messages=len(messages),
        unscored=len(messages - scored_messages),
        unscored_because=because,
    )


def _commonest_reason(run: EvaluationRun, dimension: str) -> str:
    """Return the reason that most of the unscored judgements of an evaluation give; empty where none does."""
    rows = run.scores.filter(dimension=dimension, status="unscored").exclude(reason="").order_by().values("reason")
    commonest = rows.annotate(n=Count("pk")).order_by("-n", "reason").first()
    return str(commonest["reason"]) if commonest is not None else ""
