"""Convergence (S-6.4): do the agents of a conversation keep voices of their own? Judged over the channel, personas withheld.

The score is voice *divergence*, so that higher is better as in every dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from agents.kit.text.voices import (
    Distinctness,
    PairSimilarity,
    VocabularyStatistics,
    pairwise_similarity,
    vocabulary_statistics,
    voice_distinctness,
)
from agents.models import Message
from evaluation.scorers.context import Context
from evaluation.scorers.subjects import ChannelSubject, plan_on_window

if TYPE_CHECKING:
    from evaluation.propositions.schema import Proposition

PAIRS_SHOWN = 40  # to the judge, most alike first
MOST_SPEAKERS = 50  # whose pairs are stored: those who say most


plan = plan_on_window


def context(
    subject: ChannelSubject, proposition: Proposition, message: Message | None, earlier: Message | None = None
) -> Context:
    """Return the full conversation once, in order, with the agents' vocabulary figures as data (AC-6.4.2 to AC-6.4.7).

    The personas of all agents that speak are shown only where the proposition says so. `measured` is for the offline judge alone.
    """
    window, _ = subject.conversation(proposition.first_n, proposition.last_n)
    measured = _measure(_agents_lines(subject, proposition))
    return Context(
        agent_name=subject.name,
        persona=subject.personas() if proposition.include_personas else None,
        channel_name=subject.name,
        window=window,
        environment=True,
        statistics=_statistics_shown(subject, measured),
        measured={"voices": measured.distinctness_dump()},
    )


def figures(subject: ChannelSubject, propositions: Sequence[Proposition]) -> dict[str, Any]:
    """Return what is stored with the run, of the messages that the first proposition shows (AC-6.4.8).

    Returns:
        ``agents``: figures by slug; ``pairs``: [slug, slug, similarity 0 to 1], most alike first; ``voices``: distinctness or null.
    """
    proposition = propositions[0]
    _, messages = subject.conversation(proposition.first_n, proposition.last_n)
    slugs = {message.agent_id: message.agent_slug for message in messages if message.agent_id is not None}
    measured = _measure(_agents_lines(subject, proposition))
    pairs = _named_pairs(measured.pairs, slugs)
    return {
        "agents": _by_name(measured.vocabulary, slugs),
        "pairs": [[pair.first, pair.second, pair.similarity] for pair in pairs],
        "voices": measured.distinctness_dump(),
    }


Lines = tuple[tuple[int, str], ...]  # agent's id, text


class VoiceMeasures(NamedTuple):
    """Measures of a conversation: how distinct its voices are, and figures and likeness of the agents that say most, by their ids."""

    distinctness: Distinctness | None
    vocabulary: dict[int, VocabularyStatistics]
    pairs: list[PairSimilarity]

    def distinctness_dump(self) -> dict[str, Any] | None:
        return asdict(self.distinctness) if self.distinctness else None


@lru_cache(maxsize=64)  # the judge's evidence and the figures go by the same lines
def _measure(lines: Lines) -> VoiceMeasures:
    """Measure the voices of the agents that say these lines: how distinct they are over all, figures and pairs for the 50 that say most."""
    texts_by_agent: dict[int, list[str]] = {}
    for agent_id, text in lines:
        texts_by_agent.setdefault(agent_id, []).append(text)
    most_first = sorted(texts_by_agent, key=lambda agent_id: (-len(texts_by_agent[agent_id]), agent_id))
    loudest = {agent_id: texts_by_agent[agent_id] for agent_id in most_first[:MOST_SPEAKERS]}
    return VoiceMeasures(
        distinctness=voice_distinctness([(str(agent_id), text) for agent_id, text in lines]),
        vocabulary={agent_id: vocabulary_statistics(texts) for agent_id, texts in loudest.items()},
        pairs=pairwise_similarity({str(agent_id): texts for agent_id, texts in loudest.items()}),
    )


def _by_name(vocabulary: Mapping[int, VocabularyStatistics], names: Mapping[int, str]) -> dict[str, Any]:
    """Dump the agents' figures by their names, in alphabetical order."""
    figures = [(names[agent_id], statistics) for agent_id, statistics in vocabulary.items()]
    figures.sort(key=lambda pair: pair[0])
    return {name: asdict(statistics) for name, statistics in figures}


def _named_pairs(pairs: Sequence[PairSimilarity], names: Mapping[int, str]) -> list[PairSimilarity]:
    """Return the pairs with names instead of ids, in the order of `pairwise_similarity`."""
    with_names: list[PairSimilarity] = []
    for pair in pairs:
        first, second = sorted((names[int(pair.first)], names[int(pair.second)]))
        with_names.append(PairSimilarity(first, second, pair.similarity))
    return sorted(with_names, key=lambda pair: (-pair.similarity, pair.first, pair.second))


def _agents_lines(subject: ChannelSubject, proposition: Proposition) -> Lines:
    """Return what the agents say in the events shown: figures speak of what the judge can see."""
    _, messages = subject.conversation(proposition.first_n, proposition.last_n)
    return tuple((message.agent_id, message.text) for message in messages if message.agent_id is not None)


def _statistics_shown(subject: ChannelSubject, measured: VoiceMeasures) -> dict[str, Any]:
    """Return the figures that the judge is shown as data, by the agents' names; of pairs the 40 most alike, and how many are left out."""
    speakers = subject.speakers()
    names = {agent_id: speakers.get(agent_id, str(agent_id)) for agent_id in measured.vocabulary}
    pairs = _named_pairs(measured.pairs, names)
    figures: dict[str, Any] = {
        "vocabulary_by_agent": _by_name(measured.vocabulary, names),
        "vocabulary_similarity_of_pairs": {
            f"{pair.first} / {pair.second}": pair.similarity for pair in pairs[:PAIRS_SHOWN]
        },
    }
    if len(pairs) > PAIRS_SHOWN:
        figures["pairs_left_out"] = len(pairs) - PAIRS_SHOWN
    return figures


def not_evaluable(subject: ChannelSubject) -> str:
    """Return why nothing can be judged for this dimension; empty when it can. Voices are compared between at least two agents."""
    silent = subject.why_silent()
    if silent:
        return f"not evaluable: {silent}"
    if len(subject.speakers()) == 1:
        return "not evaluable: one agent alone speaks in the window; voices are compared between at least two"
    return ""
