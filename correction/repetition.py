"""Suppress repetition (S-7.2): an agent that repeats itself is shown its own phrases to avoid. No model is asked."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import sentry_sdk

from agents.kit.text.fences import fence, indented, new_nonce, render_prompt
from agents.kit.text.ngrams import comparable_ngrams, most_frequent, recurring_ngrams, shared_phrases
from agents.kit.text.tokens import tokenize
from agents.kit.text.voices import STOP_WORDS
from agents.models import Agent, Channel, Message
from agents.turn.pipeline import Turn
from correction.config.settings import config_of, resolve_config

logger = logging.getLogger(__name__)

HEADING = "Recent Messages You've Sent"
LAST_MESSAGES = 5  # AC-7.2.1
NGRAM = 3  # AC-7.2.2
NEARLY_ALL = 4  # messages at least that share a formula; of more than five, all but one
MOST_NGRAMS = 50  # that a result lists
MOST_PHRASES = 10  # that the prompt forbids
SHOWN_CHARACTERS = 2_000  # of each message, in the prompt; more is cut with a mark


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionResult:
    """The repetition in an agent's last messages.

    Attributes:
        overlap: Share of their 3-grams that occur in at least two of them, 0 to 1.
        formula: A 3-gram in nearly all of the messages; empty where there is none. Long messages that all open alike share little
            else, so that their overlap is small.
        triggered: Whether the overlap exceeds the threshold, or there is a formula.
        ngrams: The repeated 3-grams with the number of messages they occur in, most frequent first, at most 50.
    """

    messages: tuple[str, ...]
    overlap: float
    threshold: float
    triggered: bool
    ngrams: tuple[tuple[str, int], ...] = ()
    formula: str = ""


def check_repetition(
    agent: Agent, *, threshold: Decimal | float | None = None, channel: Channel | None = None
) -> RepetitionResult:
    """Compare the agent's last 5 committed messages, over all channels in order of time (AC-7.2.1 to 7.2.3).

    Messages of simulations do not count, but in a simulation's channel only they count: the two are never mixed.

    Args:
        threshold: Overlap from 0 to 1 above which messages count as repeating each other; None: the agent's `repetition_threshold`.
        channel: Where the agent is about to speak; None: a real conversation.
    """
    with sentry_sdk.start_span(op="correction.repetition", name="check repetition") as span:
        if threshold is None:
            threshold = resolve_config(agent)["repetition_threshold"]
        result = detect_repetition(last_messages(agent, channel=channel), threshold=threshold)
        span.set_data("agent_id", agent.pk)
        span.set_data("messages", len(result.messages))
        span.set_data("overlap", round(result.overlap, 4))
        span.set_data("triggered", result.triggered)
        return result


def last_messages(agent: Agent, *, channel: Channel | None = None) -> list[str]:
    """Return the texts of the agent's last 5 messages that are not blank, oldest first: real ones of all channels.

    Args:
        channel: In a synthetic channel only its own messages count; None: real ones.
    """
    messages = Message.objects.filter(agent=agent, text__regex=r"\S")
    if channel is not None and channel.synthetic:
        newest = messages.filter(channel=channel).order_by("-position")
    else:
        newest = messages.filter(synthetic=False).order_by("-said_at", "-pk")
    texts = list(newest.values_list("text", flat=True)[:LAST_MESSAGES])
    texts.reverse()
    return texts


def detect_repetition(messages: Sequence[str], *, threshold: Decimal | float) -> RepetitionResult:
    """Return how far messages repeat each other. Fewer than two messages repeat nothing.

    Triggered where the share of recurring 3-grams is above the threshold, or nearly all messages share one (`_formula`).
    """
    overlap, counts = recurring_ngrams([comparable_ngrams(message, NGRAM) for message in messages])
    formula = _formula(counts, len(messages))
    return RepetitionResult(
        messages=tuple(messages),
        overlap=overlap,
        threshold=float(threshold),
        triggered=overlap > float(threshold) or bool(formula),
        ngrams=tuple(most_frequent(counts, MOST_NGRAMS)),
        formula=formula,
    )


def _formula(counts: Mapping[tuple[str, ...], int], messages: int) -> str:
    """Return the 3-gram that most messages share, where it is in all of them or all but one, at least 4; empty where none is.

    Stop words alone ("that it is") are no formula: long messages share them by chance.

    Args:
        counts: In how many messages each 3-gram is.
        messages: How many messages there are.
    """
    least = max(NEARLY_ALL, messages - 1)
    shared = {}
    for ngram, count in counts.items():
        if count >= least and not STOP_WORDS.issuperset(ngram):
            shared[ngram] = count
    for phrase, _ in most_frequent(shared, 1):  # none or one
        return phrase
    return ""


def phrases_to_avoid(messages: Sequence[str]) -> list[str]:
    """Return the repeated 3-grams put together to phrases as long as they are shared, what most messages share first; at most 10.

    Messages of fewer than three words hold none: they are shown, and nothing of them is forbidden.
    """
    shared = shared_phrases([tokenize(message) for message in messages], n=NGRAM, limit=MOST_PHRASES)
    return [phrase for phrase, _ in shared]


def build_repetition_context(result: RepetitionResult, *, nonce: str = "") -> str:
    """Return the section's text (AC-7.2.4, AC-7.2.5): the messages as data, and what to avoid; empty when nothing was triggered."""
    if not result.triggered:
        return ""
    entries = [f"{number}. {indented(message, SHOWN_CHARACTERS)}" for number, message in enumerate(result.messages, 1)]
    return render_prompt(
        "correction/repetition",
        count=len(entries),
        messages=fence("MESSAGES", "\n".join(entries), nonce or new_nonce()),
        phrases=phrases_to_avoid(result.messages),
    )


def prepare(turn: Turn) -> None:
    """Add a section with its last messages, and what to avoid, to the prompt of an agent that repeats itself (AC-7.2.4, AC-7.2.6).

    Nothing is added, and the turn's trace says why, where that is switched off, or fewer than two messages or no repetition are found.
    """
    config = config_of(turn)
    if not config["repetition_suppression_enabled"]:
        turn.skip("repetition suppression is off for this agent")
        return
    result = check_repetition(turn.agent, threshold=config["repetition_threshold"], channel=turn.channel)
    turn.count(messages=len(result.messages), repeated_ngrams=len(result.ngrams), suppressed=int(result.triggered))
    turn.reports["repetition"] = {"overlap": round(result.overlap, 4), "triggered": result.triggered}
    if len(result.messages) < 2:
        turn.skip(f"the agent has {len(result.messages)} earlier messages, repetition shows from 2 on")
        return
    if not result.triggered:
        turn.skip(
            f"overlap {result.overlap:.2f} does not exceed the threshold {result.threshold:.2f}, and nearly all of the messages "
            "share no phrase"
        )
        return
    turn.add_section(HEADING, build_repetition_context(result, nonce=turn.nonce))
    logger.info(
        "agent %s repeats itself (run %s): overlap %.2f, threshold %.2f, a phrase in nearly all messages: %s",
        turn.agent.slug,
        turn.run.pk if turn.run else None,
        result.overlap,
        result.threshold,
        "yes" if result.formula else "no",
    )
