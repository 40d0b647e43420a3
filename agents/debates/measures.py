"""Measure a round of a debate: counts, changes, conformity, vote, groupthink, and whether the debate ends. No model is asked.

Pure functions over rounds of answers, so that other people's debates can go through them, too (docs/how-to/debate.md shows how). A round
is the answers of the seats that gave one, in any order; a seat that failed is missing. Round 0, a blind poll, is a round for `changes`
and `vote`, not for `check_exit`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from math import sqrt
from pathlib import Path
from statistics import fmean, quantiles
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from agents.debates.answers import Answer, Stance
from agents.kit.text.tokens import split_sentences, tokenize
from agents.kit.text.voices import vocabulary
from agents.kit.text.wording import counted

Round = Sequence[Answer]
MOST_ROUNDS = 100
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Rounds = Annotated[int, Field(ge=1, le=MOST_ROUNDS)]
ConvergenceRounds = Annotated[int, Field(ge=2, le=MOST_ROUNDS)]
STANCES: tuple[Stance, ...] = get_args(Stance)

# Chosen on 50 pairs of positions and 12 rounds, most of them written for it, 6 of each from the public transcripts of a council of five
# models on medical questions (pratik-iitb/Too-Many-Cooks-Spoil-the-Broth, EMNLP 2026). Of 26 positions said again in other words 23 reach
# it, of 24 changed ones 5; of 6 rounds that repeat one position 5, of 6 rounds of independent answers none.
ALIKE = 0.6
# A sentence with at least two new content words that are a third or more of its content words is an argument. Of 11 answers from the
# same transcripts, 7 of 8 that only repeat colleagues have no such sentence, all 3 with a new argument have one.
NEW_SHARE = 1 / 3
FEWEST_NEW = 2
HIGH_CONFIDENCE, HIGH_MEAN, HIGH_AGREEMENT = 0.8, 0.85, 0.9  # specification 004, 2.2

# English words of a debate that are no argument: agreeing, weighing, changing sides, addressing the others.
_DEBATING_WORDS = vocabulary([Path(__file__).with_name("talk.txt").read_text(encoding="utf-8")])
_NEGATIONS = frozenset({"not", "no", "never", "cannot", "neither", "nor", "against"})


class Value(BaseModel):
    """A result: immutable, and its dump is what is stored."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Quartiles(Value):
    """Five numbers and the mean of `n` confidences; quartiles by linear interpolation. All 0 to 1."""

    n: int
    min: float
    q1: float
    median: float
    q3: float
    max: float
    mean: float


class Statistics(Value):
    """Counts of one round. `stances` holds all three; `confidence` is None where no answer gave one."""

    answers: int
    stances: dict[Stance, int]
    confidence: Quartiles | None


def statistics(answers: Round) -> Statistics:
    """Count the stances of a round and the quartiles of its confidence."""
    confidences = sorted(answer.confidence for answer in answers if answer.confidence is not None)
    quartiles = _quartiles(confidences) if confidences else None
    return Statistics(answers=len(answers), stances=_stance_counts(answers), confidence=quartiles)


def _stance_counts(answers: Round) -> dict[Stance, int]:
    counted = Counter(answer.stance for answer in answers)
    return {stance: counted[stance] for stance in STANCES}


def _quartiles(values: Sequence[float]) -> Quartiles:
    """Summarize sorted values, at least one; of a single one all figures are that value."""
    cuts = [values[0]] * 3
    if len(values) > 1:
        cuts = quantiles(values, n=4, method="inclusive")
    return Quartiles(
        n=len(values),
        min=values[0],
        q1=round(cuts[0], 4),
        median=round(cuts[1], 4),
        q3=round(cuts[2], 4),
        max=values[-1],
        mean=round(fmean(values), 4),
    )


def content_words(text: str) -> frozenset[str]:
    """Return the words that carry a text's content, without endings; numbers and "not" (also in "shouldn't") are among them."""
    words = tokenize(text)
    numbers = {word for word in words if word.isdigit()}
    negated = {"not" for word in words if word.endswith("n't")}
    return vocabulary([text]) | numbers | negated


def similarity(a: str, b: str) -> float:
    """Say how alike two positions are by their words: the share of content words in common (Ochiai), 0 to 1.

    Word order and English inflection do not count, synonyms are not known. The figure is halved where only one of the two holds a
    negation, and where both hold numbers, but not the same: "we should" and "we should not", or "in 2 years" and "in 5 years", differ
    in one word.
    """
    if a.strip() == b.strip():
        return 1.0
    return _word_similarity(_position_words(a), _position_words(b))


def _position_words(text: str) -> frozenset[str]:
    """Return a position's content words; all its words where it has none."""
    return content_words(text) or frozenset(tokenize(text))


def _word_similarity(a: frozenset[str], b: frozenset[str]) -> float:
    """Return the share of words in common; half of it where a negation or a number differs."""
    if not a or not b:
        return 0.0
    share = len(a & b) / sqrt(len(a) * len(b))
    only_one_negates = bool(a & _NEGATIONS) != bool(b & _NEGATIONS)
    return share / 2 if only_one_negates or _numbers_differ(a, b) else share


def _numbers_differ(a: frozenset[str], b: frozenset[str]) -> bool:
    """Return whether both hold numbers, but not the same."""
    numbers_a = {word for word in a if word.isdigit()}
    numbers_b = {word for word in b if word.isdigit()}
    if not numbers_a or not numbers_b:
        return False
    return numbers_a != numbers_b


def mean_similarity(answers: Round) -> float | None:
    """Average the similarity of the positions of every two seats, 0 to 1; None for fewer than two answers."""
    pairs = [similarity(a.position, b.position) for a, b in combinations(answers, 2)]
    return fmean(pairs) if pairs else None


class Vote(Value):
    """The stances of a round as a vote; `winner` is None for a tie and where no answer has a stance."""

    winner: Stance | None
    counts: dict[Stance, int]


def vote(answers: Round) -> Vote:
    """Count a round's stances as votes: the most frequent one wins, no absolute majority is needed."""
    counts = _stance_counts(answers)
    most = max(counts.values())
    # None where no answer has a stance: then the highest count is 0.
    winners = [stance for stance, number in counts.items() if number == most > 0]
    return Vote(winner=winners[0] if len(winners) == 1 else None, counts=counts)


class StanceChange(Value):
    """A seat that changed its stance between two rounds.

    Attributes:
        to_majority, from_majority: Whether it went to, or left, the winner of the vote of the round before.
        new_words: Content words of its new position and reasoning that it could not have read before, nor had said. Words of debating
            ("convinced", "the others are right") do not count.
        conform: It went to the majority, and no sentence of its answer is a new argument: one with at least two new words that are
            a third or more of its content words. So a long answer that repeats the others in slightly different words conforms,
            and one new sentence among many repeated ones does not drown.
    """

    seat: int
    before: Stance
    after: Stance
    to_majority: bool
    from_majority: bool
    new_words: int
    conform: bool


class Changes(Value):
    """The stances that changed between two rounds.

    `conformity` is the share of the changes towards the majority that came without a new argument; None where there was no such change.
    """

    moves: list[StanceChange]
    stances_changed: int
    to_majority: int
    from_majority: int
    conformity: float | None


def changes(before: Round, after: Round, seen: Sequence[str] | Mapping[int, Sequence[str]]) -> Changes:
    """Compare the stances of two rounds.

    Args:
        before, after: Seats that have a stance in both are compared.
        seen: What each seat could read before it answered, or had said itself: the question, and positions and reasoning of
            earlier rounds, and the names of the seats. One list for all, or one per seat (where seats speak in turn, later ones
            have read more).

    Raises:
        ValueError: A seat answers twice in one round.
    """
    earlier = _by_seat(before)
    majority = vote(before).winner
    moves = []
    for seat, answer in _by_seat(after).items():
        old_stance = earlier[seat].stance if seat in earlier else None
        if old_stance is None or answer.stance is None or old_stance == answer.stance:
            continue  # no stance in one of the two rounds, or the same one
        seen_by_seat = seen.get(seat, ()) if isinstance(seen, Mapping) else seen
        moves.append(_stance_change(answer, old_stance, answer.stance, majority, seen_by_seat))
    to_majority = sum(move.to_majority for move in moves)
    conforming = sum(move.conform for move in moves)
    return Changes(
        moves=moves,
        stances_changed=len(moves),
        to_majority=to_majority,
        from_majority=sum(move.from_majority for move in moves),
        conformity=conforming / to_majority if to_majority else None,
    )


def _stance_change(
    answer: Answer, before: Stance, after: Stance, majority: Stance | None, seen: Sequence[str]
) -> StanceChange:
    """Return the change of stance that an answer is, and whether it only conforms; see `StanceChange`.

    Args:
        majority: Winner of the vote of the round before; None: there was none, so the change goes neither to nor from it.
        seen: What the seat could have read, or had said; words of it are not new.
    """
    words_before = content_words("\n".join(seen))
    new_words: set[str] = set()
    has_argument = False
    for sentence in split_sentences(f"{answer.position}\n{answer.reasoning}"):
        words = _subject_words(sentence)
        new_in_sentence = words - words_before
        new_words |= new_in_sentence
        if len(new_in_sentence) >= max(FEWEST_NEW, NEW_SHARE * len(words)):
            has_argument = True
    return StanceChange(
        seat=answer.seat,
        before=before,
        after=after,
        to_majority=after == majority,
        from_majority=before == majority,
        new_words=len(new_words),
        conform=after == majority and not has_argument,
    )


def _subject_words(text: str) -> frozenset[str]:
    """Return the content words that are about the subject, not about debating; single letters are labels."""
    words = content_words(text) - _DEBATING_WORDS - _NEGATIONS
    return frozenset(word for word in words if len(word) > 1 or not word.isascii())


def _by_seat(answers: Round) -> dict[int, Answer]:
    """Arrange the answers by seat, in the order of seats.

    Raises:
        ValueError: A seat answers twice.
    """
    by_seat = {answer.seat: answer for answer in sorted(answers, key=lambda answer: answer.seat)}
    if len(by_seat) < len(answers):
        twice = next(seat for seat, number in Counter(answer.seat for answer in answers).items() if number > 1)
        raise ValueError(f"seat {twice} answers twice in one round; a round holds one answer per seat")
    return by_seat


RECOMMENDATION = "Play another round with a devil's advocate, or have a person review the result."


class Groupthink(Value):
    """A warning that a round agrees suspiciously easily, by two indicators. `recommendation` is empty where it does not."""

    detected: bool
    indicators: list[str]
    recommendation: str


def groupthink(answers: Round, agreement: float | None) -> Groupthink:
    """Look for groupthink in a round (specification 004, 2.2): the seats are sure of themselves, and they agree.

    They are sure where every confidence is at least 0.8 and their mean at least 0.85. They agree where all stances are the same or the
    positions are alike; that is one indicator, as a round of one stance agrees by definition. One answer is no group.

    Args:
        agreement: 0 to 1, from a judge that read the positions; None = not known, and the positions are compared by their words.
    """
    if len(answers) < 2:
        return Groupthink(detected=False, indicators=[], recommendation="")
    indicators = [_shared_confidence(answers), _shared_opinion(answers, agreement)]
    indicators = [indicator for indicator in indicators if indicator]
    detected = len(indicators) == 2
    return Groupthink(detected=detected, indicators=indicators, recommendation=RECOMMENDATION if detected else "")


def _shared_confidence(answers: Round) -> str:
    """Say how sure all seats are; empty where one is not sure enough, or gave no confidence."""
    confidences = [answer.confidence for answer in answers if answer.confidence is not None]
    if len(confidences) < len(answers):
        return ""
    mean = round(fmean(confidences), 9)  # however it was summed, 0.85 is 0.85
    if min(confidences) < HIGH_CONFIDENCE or mean < HIGH_MEAN:
        return ""
    return f"all answers have a confidence of at least {HIGH_CONFIDENCE}, mean {mean:.2f}"


def _shared_opinion(answers: Round, agreement: float | None) -> str:
    """Say by what the seats agree: one stance, alike positions, or both; empty where they do not.

    Args:
        agreement: See `groupthink`.
    """
    stances = [answer.stance for answer in answers if answer.stance is not None]
    signs = []
    if len(stances) > 1 and len(set(stances)) == 1:
        signs.append(f"no dissent: all stances are {stances[0]}")
    if agreement is not None:
        if agreement >= HIGH_AGREEMENT:
            signs.append(f"positions agree: {agreement:.2f}, at least {HIGH_AGREEMENT}")
    else:
        words = mean_similarity(answers)
        if words is not None and words >= ALIKE:
            signs.append(f"positions are alike by their words: {words:.2f}, at least {ALIKE}")
    return ", and ".join(signs)


class Criteria(Value):
    """When a debate ends. None switches a criterion off.

    Attributes:
        consensus: Agreement of the last round, 0 to 1.
        convergence_rounds: Rounds, the last included, over which no seat changes its position.
        convergence_similarity: Similarity from which two positions of a seat are the same.
        confidence: That every answer of the last round has.
        max_rounds: Rounds without the poll.
    """

    consensus: Share | None = 0.9
    convergence_rounds: ConvergenceRounds | None = 2
    convergence_similarity: Share = ALIKE
    confidence: Share | None = 0.85
    max_rounds: Rounds = 5


Reason = Literal["consensus", "convergence", "confidence", "max_rounds"]


class Exit(Value):
    """The decision whether a debate ends after a round, and why. While it goes on, `details` may say what is waited for."""

    ends: bool
    reason: Reason | None = None
    details: str = ""


def check_exit(
    rounds: Sequence[Round],
    agreements: Sequence[float | None],
    criteria: Criteria,
    *,
    groupthink: Groupthink | None = None,
    extra_rounds: int = 0,
    extra_played: int = 0,
) -> Exit:
    """Decide whether a debate ends after its last round (specification 004, 2.3): the first criterion that holds is the reason.

    Consensus and confidence need two answers. Convergence needs the same seats in all the rounds compared: of a seat that is missing in
    one, nothing is known. A round without answers fulfils `max_rounds` only.

    Where groupthink was detected, a debate that would end for any reason, `max_rounds` included, first plays up to `extra_rounds` more.

    Args:
        rounds: The rounds so far, without the poll; a round in which all failed is empty.
        agreements: Of each round, from a judge, 0 to 1; None = not known.
        groupthink: Of the last round.
        extra_played: Extra rounds already played because of groupthink.

    Raises:
        ValueError: `rounds` and `agreements` differ in number, or a seat answers twice in one round.
    """
    if len(rounds) != len(agreements):
        raise ValueError(
            f"{len(rounds)} rounds, but {len(agreements)} agreements; each round needs one (None = not known)"
        )
    exit = _exit_by_criteria(rounds, agreements, criteria)
    if not exit.ends:
        return exit
    if groupthink is not None and groupthink.detected and extra_played < extra_rounds:
        wait = f"but groupthink: extra round {extra_played + 1} of {extra_rounds} comes first"
        return Exit(ends=False, details=f"{exit.reason} ({exit.details}), {wait}")
    if extra_played:
        details = f"{exit.details}; after {counted(extra_played, 'extra round')} because of groupthink"
        return exit.model_copy(update={"details": details})
    return exit


def _exit_by_criteria(rounds: Sequence[Round], agreements: Sequence[float | None], criteria: Criteria) -> Exit:
    """Return the exit by the first criterion that holds after the last round, groupthink aside.

    In this order: consensus, convergence, confidence, number of rounds. Consensus and confidence need two answers. A criterion that is None
    is off, and so is consensus where the agreement is not known (None).
    """
    if not rounds:
        return Exit(ends=False)
    answers = _by_seat(rounds[-1])
    agreement = agreements[-1]
    is_group = len(answers) > 1  # one answer always agrees with itself
    if criteria.consensus is not None and agreement is not None and is_group and agreement >= criteria.consensus:
        details = f"agreement {agreement:g}, at least {criteria.consensus:g}"
        return Exit(ends=True, reason="consensus", details=details)
    if criteria.convergence_rounds is not None and _has_converged(rounds, criteria.convergence_rounds, criteria):
        details = f"no seat changed its position over {criteria.convergence_rounds} rounds"
        return Exit(ends=True, reason="convergence", details=details)
    confidences = [answer.confidence for answer in answers.values() if answer.confidence is not None]
    all_confident = is_group and len(confidences) == len(answers)
    if criteria.confidence is not None and all_confident and min(confidences) >= criteria.confidence:
        details = f"lowest confidence {min(confidences):g}, at least {criteria.confidence:g}"
        return Exit(ends=True, reason="confidence", details=details)
    if len(rounds) >= criteria.max_rounds:
        details = f"{counted(len(rounds), 'round')}, at most {criteria.max_rounds}"
        return Exit(ends=True, reason="max_rounds", details=details)
    return Exit(ends=False)


def _has_converged(rounds: Sequence[Round], number: int, criteria: Criteria) -> bool:
    """Return whether the same seats answered in the last `number` rounds and none changed its stance or its position.

    A position is the same where its words are alike enough (`convergence_similarity`), from each round to the next. False where there were
    not so many rounds, or nobody answered in the last one.
    """
    if len(rounds) < number or not rounds[-1]:
        return False
    for earlier, later in pairwise(map(_by_seat, rounds[-number:])):
        if earlier.keys() != later.keys():
            return False
        for seat, answer in later.items():
            if answer.stance != earlier[seat].stance:
                return False
            if similarity(answer.position, earlier[seat].position) < criteria.convergence_similarity:
                return False
    return True


class Cluster(Value):
    """Seats that hold the same position, in the words of one of them."""

    position: str
    seats: list[int]


class Consensus(Value):
    """The agreement of a round.

    Attributes:
        agreement: 0 (none) to 1 (all hold the same); None = not known, `reason` says why.
        clusters: Largest first.
        judge: Who compared the answers. `heuristic`: By stances and words, without reading them.
    """

    agreement: Share | None
    clusters: list[Cluster] = []
    common_ground: list[str] = []
    disagreements: list[str] = []
    summary: str = ""
    judge: str = ""
    heuristic: bool = False
    reason: str = ""


def offline_consensus(answers: Round) -> Consensus:
    """Compare the answers of a round without a model: two with the same stance agree; without stances, by the similarity of positions.

    `agreement` is the mean over all pairs of answers: with stances, the share of pairs that have the same one. Clusters are the seats
    of one stance; without stances, those that a chain of similar positions joins.
    """
    compared = list(_by_seat(answers).values())
    clusters = _clusters(compared)
    consensus = Consensus(agreement=None, clusters=clusters, judge="offline", heuristic=True)
    if not compared:
        return consensus.model_copy(update={"reason": "no answer: there is nothing to compare"})
    if len(compared) == 1:
        return consensus.model_copy(update={"reason": "one answer: there is nothing to compare"})
    agreement = fmean(_agreement_of_two(a, b) for a, b in combinations(compared, 2))
    summary = f"{len(clusters[0].seats)} of {len(compared)} answers hold the most frequent position."
    return consensus.model_copy(update={"agreement": round(agreement, 4), "summary": summary})


def _agreement_of_two(a: Answer, b: Answer) -> float:
    """Return how far two answers agree, 0 to 1: by their stances, without them by their words."""
    if a.stance is None or b.stance is None:
        return similarity(a.position, b.position)
    return float(a.stance == b.stance)


def _clusters(answers: Sequence[Answer]) -> list[Cluster]:
    """Group the answers so that each agrees with at least one other of its group, or is alone; largest group first, then by seats."""
    groups: list[list[Answer]] = []
    for answer in answers:  # an answer that agrees with several groups joins them to one
        joined = [answer]
        apart = []
        for group in groups:
            if any(_agreement_of_two(answer, other) >= ALIKE for other in group):
                joined = [*group, *joined]
            else:
                apart.append(group)
        groups = [*apart, joined]
    clusters = []
    for group in groups:
        seats = sorted(answer.seat for answer in group)
        clusters.append(Cluster(position=_central_position(group), seats=seats))
    return sorted(clusters, key=lambda cluster: (-len(cluster.seats), cluster.seats))


def _central_position(group: Sequence[Answer]) -> str:
    """Choose the position that is on average most like the others; of equals, that of the first seat."""
    central = group[0]
    highest = -1.0
    for answer in sorted(group, key=lambda answer: answer.seat):
        similarities = [similarity(answer.position, other.position) for other in group if other is not answer]
        likeness = fmean(similarities) if similarities else 0.0
        if likeness > highest:
            central = answer
            highest = likeness
    return central.position
