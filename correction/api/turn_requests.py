"""What a request for a turn or a send may ask of the stages on this floor (`TURN_REQUEST_CHECK`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agents.models import Agent, Channel
from correction.config_fields import ConfigError, read_changes
from correction.gate_session import check_session


def problems(
    *, agent: Agent, channel: Channel, overrides: Mapping[str, Any], session: str = ""
) -> Iterator[tuple[str, str]]:
    """The field of the request and a sentence, for each override that is no field of the configuration or has a value it cannot
    have, and for a session that cannot be continued."""
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
