"""One dimension of two measurements: which of its propositions are compared, by scores or by hits, and what is missing for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from evaluation.change.change import (
    WHERE_BEFORE,
    WHERE_NOW,
    ChangeResult,
    Sample,
    change_of,
    change_of_hits,
    change_of_rate,
    goes_by_hits,
    mean_of,
)
from evaluation.change.lost import Lost, ScoredShare
from evaluation.change.measured import MeasuredDimension, MeasuredProposition, is_message, item_of
from evaluation.dimensions import BY_ONE_MESSAGE, Dimension
from evaluation.models import COUNTED, is_heuristic
from evaluation.runs.shares import NOTHING, TOO_LITTLE, Share, total

NONE_IN_COMMON = "no proposition was scored in both"
RATES_ALONE = "only rules that need not hold in every message are scored: see the propositions"
HITS_ALONE = "only hits are scored, and their score does not say how many there are: see the propositions"


class DimensionPair:
    """One dimension, measured twice.

    Attributes:
        name: Of the dimension.
        before, now: The dimension in the baseline and in the candidate.
        reworded: Propositions that were asked in both, but are not the same any more. They are not compared.
        same: The other propositions that were asked in both, each as it was measured in the baseline and in the candidate.
        over_window: Of these, where others are judged message by message, those judged once over the window: one judgement is no
            sample of messages.
        by_hits: Those compared by the share of messages with a hit, in the baseline and now: of the offline judge's cues and rules, where
            all scores of both are hits, or the baseline has fewer than two. What has no hit is unscored then, so scores say nothing of it.
        by_rate: Rules that need not hold in every message, with in how many of 10 they should: what is missing to that is compared. They
            are compared on their own: a message that does not keep one says nothing of the persona.
        scored_in_one: Of the others those that are scored in one of the two only.
        unjudged: Those of which the judge could score nothing in either.
    """

    def __init__(self, name: str, before: MeasuredDimension, now: MeasuredDimension, *, judge: str) -> None:
        self.name = name
        self.before = before
        self.now = now
        self.counted = name in COUNTED
        self.heuristic = is_heuristic(judge)
        self.reworded: list[str] = []
        self.same: dict[str, tuple[MeasuredProposition, MeasuredProposition]] = {}
        self._match_propositions()
        self.over_window = self._judged_over_window()
        self.by_rate = self._rates()
        self.by_hits: dict[str, tuple[Share, Share]] = {}
        self.scored_in_one: list[str] = []
        self.unjudged: list[str] = []
        for proposition in self.same:
            self._classify(proposition)

    def _match_propositions(self) -> None:
        """Fill `reworded` and `same`. A digest that is not known (empty) is taken to be the same."""
        for proposition, before in self.before.propositions.items():
            now = self.now.propositions.get(proposition)
            if now is None:
                continue
            if before.digest and now.digest and before.digest != now.digest:
                self.reworded.append(proposition)
            else:
                self.same[proposition] = (before, now)

    def _rates(self) -> dict[str, int]:
        """Return `by_rate`. A file of before may not say it of its side."""
        rates = {}
        for proposition, (before, now) in self.same.items():
            of_ten = now.of_ten or before.of_ten
            if of_ten is not None:
                rates[proposition] = of_ten
        return rates

    def _judged_over_window(self) -> list[str]:
        """Return the propositions judged once over the window, in repeats; none where all are: they then compare with each other."""
        over_window = []
        for proposition, (before, now) in self.same.items():
            observations = [*before.observations, *now.observations]
            if observations and all(str(observation.cluster).startswith("repeat:") for observation in observations):
                over_window.append(proposition)
        proposition_ids = [p for p, (before, now) in self.same.items() if before.observations or now.observations]
        return over_window if len(over_window) < len(proposition_ids) else []

    def _classify(self, proposition: str) -> None:
        """Add a proposition to `by_hits`, `scored_in_one` or `unjudged` where it belongs there; most belong to none: scores compare."""
        before, now = self.same[proposition]
        scored_before = before.score is not None
        scored_now = now.score is not None
        hits = None if proposition in self.by_rate else self._hits(before, now)
        if hits is not None:
            self.by_hits[proposition] = hits
        elif scored_before != scored_now and not self.counted:  # counts are compared as a whole: none is left out
            self.scored_in_one.append(proposition)
        if not scored_before and not scored_now and (before.unjudged or now.unjudged):
            self.unjudged.append(proposition)

    def _hits(self, before: MeasuredProposition, now: MeasuredProposition) -> tuple[Share, Share] | None:
        """Return the hits of both, where they are compared; None where the scores are."""
        if not self.heuristic or self.name not in BY_ONE_MESSAGE:  # only the offline judge finds hits of cues and rules
            return None
        hits_before = before.hits
        hits_now = now.hits
        if hits_before is None or hits_now is None:
            return None
        hits = (hits_before, hits_now)
        return hits if goes_by_hits(hits, (before.share, now.share)) else None

    def names_of(self, propositions: Iterable[str]) -> list[str]:
        """Return propositions as ``dimension/proposition``."""
        return [f"{self.name}/{proposition}" for proposition in propositions]

    # -- how much was scored
    @property
    def judged_by_message(self) -> dict[str, tuple[MeasuredProposition, MeasuredProposition]]:
        """Return the propositions that are judged message by message in both, without those compared by hits: fewer hits are no loss."""
        by_message = {}
        for proposition, (before, now) in self.same.items():
            if before.by_message and now.by_message and proposition not in self.by_hits:
                by_message[proposition] = (before, now)
        return by_message

    def scored_shares(self) -> tuple[ScoredShare, ScoredShare]:
        """Return how much of these propositions was scored in the baseline, and in the candidate."""
        pairs = self.judged_by_message.values()
        measured_before = [before for before, _ in pairs]
        measured_now = [now for _, now in pairs]
        return _scored_share(self.before, measured_before), _scored_share(self.now, measured_now)

    def missing(self, lost: Lost | None) -> str:
        """Return what is missing for a comparison of the dimension, and what to do about it; empty where it is compared.

        Args:
            lost: That the dimension has no score because too much was lost; None where it is not so.
        """
        if lost is None and self.before.score is not None and self.now.score is not None:
            return ""
        unscored = self.before.unscored + self.now.unscored
        if unscored:
            messages = self.before.messages + self.now.messages
            counts = f"{unscored} of {messages} messages unscored ({self.before.unscored} in the baseline, {self.now.unscored} now)"
        elif lost is not None:
            counts = f"{lost.of - lost.scored} of {lost.of} judgements unscored now"
        else:
            return ""
        if Dimension(self.name).kind.judged_by == "pair":  # no rules or cues score it
            reasons = dict.fromkeys(filter(None, (self.before.unscored_because, self.now.unscored_because)))
            return f"{counts}: {'; '.join(reasons)}" if reasons else counts
        if not self.heuristic:
            return f"{counts}: evaluate again, the judge gave no score"
        step = "write rules or cues that fit them"
        if self.unjudged:
            step = f"write rules or cues for {', '.join(self.unjudged)}"
        return f"{counts}: {step}, or set JUDGE_MODEL so that a model judges them"

    # -- changes
    def change(self, margin: float, lost: Lost | None) -> ChangeResult:
        """Return the change of the dimension as a whole; without a verdict where too little was scored, or too much was lost.

        Args:
            margin: Half-width of "no change", in points.
            lost: That too much of it was lost, so that it has no score now; None where it is not so.
        """
        before, now = self._samples()
        change = self._change_of(before, now, margin)
        if self.by_rate and not before.observations and not now.observations:
            change = change.model_copy(update={"interval_note": RATES_ALONE, "reason": RATES_ALONE})
        change = change.model_copy(update={"baseline_share": self.before.share, "share": self.now.share})
        too_little = self._why_too_little(lost)
        if too_little:
            return ChangeResult(
                dimension=self.name,
                baseline=self.before.score,
                candidate=self.now.score if lost is None else None,
                interval_note=too_little,
                verdict="not enough data",
                reason=too_little,
                n=change.n,
                baseline_n=change.baseline_n,
                unit=change.unit,
                share=change.share,
                baseline_share=change.baseline_share,
                too_little_scored=True,
            )
        if change.verdict == "steady" and self._has_hits_alone():  # the scores cannot tell: more hits score the same
            return change.model_copy(update={"verdict": "not enough data", "reason": HITS_ALONE})
        if change.delta is None and self.before.score is not None and self.now.score is not None:
            return change.model_copy(update={"reason": NONE_IN_COMMON, "interval_note": NONE_IN_COMMON})
        return change

    def proposition_changes(self, margin: float) -> tuple[ChangeResult, ...]:
        """Return the change of each proposition that is the same in both, worst first."""
        changes = []
        for proposition, (before, now) in self.same.items():
            change = self._change_of(before, now, margin, proposition)
            if proposition in self.by_rate:
                of_ten = self.by_rate[proposition]
                change = change_of_rate(change, before.observations, now.observations, of_ten=of_ten, margin=margin)
            if proposition in self.by_hits:
                hits_before, hits_now = self.by_hits[proposition]
                change = change_of_hits(change, hits_before, hits_now, margin)
            changes.append(change.model_copy(update={"baseline_share": before.share, "share": now.share}))
        return tuple(
            sorted(changes, key=lambda change: (change.points is None, change.points or 0.0, change.proposition))
        )

    def _change_of(self, before: Sample, now: Sample, margin: float, proposition: str = "") -> ChangeResult:
        """Return the change of scores; of the dimension as a whole where `proposition` is empty."""
        return change_of(
            before,
            now,
            dimension=self.name,
            proposition=proposition,
            margin=margin,
            counted=self.counted,
            heuristic=self.heuristic,
        )

    def _why_too_little(self, lost: Lost | None) -> str:
        """Return why the dimension has too little scored for a verdict; empty where it has enough."""
        if lost is not None:
            return f"{TOO_LITTLE}: {lost}"
        reasons = []
        if self.before.reason:
            reasons.append(f"{self.before.reason} {WHERE_BEFORE}")
        if self.now.reason:
            reasons.append(f"{self.now.reason} {WHERE_NOW}")
        return "; ".join(reasons)

    def _has_hits_alone(self) -> bool:
        """Return whether all that is scored in both is compared by hits: the mean of such scores is the same however many there are."""
        scored_in_both = {
            p for p, (before, now) in self.same.items() if before.score is not None and now.score is not None
        }
        return bool(scored_in_both) and scored_in_both <= self.by_hits.keys()

    def _samples(self) -> tuple[Sample, Sample]:
        """Return the dimension in both, by the propositions that are scored in both, without those that are compared on their own.

        Counts are taken as a whole. Where nothing else is scored it is its scores alone, without judgements.
        """
        if self.counted:
            return self.before.sample, self.now.sample
        on_their_own = {*self.over_window, *self.by_rate}
        compared = {p: pair for p, pair in self.same.items() if p not in on_their_own}
        scored_before = [p for p, (before, _) in compared.items() if before.score is not None]
        scored_now = [p for p, (_, now) in compared.items() if now.score is not None]
        if self.by_rate and not scored_before and not scored_now:
            return Sample(score=self.before.score), Sample(score=self.now.score)
        if scored_before and scored_now:  # else there is nothing to compare: what there is is shown
            scored_before = [p for p in scored_before if p in scored_now]
            scored_now = scored_before
        return _sample_of(self.before, scored_before), _sample_of(self.now, scored_now)


def _scored_share(dimension: MeasuredDimension, propositions: Sequence[MeasuredProposition]) -> ScoredShare:
    """Return how much of these propositions was scored, and by message how many of them were."""
    share = total(measured.share or NOTHING for measured in propositions)
    scored: Counter[object] = Counter()
    for measured in propositions:
        scored.update(item_of(observation) for observation in measured.observations if is_message(observation))
    # Messages that were deleted since have scores, and are not among `messages`.
    return ScoredShare(share=share, messages=max(dimension.messages, len(scored)), scored=scored)


def _sample_of(dimension: MeasuredDimension, propositions: Sequence[str]) -> Sample:
    """Return a dimension by these of its propositions; where they are all that have a score, with its score as it was measured."""
    scored = [p for p, measured in dimension.propositions.items() if measured.score is not None]
    if set(propositions) == set(scored):
        return dimension.sample
    observations = [o for p in propositions for o in dimension.propositions[p].observations]
    return Sample(score=mean_of(observations), observations=observations)
