"""Assert in a test of your own suite that an agent of a Plumbline server is in character."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from plumbline_client.client import Client
from plumbline_client.http import Refused, Unavailable

ENDED = ("completed", "failed", "errored", "cancelled", "paused_budget")
PAUSE = 1.0  # seconds between two looks at an evaluation


class Unjudged(AssertionError):
    """Too little could be judged to say: a judge that is away, too few messages, nothing to compare with."""


@pytest.fixture(name="in_character")
def _in_character() -> Callable[..., dict[str, Any]]:
    """`in_character` with the server of PLUMBLINE_URL and PLUMBLINE_TOKEN."""
    return partial(in_character, Client.from_environment())


def in_character(
    client: Client,
    agent: str,
    *,
    transcript: str | Path | Sequence[Mapping[str, Any]] | None = None,
    build: str = "",
    threshold: float | Mapping[str, float] | None = None,
    seconds: float = 600.0,
    **options: Any,
) -> dict[str, Any]:
    """Assert that an agent is not worse than its baseline, and that none of its scores is below its threshold.

    Args:
        transcript: What the agent said in this build: a file, or the messages of a conversation, such as
            ``[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]``, where the assistant is the
            agent. It is stored in a channel of its own, which needs the permissions of an Editor.
        build: The tag `build` of the messages that are judged; of a transcript made up where it is empty. Without both, all.
        threshold: Least score, 0 to 9: of every dimension that is scored, or by dimension id.
        seconds: To wait for the evaluation; a worker of the server does it.
        options: Others of ``POST /api/evaluations/``: dimensions, samples, window, where, simulate, situations.

    Returns:
        The evaluation, as ``GET /api/evaluations/{id}/`` answers.

    Raises:
        AssertionError: The agent fell out of character. `Unjudged` where that could not be judged.
        Refused: An argument is wrong, or the token may not do this.
    """
    __tracebackhide__ = True
    deadline = time.monotonic() + seconds
    where = dict(options.pop("where", {}))
    if transcript is not None:
        build = build or uuid4().hex
        _hand_in(client, agent, transcript, build)
    if build:
        where["build"] = build
    try:
        evaluation = _evaluated(client, {**options, "agent": agent, "where": where}, deadline)
    except Unavailable as error:
        raise Unjudged(f"{agent}: {error}") from None
    problems = _below(threshold, evaluation)
    problems += _worse(client, evaluation, is_needed=threshold is None)
    if problems:
        raise AssertionError("\n".join([f"{agent} fell out of character", *problems, evaluation["url"]]))
    return evaluation


def _hand_in(client: Client, agent: str, transcript: str | Path | Sequence[Mapping[str, Any]], build: str) -> None:
    """Store the transcript in a channel of this agent and build, so that a test that is run again finds its messages."""
    channel = re.sub(r"[^-a-zA-Z0-9_]", "-", f"{agent}-{build}")[:120]
    fields: dict[str, Any] = {"channel": channel, "tags": {"build": build}}
    if isinstance(transcript, str | Path):
        content = Path(transcript).read_text(encoding="utf-8")
    else:
        content = json.dumps(list(transcript), default=str)
        if any(message.get("role") == "assistant" for message in transcript):
            fields["speakers"] = {"assistant": agent}
    client.ingest_transcript(content, **fields)


def _evaluated(client: Client, body: Mapping[str, Any], deadline: float) -> dict[str, Any]:
    """Ask for an evaluation and wait for its end."""
    asked = client.http.request_until_done(
        "POST", "/api/evaluations/", body, seconds=max(1.0, deadline - time.monotonic())
    )
    path = f"/api/evaluations/{asked['id']}/?scores=0"
    while True:
        left = deadline - time.monotonic()
        evaluation: dict[str, Any] = client.http.request_until_done("GET", path, seconds=max(1.0, left))
        status = evaluation["status"]
        if status == "completed":
            return evaluation
        if status in ENDED:
            raise Unjudged(f"{body['agent']}: evaluation {asked['id']} {status}: {evaluation['error']}")
        if left <= 0:
            raise Unjudged(f"{body['agent']}: evaluation {asked['id']} is still {status}: does a worker run there?")
        time.sleep(PAUSE)


def _below(threshold: float | Mapping[str, float] | None, evaluation: Mapping[str, Any]) -> list[str]:
    """Return a line for each score below its threshold."""
    dimensions = evaluation["summary"]["dimensions"]
    if threshold is None:
        thresholds: Mapping[str, float] = {}
    elif isinstance(threshold, Mapping):
        thresholds = threshold
    else:
        thresholds = {name: threshold for name, summary in dimensions.items() if summary.get("score") is not None}
        if not thresholds:
            raise Unjudged(f"{evaluation['agent']}: nothing was scored")
    lines = []
    for name, least in thresholds.items():
        summary = dimensions.get(name, {})
        score = summary.get("score")
        if score is None:
            reason = summary.get("reason") or f"it was not judged; judged were {', '.join(dimensions) or 'none'}"
            raise Unjudged(f"{evaluation['agent']}: {name} has no score: {reason}")
        if score < least:
            lines.append(f"{name} is {score:.1f}, below {least:g}; by proposition: {summary['propositions']}")
    return lines


def _worse(client: Client, evaluation: Mapping[str, Any], *, is_needed: bool) -> list[str]:
    """Return a line for all that is significantly worse than in the baseline.

    Args:
        is_needed: Whether it is an error when there is nothing to compare with.
    """
    agent = evaluation["agent"]
    path = f"/api/evaluations/baselines/{agent}/compare/?run={evaluation['id']}"
    try:
        comparison = client.http.request_until_done("GET", path, seconds=60.0)["comparison"]
    except Refused as error:
        if error.status not in (404, 409):  # no baseline; another judge or procedure
            raise
        if is_needed:
            raise Unjudged(f"{agent}: {error}; allowed: a baseline, or a threshold") from None
        return []
    except Unavailable as error:
        raise Unjudged(f"{agent}: {error}") from None
    if comparison["worse"]:
        return [f"significantly worse than the baseline: {', '.join(comparison['worse'])}"]
    undecided = {name: change["reason"] for name, change in comparison["dimensions"].items() if change["delta"] is None}
    if is_needed and len(undecided) == len(comparison["dimensions"]):
        raise Unjudged(f"{agent}: nothing was compared with the baseline: {undecided or 'nothing was scored'}")
    return []
