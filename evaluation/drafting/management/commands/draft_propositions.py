"""``manage.py draft_propositions``: have a model suggest propositions from personas, and write them to a file of the team's."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from rich.progress import Progress

from agents.kit.commands import CodedCommand, console_for_bars, console_on, snippet, unanswered, unusable
from agents.kit.text.wording import counted
from agents.kit.use_cases import add_options, read_options
from agents.models.conversations import UnknownAgent
from evaluation.commands import as_text
from evaluation.drafting.editing import NO_FOLDER, CannotSave, team_folder
from evaluation.drafting.jobs import SuggestionsRequest
from evaluation.drafting.suggesting import Suggestions, suggest_for, write_suggestions
from evaluation.propositions.files import PropositionError
from evaluation.wording import cost_line, judge_label


class Command(CodedCommand):
    help = (
        "Have a model suggest propositions from personas: rules, cues and anti-patterns, each with the words of the persona it comes from. "
        "They are written to the first of PROPOSITION_DIRS as suggestions, which are not judged before you accept them. "
        "Exit code: 0 asked and written, 2 for some agent there was no answer or its file could not be written."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_options(parser, SuggestionsRequest)
        add = parser.add_argument
        add("--dry-run", action="store_true", help="ask and show, write nothing")
        add("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        request = read_options(SuggestionsRequest, options)
        target = None if options["dry_run"] else team_folder()
        if target is None and not options["dry_run"]:
            raise unusable(NO_FOLDER)
        try:
            agents = request.find_agents()
            if not agents:
                raise ValueError("there are no agents yet: `manage.py seed` or `manage.py import_agents` makes some")
            with Progress(console=console_for_bars(sys.stderr), transient=True) as bar:
                task = bar.add_task("Asking", total=len(agents))
                done = partial(bar.advance, task)
                asked = suggest_for(agents=agents, model=request.model, most=request.max, done=done)
            for one in asked:
                try:
                    if target is not None:
                        write_suggestions(one, folder=target)
                except CannotSave as problem:
                    one.problem = str(problem)
        except PropositionError as error:
            raise unusable(f"proposition files cannot be used:\n{error}") from None
        except UnknownAgent as error:
            raise unusable(f"--agents: {error}") from None
        except (ValueError, CannotSave) as error:
            raise unusable(error) from None
        judge = request.model or str(settings.JUDGE_MODEL)
        if options["json"]:
            rows = [one.model_dump() for one in asked]
            self.stdout.write(as_text({"judge": judge, "dry_run": options["dry_run"], "agents": rows}))
        else:
            self._show(asked, judge, target, dry_run=options["dry_run"])
        failed = [f"{one.agent}: {one.problem or one.reason}" for one in asked if one.failed or one.problem]
        if failed:
            raise unanswered("no suggestions for:\n  " + "\n  ".join(failed))

    def _show(self, asked: Sequence[Suggestions], judge: str, target: Path | None, *, dry_run: bool) -> None:
        self.stdout.write(f"Suggested by {judge_label(judge)}")
        for one in asked:
            _show_agent(one, console_on(self.stdout))
        usable = sum(len(one.suggestions) for one in asked)
        dropped = sum(len(one.dropped) for one in asked)
        written = " Nothing was written." if dry_run else ""
        self.stdout.write(f"{counted(usable, 'suggestion')}, {dropped} dropped.{written}")
        for one in asked:
            if one.calls:
                self.stdout.write(f"  {one.agent}: {cost_line(one.spent)}")
        if usable and target is not None:
            self.stdout.write("Try one first: manage.py try_proposition FILE:ID --agent AGENT.")
            self.stdout.write("Accept or reject them in the console (Quality › Propositions), or by editing the files.")


def _show_agent(suggestions: Suggestions, console: Any) -> None:
    """Print what was suggested about one agent, what was dropped and why, and where the rest was written."""
    said = counted(len(suggestions.usable), "suggestion") if suggestions.usable else snippet(suggestions.reason, 400)
    console.print(f"[bold]{snippet(suggestions.agent)}[/bold]: {said}")
    for _, spec in suggestions.usable:
        kind = "rule" if spec.rule else "cues" if spec.cues else "judge only"
        console.print(f"  {spec.id} ({kind}{', anti-pattern' if spec.inverted else ''}): {snippet(spec.claim)}")
        console.print(f"      from “{snippet(spec.source, 160)}”")
    for gone in suggestions.dropped:
        console.print(f"  dropped: {snippet(gone.reason)} – {snippet(gone.claim, 100)}")
    if suggestions.file:
        console.print(f"  {'added to' if suggestions.appended else 'written to'} {snippet(suggestions.file, 400)}")
    if suggestions.problem:
        console.print(f"  [red]not written[/red]: {snippet(suggestions.problem, 600)}")
