"""How drafts and trials look in a terminal, and as data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agents.commands import console_on
from agents.llm.ledger import Totals
from agents.text.fences import neutral
from evaluation.drafting.service import Drafted
from evaluation.drafting.trying import Trial, Tried
from evaluation.drafting.writing import Written
from evaluation.presentation import judge_label, money, number
from evaluation.wording import counted

SNIPPET = 240


def shown(text: str, limit: int = SNIPPET) -> str:
    """Text of an agent or a model as it may stand in a terminal."""
    line = " ".join(neutral(text, 10_000)[0].split())
    return escape(line if len(line) <= limit else line[: limit - 1].rstrip() + "…")


def cost_line(spent: Totals, *, exact: bool = False) -> str:
    """Calls, tokens and cost; what is not priced is said to be so."""
    if exact or not spent.calls:
        return "no call was made, it cost nothing"
    cost = money(None if spent.unpriced == spent.calls else spent.cost_usd, spent.unpriced)
    return f"{counted(spent.calls, 'call')}, {spent.input_tokens:,} tokens in, {spent.output_tokens:,} out, cost {cost}"


def spent_json(spent: Totals) -> dict[str, Any]:
    return {
        "calls": spent.calls,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cost_usd": None if spent.unpriced else float(spent.cost_usd),
        "unpriced_calls": spent.unpriced,
    }


def drafted_json(found: Drafted, written: Written | None, problem: str) -> dict[str, Any]:
    return {
        "agent": found.agent.slug,
        "drafts": [dict(draft.entry) for draft in found.drafts],
        "dropped": [{"claim": one.what, "reason": one.reason} for one in found.dropped],
        "reason": found.reason,
        "failed": found.failed,
        "file": str(written.path) if written else None,
        "appended": written.appended if written else None,
        "problem": problem,
        **spent_json(found.spent),
    }


def show_drafted(found: Drafted, written: Written | None, problem: str, out: Any) -> None:
    """What was proposed about one agent, what was dropped and why, and where the rest went."""
    console = console_on(out)
    head = f"[bold]{shown(found.agent.slug)}[/bold]"
    console.print(
        f"{head}: {counted(len(found.drafts), 'draft')}" if found.drafts else f"{head}: {shown(found.reason, 400)}"
    )
    for draft in found.drafts:
        spec = draft.spec
        kind = "rule" if spec.rule else "cues" if spec.cues else "judge only"
        mark = ", anti-pattern" if spec.inverted else ""
        console.print(f"  {spec.id} ({kind}{mark}): {shown(spec.claim)}")
        console.print(f"      from “{shown(spec.source, 160)}”")
    for one in found.dropped:
        console.print(f"  dropped: {shown(one.reason)} – {shown(one.what, 100)}")
    if written:
        console.print(f"  {'added to' if written.appended else 'written to'} {shown(str(written.path), 400)}")
    if problem:
        console.print(f"  [red]not written[/red]: {shown(problem, 600)}")


def trial_json(trial: Trial) -> dict[str, Any]:
    p = trial.proposition
    return {
        "proposition": p.id,
        "claim": p.claim,
        "active": p.active,
        "agent": trial.agent.slug,
        "judge": trial.judge,
        "messages": [_message_json(one) for one in trial.messages],
        "mean": trial.mean,
        "spread": trial.spread,
        "noise": trial.noise,
        **{name: trial.count(name) for name in ("scored", "trivial", "unscored")},
        **spent_json(trial.spent),
        "hint": trial.hint,
        "reason": trial.reason,
    }


def _message_json(one: Tried) -> dict[str, Any]:
    return {
        "message": one.message.pk,
        "channel": one.message.channel.slug,
        "text": one.message.text,
        "score": one.score,
        "judgements": [
            {
                "status": v.status,
                "score": v.value,
                "reasoning": v.reasoning,
                "justification": v.justification,
                "reason": v.reason,
            }
            for v in one.verdicts
        ],
    }


def show_trial(trial: Trial, out: Any) -> None:
    console = console_on(out)
    p = trial.proposition
    marks = [word for word, on in (("a draft", not p.active), ("anti-pattern: scores are flipped", p.inverted)) if on]
    what = f"[bold]{shown(p.id)}[/bold]" + (f" ({', '.join(marks)})" if marks else "")
    whose = f"{counted(len(trial.messages), 'message')} of {shown(trial.agent.slug)}"
    console.print(f"{what} on {whose}, judged by {shown(judge_label(trial.judge))}")
    console.print(f"“{shown(p.claim, 600)}”")
    if trial.reason:
        console.print(shown(trial.reason, 600))
        return
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("Score", justify="right")
    table.add_column("Message", ratio=1, overflow="fold")
    table.add_column("Why", ratio=1, overflow="fold")
    for one in trial.messages:
        verdict = one.shown
        score = number(one.score) if verdict.status == "scored" else verdict.status
        why = verdict.reasoning if verdict.status == "scored" else verdict.reason
        table.add_row(score, f"“{shown(one.message.text)}”", shown(why))
    console.print(table)
    _summary(trial, console)


def _summary(trial: Trial, console: Console) -> None:
    spread = f", spread between messages {trial.spread:.1f}" if trial.spread is not None else ""
    noise = f", noise of one judgement {trial.noise:.1f}" if trial.noise is not None else ""
    counts = ", ".join(f"{trial.count(name)} {name}" for name in ("scored", "trivial", "unscored") if trial.count(name))
    console.print(f"Mean {number(trial.mean)} of 9{spread}{noise}; {counts}.")
    console.print(f"{cost_line(trial.spent, exact=trial.judge == 'rule').capitalize()}. No evaluation was stored.")
    if trial.hint:
        console.print(f"[yellow]{shown(trial.hint, 400)}[/yellow]")


def ids_table(path: Path, entries: Sequence[Any], out: Any) -> None:
    """The propositions of a file, so that one can be named."""
    table = Table(title=shown(str(path), 400), box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("Id", "State", "Claim"):
        table.add_column(heading, overflow="fold")
    for p in entries:
        state = "active" if p.active else "rejected" if p.rejected else "retired" if p.retired else "draft"
        table.add_row(shown(p.id), state, shown(p.claim))
    console_on(out).print(table)
