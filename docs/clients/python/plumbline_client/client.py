"""Check drafts, hand in what was said, and set up OpenTelemetry, with one Plumbline server."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from plumbline_client.http import Http, Refused, Unavailable

logger = logging.getLogger("plumbline_client")

MOST_MESSAGES = 1_000  # of a batch
COUNTS = ("received", "imported", "duplicates", "sampled_out", "observed")


@dataclass(frozen=True, slots=True)
class Check:
    """What the gate says about a draft.

    Attributes:
        verdict: `passed`, `rejected`, or `unchecked`: nobody judged it, and it may be said.
        reason: Why it is unchecked.
        refused: It is unchecked because of a mistake that no retry changes, such as a wrong token: raise an alarm.
        answer: All that the server said; empty where it said nothing. `feedback` is for the prompt of the next draft, which is sent
            with `session`; `attempts_left` 0 leaves to you what is said; `dimensions` have score and reasoning.
    """

    verdict: Literal["passed", "rejected", "unchecked"]
    reason: str = ""
    refused: bool = False
    answer: Mapping[str, Any] = field(default_factory=dict, repr=False)


class Client:
    """A Plumbline server and a token for it. May be shared by threads.

    Args:
        base_url: The server's address, such as https://plumbline.example.org.
        token: Made by ``manage.py make_token``, or in the console: More, Access, API tokens.
    """

    def __init__(self, base_url: str, token: str) -> None:
        self.http = Http(base_url, token)
        self._token = token

    @classmethod
    def from_environment(cls) -> Client:
        """Return a client of PLUMBLINE_URL and PLUMBLINE_TOKEN."""
        for name, allowed in (("PLUMBLINE_URL", "the server's address"), ("PLUMBLINE_TOKEN", "an API token")):
            if not os.environ.get(name):
                raise ValueError(f"{name} is not set; allowed: {allowed}")
        return cls(os.environ["PLUMBLINE_URL"], os.environ["PLUMBLINE_TOKEN"])

    def __repr__(self) -> str:
        return f"Client({self.http.base_url!r})"

    def check(
        self,
        draft: str,
        *,
        persona: str | Mapping[str, Any] | None = None,
        agent: str | None = None,
        trajectory: Sequence[Mapping[str, str]] = (),
        session: str = "",
        seconds: float = 10.0,
        **fields: Any,
    ) -> Check:
        """Ask the gate about a draft. A message does not wait for its judge: what fails or takes too long is `unchecked`.

        Args:
            persona: Who would say it: a text, or `system_prompt` with `name` and `traits`.
            agent: Slug of an agent of the server, in place of `persona`.
            trajectory: What was said before, oldest first, each with `name`, `text` and `kind` (`action` or `stimulus`).
            session: Of an earlier draft of the same message.
            seconds: Within which it returns.
            fields: Others of ``POST /api/quality-checks/``: dimensions, thresholds, propositions, rules, tags.

        Raises:
            ValueError: Neither or both of `persona` and `agent` are given, or no seconds.
        """
        if (persona is None) == (agent is None):
            raise ValueError("persona, agent: allowed: exactly one of the two")
        if seconds <= 0:
            raise ValueError(f"seconds {seconds:g}: allowed: more than 0")
        deadline = min(60.0, max(0.1, round(seconds - 0.5, 1)))  # the rest is for the way
        body = {**fields, "draft": draft, "trajectory": list(trajectory), "deadline_seconds": deadline}
        if persona is not None:
            body["persona"] = persona
        if agent is not None:
            body["agent"] = agent
        if session:
            body["session"] = session
        try:
            answer = self.http.request("POST", "/api/quality-checks/", body, seconds=seconds)
            if not isinstance(answer, dict) or "verdict" not in answer:
                raise Refused("this is no answer of Plumbline's gate; is the address right?", status=200)
        except Refused as error:
            logger.error("Plumbline refuses this, nothing is checked: %s", error)
            return Check("unchecked", str(error), refused=True)
        except Unavailable as error:
            logger.warning("unchecked: %s", error)
            return Check("unchecked", str(error))
        if answer["verdict"] == "passed" and not answer["fully_judged"]:
            return Check("unchecked", answer["outcome"], answer=answer)
        return Check(answer["verdict"], answer=answer)

    def gate(self, write: Callable[[str], str], *, seconds: float = 10.0, **fields: Any) -> tuple[str, Check]:
        """Have a message written until a draft passes, and return the text to say and the last check.

        Where no draft passes, the text is the best draft and the verdict `rejected`: whether it is said is yours to decide.

        Args:
            write: Returns a draft; takes the feedback on the one before, at first an empty text.
            seconds: For all checks of this message together, without the writing.
            fields: As `check` takes them.
        """
        drafts: dict[int, str] = {}
        session = feedback = ""
        while True:
            draft = write(feedback)
            began = time.monotonic()
            check = self.check(draft, session=session, seconds=max(0.1, seconds), **fields)
            seconds -= time.monotonic() - began
            if check.verdict != "rejected":
                return draft, check
            drafts[check.answer["attempt"]] = draft
            if check.answer["attempts_left"] <= 0:
                return drafts.get(check.answer["best_attempt"], draft), check
            session = check.answer["session"]
            feedback = check.answer["feedback"]

    def ingest(
        self,
        messages: Iterable[Mapping[str, Any]],
        *,
        channel: str = "",
        tags: Mapping[str, str] | None = None,
        seconds: float = 60.0,
    ) -> dict[str, Any]:
        """Hand in what was said, in batches. A message is stored once, however often it is sent: after an error send all again.

        Args:
            messages: Each with `external_id`, `text`, and one of `agent`, `user`, `outsider`; may have `sent_at`, `parent`,
                `tags`, `payload` and `channel`.
            channel: Slug of the channel of those that name none.
            tags: Put on every message.
            seconds: For each batch, its retries included.

        Returns:
            Sums of what the server counted: received, imported, duplicates, sampled_out, observed; and its `notes`.

        Raises:
            Refused: Nothing of this batch was stored.
            Unavailable: The seconds are over; the batch may have been stored.
        """
        total: dict[str, Any] = {**dict.fromkeys(COUNTS, 0), "notes": []}
        waiting = [dict(message) for message in messages]
        for start in range(0, len(waiting), MOST_MESSAGES):
            batch = waiting[start : start + MOST_MESSAGES]
            body = {"channel": channel, "tags": dict(tags or {}), "messages": batch}
            answer = self.http.request_until_done("POST", "/api/messages/ingest/", body, seconds=seconds)
            for count in COUNTS:
                total[count] += answer[count]
            total["notes"] += [note for note in answer["notes"] if note not in total["notes"]]
        return total

    def ingest_transcript(self, content: str, *, seconds: float = 120.0, **fields: Any) -> dict[str, Any]:
        """Hand in the text of a file of conversations, and return the server's report.

        Args:
            content: In one of the formats of docs/reference/transcripts.md.
            seconds: For all attempts together.
            fields: Others of ``POST /api/transcripts/``: format, channel, speakers, tags, columns, time_zone, dates, dry_run.

        Raises:
            Refused: Nothing was stored.
            Unavailable: The seconds are over; it may have been stored.
        """
        body = {**fields, "content": content}
        report: dict[str, Any] = self.http.request_until_done("POST", "/api/transcripts/", body, seconds=seconds)
        return report

    def otlp_environment(self, *, agent: str = "") -> dict[str, str]:
        """Return the environment with which OpenTelemetry's exporter sends GenAI spans to the server. It holds the token.

        Args:
            agent: Name of the agent that the program is, where its spans do not say it (`gen_ai.agent.name`).
        """
        environment = {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{self.http.base_url}/api/otlp/v1/traces",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": f"authorization=Token%20{quote(self._token, safe='')}",
        }
        if agent:
            environment["OTEL_RESOURCE_ATTRIBUTES"] = f"gen_ai.agent.name={quote(agent, safe='')}"
        return environment
