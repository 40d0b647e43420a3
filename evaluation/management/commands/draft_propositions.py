"""``manage.py draft_propositions``: have a model suggest propositions from personas, and write them to a file of the team's."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from rich.progress import Progress

from agents.commands import NOT_ENOUGH, WRONG_USAGE, CodedCommand, console_for_bars, console_on, snippet
from agents.finding import UnknownAgent, find_agents
from agents.models import Agent
from evaluation.drafting.suggesting import MOST, Suggestions, Written, path_for, suggest_for, write_suggestions
from evaluation.propositions.editing import CannotSave, team_folder
from evaluation.propositions.files import LoadedFile, PropositionError, load_file, proposition_dirs
from evaluation.wording import cost_line, counted, judge_label, spent_json

_Outcome = tuple[Suggestions, Written | None, str]  # what was suggested, where it was written, why it was not


class Command(CodedCommand):
    help = (
        "Have a model suggest propositions from personas: rules, cues and anti-patterns, each with the words of the persona it comes from. "
        "They are written as suggestions, which are not judged before you accept them; an existing file is only added to. "
        "Exit code: 0 asked and written, 2 for some agent there was no answer or its file could not be written, 3 wrong usage or no model."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--agents", default="all", help="slugs separated by commas, or all (default: all active agents)"
        )
        parser.add_argument(
            "--out", type=Path, metavar="DIR", help="folder to write to (default: the first of PROPOSITION_DIRS)"
        )
        parser.add_argument(
            "--max", type=int, default=MOST, metavar="N", help=f"most suggestions per agent, 1 to 50 (default: {MOST})"
        )
        parser.add_argument("--model", default="", help="model to ask (default: JUDGE_MODEL)")
        parser.add_argument("--dry-run", action="store_true", help="ask and show, write nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        folder = options["out"] or team_folder()
        target = None if options["dry_run"] else folder
        if folder is None and not options["dry_run"]:
            raise CommandError(
                "there is no folder to write to: name one with --out DIR, or set PROPOSITION_DIRS",
                returncode=WRONG_USAGE,
            )
        try:
            agents = find_agents(options["agents"])
            if not agents:
                raise ValueError("there are no agents yet: `manage.py seed` or `manage.py import_agents` makes some")
            known = list(_unread(folder, agents))
            with Progress(console=console_for_bars(sys.stderr), transient=True) as bar:
                task = bar.add_task("Asking", total=len(agents))
                model, most = options["model"], options["max"]
                asked = suggest_for(agents=agents, model=model, most=most, known=known, done=lambda: bar.advance(task))
                outcomes = [_written(suggestions, target) for suggestions in asked]
        except PropositionError as error:
            raise CommandError(f"proposition files cannot be used:\n{error}", returncode=WRONG_USAGE) from None
        except (ValueError, UnknownAgent, CannotSave) as error:
            raise CommandError(str(error), returncode=WRONG_USAGE) from None
        judge = options["model"] or str(settings.JUDGE_MODEL)
        if options["json"]:
            document = {"judge": judge, "dry_run": options["dry_run"], "agents": [_as_json(*one) for one in outcomes]}
            self.stdout.write(json.dumps(document, ensure_ascii=False, indent=2))
        else:
            self._show(outcomes, judge, target, dry_run=options["dry_run"])
        failed = [f"{s.agent.slug}: {problem or s.reason}" for s, _, problem in outcomes if s.failed or problem]
        if failed:
            raise CommandError("no suggestions for:\n  " + "\n  ".join(failed), returncode=NOT_ENOUGH)

    def _show(self, outcomes: Sequence[_Outcome], judge: str, target: Path | None, *, dry_run: bool) -> None:
        self.stdout.write(f"Suggested by {judge_label(judge)}")
        for one in outcomes:
            _show_agent(*one, console_on(self.stdout))
        usable = sum(len(s.usable) for s, _, _ in outcomes)
        dropped = sum(len(s.dropped) for s, _, _ in outcomes)
        written = " Nothing was written." if dry_run else ""
        self.stdout.write(f"{counted(usable, 'suggestion')}, {dropped} dropped.{written}")
        for suggestions, _, _ in outcomes:
            if suggestions.spent.calls:
                self.stdout.write(f"  {suggestions.agent.slug}: {cost_line(suggestions.spent)}")
        if usable and target is not None:
            self.stdout.write("Try one first: manage.py try_proposition FILE:ID --agent AGENT.")
            self.stdout.write("Accept or reject them in the console (Propositions), or by editing the files.")
            if not _is_read(target):
                self.stdout.write(self.style.WARNING(f"{target} is not read: add it to PROPOSITION_DIRS."))


def _written(suggestions: Suggestions, target: Path | None) -> _Outcome:
    try:
        return suggestions, write_suggestions(suggestions, folder=target) if target is not None else None, ""
    except CannotSave as problem:
        return suggestions, None, str(problem)


def _as_json(suggestions: Suggestions, written: Written | None, problem: str) -> dict[str, Any]:
    return {
        "agent": suggestions.agent.slug,
        "suggestions": [dict(one.entry) for one in suggestions.usable],
        "dropped": [{"claim": one.what, "reason": one.reason} for one in suggestions.dropped],
        "reason": suggestions.reason,
        "failed": suggestions.failed,
        "file": str(written.path) if written else None,
        "appended": written.appended if written else None,
        "problem": problem,
        **spent_json(suggestions.spent),
    }


def _show_agent(suggestions: Suggestions, written: Written | None, problem: str, console: Any) -> None:
    """Print what was suggested about one agent, what was dropped and why, and where the rest was written."""
    said = counted(len(suggestions.usable), "suggestion") if suggestions.usable else snippet(suggestions.reason, 400)
    console.print(f"[bold]{snippet(suggestions.agent.slug)}[/bold]: {said}")
    for one in suggestions.usable:
        spec = one.spec
        kind = "rule" if spec.rule else "cues" if spec.cues else "judge only"
        console.print(f"  {spec.id} ({kind}{', anti-pattern' if spec.inverted else ''}): {snippet(spec.claim)}")
        console.print(f"      from “{snippet(spec.source, 160)}”")
    for gone in suggestions.dropped:
        console.print(f"  dropped: {snippet(gone.reason)} – {snippet(gone.what, 100)}")
    if written:
        console.print(f"  {'added to' if written.appended else 'written to'} {snippet(str(written.path), 400)}")
    if problem:
        console.print(f"  [red]not written[/red]: {snippet(problem, 600)}")


def _is_read(folder: Path) -> bool:
    return any(folder.resolve().is_relative_to(read.resolve()) for read in proposition_dirs())


def _unread(folder: Path | None, agents: Sequence[Agent]) -> Iterator[LoadedFile]:
    """Suggestions of these agents in a folder that is not among those that are read."""
    if folder is None or _is_read(folder):
        return
    for agent in agents:
        path = path_for(folder, agent.slug)
        if path.exists():
            yield load_file(path)
