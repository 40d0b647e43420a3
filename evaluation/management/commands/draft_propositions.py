"""``manage.py draft_propositions``: propose propositions from personas, as drafts in a file of the team's."""

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

from agents.commands import NOT_ENOUGH, WRONG_USAGE, CodedCommand, console_for_bars
from agents.models import Agent
from evaluation.capture import UnknownAgents, choose_agents
from evaluation.drafting.presentation import cost_line, drafted_json, show_drafted
from evaluation.drafting.replacing import CannotWrite
from evaluation.drafting.service import MOST, Drafted, draft_for
from evaluation.drafting.writing import Written, default_folder, path_for, write_drafts
from evaluation.models import is_heuristic
from evaluation.presentation import judge_label
from evaluation.propositions.files import LoadedFile, PropositionError, load_file, proposition_dirs
from evaluation.wording import counted


class Command(CodedCommand):
    help = (
        "Propose claims, rules, cues and anti-patterns from personas, each with the words of the persona it comes from. They are written "
        "as drafts, which nothing judges before somebody accepts them; an existing file is only added to. Offline: exact rules only. "
        "Exit code: 0 asked and written, 2 for some agent there was no answer or its file could not be written, 3 wrong usage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--agents", default="all", help="slugs separated by commas, or all (default: all active agents)"
        )
        parser.add_argument(
            "--out", type=Path, metavar="DIR", help="folder to write to (default: the first of PROPOSITION_DIRS)"
        )
        parser.add_argument(
            "--max", type=int, default=MOST, metavar="N", help=f"most drafts per agent, 1 to 50 (default: {MOST})"
        )
        parser.add_argument("--model", default="", help="model to ask (default: JUDGE_MODEL)")
        parser.add_argument("--dry-run", action="store_true", help="ask and show, write nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        folder = options["out"] or default_folder()
        if folder is None and not options["dry_run"]:
            raise CommandError(
                "there is no folder to write to: name one with --out DIR, or set PROPOSITION_DIRS",
                returncode=WRONG_USAGE,
            )
        try:
            agents = choose_agents(options["agents"])
            if not agents:
                raise ValueError("there are no agents yet: `manage.py seed` or `manage.py import_agents` makes some")
            known = list(_unread(folder, agents))
            with Progress(console=console_for_bars(sys.stderr), transient=True) as bar:
                task = bar.add_task("Drafting", total=len(agents))
                found = list(
                    draft_for(
                        agents=agents,
                        model=options["model"],
                        most=options["max"],
                        known=known,
                        done=lambda agent: bar.advance(task),
                    )
                )
        except PropositionError as error:
            raise CommandError(f"proposition files cannot be used:\n{error}", returncode=WRONG_USAGE) from None
        except (ValueError, UnknownAgents, CannotWrite) as error:
            raise CommandError(str(error), returncode=WRONG_USAGE) from None
        self._finish(found, folder, options)

    def _finish(self, found: Sequence[Drafted], folder: Path | None, options: dict[str, Any]) -> None:
        judge = options["model"] or str(settings.JUDGE_MODEL)
        written: list[tuple[Drafted, Written | None, str]] = []
        for drafted in found:
            file, problem = None, ""
            if folder is not None and not options["dry_run"]:
                try:
                    file = write_drafts(drafted, folder=folder)
                except CannotWrite as error:
                    problem = str(error)
            written.append((drafted, file, problem))
        if options["json"]:
            document = {
                "judge": judge,
                "dry_run": options["dry_run"],
                "agents": [drafted_json(*one) for one in written],
            }
            self.stdout.write(json.dumps(document, ensure_ascii=False, indent=2))
        else:
            self._show(written, judge, folder, options)
        failed = [f"{d.agent.slug}: {problem or d.reason}" for d, _, problem in written if d.failed or problem]
        if failed:
            raise CommandError("no drafts for:\n  " + "\n  ".join(failed), returncode=NOT_ENOUGH)

    def _show(
        self,
        written: Sequence[tuple[Drafted, Written | None, str]],
        judge: str,
        folder: Path | None,
        options: dict[str, Any],
    ) -> None:
        self.stdout.write(f"Proposed by {judge_label(judge)}")
        for one in written:
            show_drafted(*one, self.stdout)
        drafts = sum(len(d.drafts) for d, _, _ in written)
        dropped = sum(len(d.dropped) for d, _, _ in written)
        self.stdout.write(
            f"{counted(drafts, 'draft')}, {counted(dropped, 'proposal')} dropped."
            + (" Nothing was written." if options["dry_run"] else "")
        )
        calls = [d.spent for d, _, _ in written if d.spent.calls]
        if calls and not is_heuristic(judge):
            for drafted, _, _ in written:
                self.stdout.write(f"  {drafted.agent.slug}: {cost_line(drafted.spent)}")
        if drafts and folder is not None and not options["dry_run"]:
            self.stdout.write("Try one first: manage.py try_proposition FILE:ID --agent AGENT.")
            self.stdout.write("Accept or reject them in the console (Propositions), or by editing the files.")
            if not any(folder.resolve().is_relative_to(d.resolve()) for d in proposition_dirs()):
                self.stdout.write(self.style.WARNING(f"{folder} is not read: add it to PROPOSITION_DIRS."))


def _unread(folder: Path | None, agents: Sequence[Agent]) -> Iterator[LoadedFile]:
    """Drafts files of these agents in a folder that is not among those that are read."""
    if folder is None or any(folder.resolve().is_relative_to(d.resolve()) for d in proposition_dirs()):
        return
    for agent in agents:
        path = path_for(folder, agent.slug)
        if path.exists():
            yield load_file(path)
