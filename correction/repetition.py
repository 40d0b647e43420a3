"""Repetition suppression (S-7.2): an agent that repeats itself is shown its own phrases to avoid. No model is asked."""

from __future__ import annotations

import logging
from collections.abc import Sequence
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
MOST_NGRAMS, MOST_PHRASES = 50, 10
SHOWN_CHARACTERS = 2_000  # of each message, in the prompt; more is cut with a mark


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionResult:
    """How far an agent's last messages repeat each other.

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
    """Whether the agent's last 5 committed messages, over all channels in order of time, repeat each other (AC-7.2.1 to 7.2.3).

    Messages of simulations do not count, but in a simulation's channel only they count: the two are never mixed.

    Args:
        threshold: 0 to 1; default the agent's `repetition_threshold`.
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
    """The texts of the agent's last 5 messages, oldest first."""
    said = Message.objects.filter(agent=agent, text__regex=r"\S")
    if channel is not None and channel.synthetic:
        newest = said.filter(channel=channel).order_by("-position")
    else:
        newest = said.filter(synthetic=False).order_by("-said_at", "-pk")
    return list(newest.values_list("text", flat=True)[:LAST_MESSAGES])[::-1]


def detect_repetition(messages: Sequence[str], *, threshold: Decimal | float) -> RepetitionResult:
    """The comparison itself. Fewer than two messages repeat nothing.

    A formula is a 3-gram in all of the messages or all but one, at least 4. Stop words alone ("that it is") are none: long messages
    share them by chance.
    """
    overlap, counts = recurring_ngrams([comparable_ngrams(message, NGRAM) for message in messages])
    shared = {
        gram: count
        for gram, count in counts.items()
        if count >= max(NEARLY_ALL, len(messages) - 1) and not STOP_WORDS.issuperset(gram)
    }
    formula = next((phrase for phrase, _ in most_frequent(shared, 1)), "")
    return RepetitionResult(
        messages=tuple(messages),
        overlap=overlap,
        threshold=float(threshold),
        triggered=overlap > float(threshold) or bool(formula),
        ngrams=tuple(most_frequent(counts, MOST_NGRAMS)),
        formula=formula,
    )


def phrases_to_avoid(messages: Sequence[str]) -> list[str]:
    """The repeated 3-grams put together to phrases as long as they are shared, what most messages share first; at most 10.

    Messages of fewer than three words hold none: they are shown, and nothing of them is forbidden.
    """
    shared = shared_phrases([tokenize(message) for message in messages], n=NGRAM, limit=MOST_PHRASES)
    return [phrase for phrase, _ in shared]


def build_repetition_context(result: RepetitionResult, *, nonce: str = "") -> str:
    """The section's text (AC-7.2.4, AC-7.2.5): the messages as data, and what to avoid. Empty when nothing was triggered."""
    if not result.triggered:
        return ""
    entries = [f"{number}. {indented(message, SHOWN_CHARACTERS)}" for number, message in enumerate(result.messages, 1)]
    values = {
        "count": len(entries),
        "messages": fence("MESSAGES", "\n".join(entries), nonce or new_nonce()),
        "phrases": phrases_to_avoid(result.messages),
    }
    return render_prompt("correction/repetition", **values)


def prepare(turn: Turn) -> None:
    """The stage: adds the section to the prompt of an agent that repeats itself (AC-7.2.4, AC-7.2.6)."""
    config = config_of(turn)
    if not config["repetition_suppression_enabled"]:
        turn.skip("repetition suppression is off for this agent")
        return
    result = check_repetition(turn.agent, threshold=config["repetition_threshold"], channel=turn.channel)
    turn.count(messages=len(result.messages), repeated_ngrams=len(result.ngrams), suppressed=int(result.triggered))
    turn.reports["repetition"] = {"overlap": round(result.overlap, 4), "triggered": result.triggered}
    if len(result.messages) < 2:
        turn.skip(f"the agent has {len(result.messages)} earlier messages, repetition shows from 2 on")
    elif not result.triggered:
        turn.skip(
            f"overlap {result.overlap:.2f} does not exceed the threshold {result.threshold:.2f}, and nearly all of the messages "
            "share no phrase"
        )
    else:
        turn.add_section(HEADING, build_repetition_context(result, nonce=turn.nonce))
        logger.info(
            "agent %s repeats itself (run %s): overlap %.2f, threshold %.2f, a phrase in nearly all messages: %s",
            turn.agent.slug,
            turn.run.pk if turn.run else None,
            result.overlap,
            result.threshold,
            "yes" if result.formula else "no",
        )
