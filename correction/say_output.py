"""What `manage.py say` shows of a result: one JSON object, or a small table for people."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from agents.terminal import console_on
from agents.turn.values import SendResult
from correction.models import ObservedMessage, Outcome
from evaluation.presentation import judge_label


def as_json(result: SendResult) -> dict[str, Any]:
    """The result as data. `gate_session` and `attempt` are null and `dimensions` empty where no gate looked at the draft."""
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
    """The result for people: outcome, the dimensions, and what to do next."""
    console = console_on(out)
    gate = result.reports.get("gate") or {}
    console.print(escape(_headline(result, gate, agent, channel)))
    if gate:
        console.print(_table(gate["dimensions"]))
        console.print(escape(f"Judge: {judge_label(gate['judge'])}"))
    if result.committed:
        console.print(escape(f"Said: {result.text}"))
        return
    console.print("What the agent would be told:", style="bold")
    console.print(escape(result.feedback))
    if result.session:
        console.print(escape(f"\nNext attempt:  manage.py say {agent} {channel} TEXT --session {result.session}"))


def _headline(result: SendResult, gate: dict[str, Any], agent: str, channel: str) -> str:
    labels = dict(Outcome.choices)
    outcome = labels.get(str(result.outcome), str(result.outcome).replace("_", " "))
    where = f"{agent} in {channel}"
    if not gate:
        if ObservedMessage.objects.filter(message=result.message).exists():
            return f"{where}: {outcome}. Observe mode: a worker judges it afterwards (`manage.py work`), see Correction logs."
        return f"{where}: {outcome}. No gate looked at it."
    attempt = f"attempt {gate['attempt']}"
    if gate.get("best", gate["attempt"]) != gate["attempt"]:
        attempt += f", said was attempt {gate['best']}"
    return f"{where}: {outcome} ({attempt}, session {gate['session']})."


def _table(dimensions: dict[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("Dimension", no_wrap=True)
    table.add_column("Score", justify="right")
    table.add_column("Needed", justify="right")
    table.add_column("Result", no_wrap=True)
    table.add_column("Reasoning", ratio=1, overflow="fold")
    for name, check in dimensions.items():
        verdict = "passed" if check["passed"] else "FAILED"
        table.add_row(
            escape(name),
            "–" if check["score"] is None else f"{check['score']:g}",
            f"{check['threshold']:g}",
            verdict if check["status"] == "scored" else f"{verdict} ({check['status']})",
            escape(check["reasoning"]),
        )
    return table
