"""Convergence (S-6.4): do the agents of a conversation keep voices of their own? Judged over the channel, personas withheld.

The score is voice *divergence*, so that higher is better as in every dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from agents.kit.text.voices import (
    Distinctness,
    PairSimilarity,
    VocabularyStatistics,
    pairwise_similarity,
    vocabulary_statistics,
    voice_distinctness,
)
from agents.models import Message
from evaluation.scorers.subjects import ChannelSubject, Context, Item

if TYPE_CHECKING:
    from evaluation.propositions.schema import Proposition

PAIRS_SHOWN = 40  # to the judge, most alike first
MOST_SPEAKERS = 50  # whose pairs are stored: those who say most


def plan(subject: ChannelSubject, propositions: Sequence[Proposition]) -> list[Item]:
    """Every proposition once, on the full conversation."""
    return [Item(proposition) for proposition in propositions] if subject.said().exists() else []


def context(
    subject: ChannelSubject, proposition: Proposition, message: Message | None, earlier: Message | None = None
) -> Context:
    """The full conversation once, in order, with the agents' vocabulary figures as data (AC-6.4.2 to AC-6.4.7)."""
    window, _ = subject.conversation(proposition.first_n, proposition.last_n)
    voices, agents, pairs = _measured(_lines(subject, proposition))
    return Context(
        agent_name=subject.name,
        persona=subject.personas() if proposition.include_personas else None,
        channel_name=subject.name,
        window=window,
        environment=True,
        statistics=_evidence(subject, agents, pairs),
        measured={"voices": asdict(voices) if voices else None},
    )


def figures(subject: ChannelSubject, propositions: Sequence[Proposition]) -> dict[str, Any]:
    """What is stored with the run, of the messages that the first proposition shows (AC-6.4.8).

    Returns:
        ``agents``: figures by slug; ``pairs``: [slug, slug, similarity 0 to 1], most alike first; ``voices``: distinctness or null.
    """
    proposition = propositions[0]
    _, messages = subject.conversation(proposition.first_n, proposition.last_n)
    slugs = {message.agent_id: message.agent_slug for message in messages if message.agent_id is not None}
    voices, agents, pairs = _measured(_lines(subject, proposition))
    return {
        "agents": {slug: asdict(said) for slug, said in sorted((slugs[pk], said) for pk, said in agents.items())},
        "pairs": [[pair.first, pair.second, pair.similarity] for pair in _renamed(pairs, slugs)],
        "voices": asdict(voices) if voices else None,
    }


Lines = tuple[tuple[int, str], ...]  # agent's id, text


@lru_cache(maxsize=64)  # the judge's evidence and the figures go by the same lines
def _measured(lines: Lines) -> tuple[Distinctness | None, dict[int, VocabularyStatistics], list[PairSimilarity]]:
    """Return how distinct the voices are, and figures and likeness of the agents that say most, by their ids."""
    texts: dict[int, list[str]] = {}
    for agent_id, text in lines:
        texts.setdefault(agent_id, []).append(text)
    loudest = dict(sorted(texts.items(), key=lambda item: (-len(item[1]), item[0]))[:MOST_SPEAKERS])
    voices = voice_distinctness([(str(agent_id), text) for agent_id, text in lines])
    pairs = pairwise_similarity({str(agent_id): said for agent_id, said in loudest.items()})
    return voices, {agent_id: vocabulary_statistics(said) for agent_id, said in loudest.items()}, pairs


def _renamed(pairs: Sequence[PairSimilarity], names: Mapping[int, str]) -> list[PairSimilarity]:
    """The same with names instead of ids, in the order of `pairwise_similarity`."""
    named = []
    for pair in pairs:
        first, second = sorted((names[int(pair.first)], names[int(pair.second)]))
        named.append(PairSimilarity(first, second, pair.similarity))
    return sorted(named, key=lambda pair: (-pair.similarity, pair.first, pair.second))


def _lines(subject: ChannelSubject, proposition: Proposition) -> Lines:
    """Return what the agents say in the events shown: figures speak of what the judge can see."""
    _, messages = subject.conversation(proposition.first_n, proposition.last_n)
    return tuple((message.agent_id, message.text) for message in messages if message.agent_id is not None)


def _evidence(
    subject: ChannelSubject, agents: Mapping[int, VocabularyStatistics], similar: Sequence[PairSimilarity]
) -> dict[str, Any]:
    names = subject.speakers()
    called = {pk: names.get(pk, str(pk)) for pk in agents}
    pairs = _renamed(similar, called)
    shown = {f"{pair.first} / {pair.second}": pair.similarity for pair in pairs[:PAIRS_SHOWN]}
    left_out = {"pairs_left_out": len(pairs) - PAIRS_SHOWN} if len(pairs) > PAIRS_SHOWN else {}
    return {
        "vocabulary_by_agent": {
            name: asdict(said) for name, said in sorted((called[pk], said) for pk, said in agents.items())
        },
        "vocabulary_similarity_of_pairs": shown,
        **left_out,
    }


def not_evaluable(subject: ChannelSubject) -> str:
    """Why nothing can be judged for this dimension; empty when it can. Voices are compared between at least two agents."""
    if silent := subject.why_silent():
        return f"not evaluable: {silent}"
    if len(subject.speakers()) == 1:
        return "not evaluable: one agent alone speaks in the window; voices are compared between at least two"
    return ""
