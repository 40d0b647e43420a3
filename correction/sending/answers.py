"""What a receiver of scores answered, and what that means for the delivery."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings

from agents.kit.models.deliveries import Outcome
from agents.kit.work.posting import PostAnswer, Unreachable, post

REFUSED = (400, 413, 415, 422)  # what was sent is not taken, however often it is sent
TOO_MANY_REQUESTS = 429
RATE_LIMIT_PAUSE = timedelta(minutes=1)  # where the receiver names none
LONGEST_ANSWER = 1_000_000  # bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one request, and how many of its records the receiver said it does not take."""

    outcome: Outcome
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class Posted:
    """The outcome of posting, and the body of the answer; empty where there was none."""

    outcome: Outcome
    body: bytes = b""


def post_scores(url: str, body: bytes, headers: dict[str, str]) -> Posted:
    """Post a request to a receiver that the settings name: it may be in a private network."""
    try:
        answer = post(url, body, headers, seconds=settings.SCORES_SECONDS, most_answer=LONGEST_ANSWER)
    except Unreachable as error:
        return Posted(Outcome(problem=str(error), is_receiver_up=False))
    return Posted(_outcome_of(answer), answer.body)


def not_configured(problem: str) -> Answer:
    """Return the answer for a setting that cannot be used: nothing is sent until it is corrected."""
    return Answer(Outcome(problem=problem, is_receiver_up=False))


def _outcome_of(answer: PostAnswer) -> Outcome:
    """Return the outcome by the HTTP status: taken from 200 to 299.

    Where the receiver refuses what was sent the others are sent on. All else, such as a wrong key, concerns every delivery: they wait.
    A receiver that limits its rate is not down: they wait as long as it asks.
    """
    code = answer.code
    if 200 <= code < 300:
        return Outcome(code)
    if 300 <= code < 400:
        return Outcome(code, f"it answered {code}; redirects are not followed", is_receiver_up=False)
    if code == TOO_MANY_REQUESTS:
        pause = RATE_LIMIT_PAUSE if answer.retry_after is None else timedelta(seconds=answer.retry_after)
        return Outcome(code, f"it answered {code}", is_receiver_up=False, pause=pause)
    is_refused = code in REFUSED
    return Outcome(code, f"it answered {code}", is_receiver_up=is_refused, is_final=is_refused)
