"""Check what a request for a turn or a send asks of the stages of this layer (`turn_request_check`, `turn_deadlines`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agents.models import Agent, Channel
from correction.config.settings import ConfigError, read_changes, resolve_config
from correction.gate.sessions import check_session

SHORTEST = 2.0  # seconds in which a judge can answer; with less every draft would pass unjudged


def problems(
    *, agent: Agent, channel: Channel, overrides: Mapping[str, Any], session: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield the field of the request and a sentence for each override that is not allowed, and for a session that cannot be continued.

    Args:
        session: Of the message that was sent back; empty: none is continued.
    """
    try:
        read_changes(overrides)
    except ConfigError as error:
        for text in error.errors.values():
            yield "overrides", text
    if session:
        try:
            check_session(session=session, agent=agent, channel=channel)
        except ValueError as error:
            yield "session", str(error)


def deadlines(*, agent: Agent, seconds: float, any_length: bool) -> dict[str, float]:
    """Return the overrides that a request's deadline stands for: it shortens what is configured for the agent, and prolongs nothing.

    Args:
        agent: Whose draft would be judged.
        seconds: What is asked for.
        any_length: The sender may switch the gate off anyway, and so may leave a judge too little time.

    Raises:
        ValueError: It is below `SHORTEST` and below what is configured, so that nothing could be judged.
    """
    config = resolve_config(agent)
    each, total = float(config["gate_deadline_seconds"]), float(config["gate_total_deadline_seconds"])
    least = min(SHORTEST, each, total)
    if seconds < least and not any_length:
        raise ValueError(
            f"deadline {seconds:g}: allowed: {least:g} to 60 seconds, for a draft judged in less would pass unjudged; users who may "
            "change agents and their configuration may say less"
        )
    limit = max(round(seconds, 1), 0.1)
    return {"gate_deadline_seconds": min(limit, each), "gate_total_deadline_seconds": min(limit, total)}
