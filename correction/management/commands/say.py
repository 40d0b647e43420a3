"""``manage.py say``: pass a given draft through review and commit, as an agent's own would be."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from agents.bodies import no_channel
from agents.kit.commands import FAILED, BaseCommand, Cell, console_on, print_table, unusable
from agents.models import Channel
from agents.models.conversations import UnknownAgent, find_agent
from agents.turn.pipeline import SendResult
from agents.turn.send_message import SendRefused, send_message
from correction.gate.sessions import check_session
from correction.models import ObservedMessage, Outcome
from evaluation.wording import judge_label


def as_json(result: SendResult) -> dict[str, Any]:
    """Return the result as data. `gate_session` and `attempt` are null and `dimensions` empty where no gate looked at the draft."""
    gate = result.reports.get("gate") or {}
    return {
        "outcome": str(result.outcome),
        "text": result.text,
        "message": result.message.pk if result.message is not None else None,
        "gate_session": gate.get("session"),
        "attempt": gate.get("attempt"),
        "dimensions": gate.get("dimensions", {}),
        "feedback": result.feedback,
    }


def write_result(result: SendResult, *, agent: str, channel: str, out: Any) -> None:
    """Print the result for people: the outcome with the gate's dimensions and judge, or why no gate looked; then the text or the feedback.

    A draft that was sent back is followed by the command for the next attempt, where it has a session.
    """
    console = console_on(out, markup=False)
    gate = result.reports.get("gate") or {}
    if gate:
        console.print(f"{agent} in {channel}: {_outcome_label(result)} ({_attempt_in_words(gate)}).")
        _print_dimensions(gate["dimensions"], out)
        console.print(f"Judge: {judge_label(gate['judge'])}")
    else:
        console.print(f"{agent} in {channel}: {_outcome_label(result)}. {_why_no_gate(result)}")
    if result.committed:
        console.print(f"Said: {result.text}")
        return
    console.print("Feedback to the agent:", style="bold")
    console.print(result.feedback)
    if result.session:
        console.print(f"\nNext attempt:  manage.py say {agent} {channel} TEXT --session {result.session}")


def _outcome_label(result: SendResult) -> str:
    labels = dict(Outcome.choices)
    return labels.get(str(result.outcome), str(result.outcome).replace("_", " "))


def _attempt_in_words(gate: dict[str, Any]) -> str:
    """Return which attempt the gate judged, and which one was sent where that is another."""
    attempt = f"attempt {gate['attempt']}"
    if gate.get("best", gate["attempt"]) != gate["attempt"]:
        attempt += f", said was attempt {gate['best']}"
    return f"{attempt}, session {gate['session']}"


def _why_no_gate(result: SendResult) -> str:
    """Return a sentence on a message that no gate looked at before it was sent."""
    if ObservedMessage.objects.filter(message=result.message).exists():
        return "Observe mode: a worker judges it afterwards (`manage.py work`): Gate › Log in the console."
    return "No gate looked at it."


def _print_dimensions(dimensions: dict[str, dict[str, Any]], out: Any) -> None:
    """Print a table of the dimensions that the gate looked at; of one that was not scored the status, such as timeout, is in brackets."""
    rows: list[list[Cell]] = []
    for name, check in dimensions.items():
        verdict = "passed" if check["passed"] else "FAILED"
        if check["status"] != "scored":
            verdict = f"{verdict} ({check['status']})"
        score = None if check["score"] is None else f"{check['score']:g}"
        rows.append([name, score, f"{check['threshold']:g}", verdict, check["reasoning"]])
    heads = ("Dimension", ">Score", ">Needed", "Result", "Reasoning")
    print_table(console_on(out), heads, rows, unwrapped=("Dimension", "Result"))


class Command(BaseCommand):
    help = (
        "Say TEXT as AGENT in CHANNEL: the draft passes the review stages and is committed, or is sent back with feedback. "
        "Exit code 0 when it was said, 1 when it was sent back."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("agent", help="slug or name of the agent")
        parser.add_argument("channel", help="slug of the channel; the agent must be a member")
        parser.add_argument("text", help="the draft; - reads it from standard input")
        parser.add_argument(
            "--session", default="", metavar="ID", help="next attempt at the message that was sent back under this id"
        )
        parser.add_argument(
            "--key", default="", help="idempotency key: the same key never commits twice and is not judged twice"
        )
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object on standard output and nothing else"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            agent = find_agent(options["agent"])
        except UnknownAgent as error:
            raise unusable(error) from None
        channel = self._channel(options["channel"])
        text = self._text(options["text"])
        try:
            if options["session"]:
                check_session(session=options["session"], agent=agent, channel=channel)
            result = send_message(
                agent=agent, channel=channel, text=text, session=options["session"], idempotency_key=options["key"]
            )
        except (SendRefused, ValueError) as error:
            raise unusable(error) from None
        self._print_result(result, options)
        if not result.committed:
            sys.exit(FAILED)

    def _text(self, typed: str) -> str:
        """Return the draft: what was typed, or for ``-`` what standard input has."""
        if typed != "-":
            return typed
        try:
            return sys.stdin.read().removesuffix("\n")
        except UnicodeDecodeError as error:
            raise unusable(f"the text on standard input is not UTF-8: {error}") from None

    def _channel(self, slug: str) -> Channel:
        """Return the channel of this slug."""
        row = Channel.objects.filter(slug=slug.removeprefix("#")).first()
        if row is None:
            raise unusable(no_channel(slug))
        return row

    def _print_result(self, result: SendResult, options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(json.dumps(as_json(result), ensure_ascii=False))
        else:
            write_result(result, agent=options["agent"], channel=options["channel"], out=self.stdout)
