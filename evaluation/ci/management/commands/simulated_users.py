"""``manage.py simulated_users``: judge the simulated users of test runs, and list the runs to throw away."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from rich.markup import escape

from agents.kit.commands import NOT_ENOUGH, REGRESSION, CodedCommand, console_on, print_table, snippet, unusable, wrong
from agents.kit.files.source import FileError
from agents.kit.text.wording import counted
from agents.models import Agent
from agents.personas.reader import import_agents
from agents.personas.shape import PersonaError
from agents.transcripts.importer import ReadOptions, import_transcript
from agents.transcripts.records import OptionError
from evaluation.ci.files import private_database, with_propositions
from evaluation.ci.simulated_users import (
    PERSONA,
    SLUG,
    BrokenRuns,
    SimulatedUserReport,
    offline_scores,
    percent,
    report_simulated_users,
    show_instructions,
    stored_scores,
)
from evaluation.commands import ProgressBar, check_writable, measuring, write_text
from evaluation.models import Dimension, EvaluationRun, is_heuristic
from evaluation.runs.execute import capture
from evaluation.runs.failures import refusal
from evaluation.runs.spec import MOST_SAMPLES, RunSpec
from evaluation.wording import judge_label

ENDINGS = (".json", ".jsonl")
MOST_LISTED = 10  # runs to throw away in the terminal


class Command(CodedCommand):
    help = (
        "Judge the simulated users of test runs: in how many runs they left their role (became the helper, knew too much, refused …), at "
        "which turn first, by which proposition, in passed and in failed runs; and which runs to throw away. Reads files of τ²-bench, the "
        "ADK and LangWatch Scenario, and others that are imported, in memory: the database is not touched. Exit code: 0; 1 where "
        "--limit is significantly exceeded; 2 where nothing could be judged; 3 where files cannot be used."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="files of runs, or folders of them")
        parser.add_argument(
            "--persona",
            type=Path,
            metavar="FILE",
            help="the simulated user's persona (default: a person who wants something done)",
        )
        parser.add_argument(
            "--speaker",
            default="user",
            metavar="NAME",
            help="role or name of the simulated user in the files (default: user)",
        )
        parser.add_argument(
            "--propositions",
            type=Path,
            metavar="DIR",
            help=f"a folder of your own propositions for {SLUG}, beside the shipped ones",
        )
        parser.add_argument(
            "--limit",
            type=float,
            metavar="SHARE",
            help="most runs that may be broken, 0 to 1: beyond it (the whole interval) exit code 1",
        )
        parser.add_argument("--csv", type=Path, metavar="FILE", help="write the runs to throw away as CSV")
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object on standard output and nothing else"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        limit = options["limit"]
        if limit is not None and not 0 <= limit <= 1:
            raise wrong(f"--limit {limit:g}: allowed: a share from 0 to 1")
        if options["csv"] is not None:
            check_writable("--csv", options["csv"])
        with (
            measuring(stored="Files are measured in memory, so nothing was stored."),
            with_propositions(options["propositions"]),
            private_database(),
        ):
            agent = _make_user(options["persona"])
            self._read_runs(agent, options["paths"], options["speaker"])
            report = self._judge(agent, quiet=options["json"] and not sys.stderr.isatty())
        if options["csv"] is not None:
            write_text("--csv", options["csv"], report.csv)
        if options["json"]:
            self.stdout.write(report.model_dump_json(indent=2))
        else:
            self._print(report)
        self._end(report, limit)

    def _read_runs(self, agent: Agent, paths: Sequence[Path], speaker: str) -> None:
        """Import the files of runs; name those that cannot be read on standard error.

        Raises:
            CommandError: A path is not there, or none of the files holds a run.
        """
        options = ReadOptions(speaker_map={speaker: agent.slug})
        unreadable = []
        read = 0
        files_called: Counter[str] = Counter()
        for path in _files(paths):
            files_called[path.stem] += 1
            name = path.name
            if files_called[path.stem] > 1:  # runs without an id are named after their file
                name = f"{path.stem}-{files_called[path.stem]}{path.suffix}"
            try:
                import_transcript(path, options, name=name)
                read += 1
            except (FileError, OptionError, OSError) as error:
                unreadable.append(_why_unreadable(path, error))
        if unreadable:
            more = f" and {len(unreadable) - 3} more" if len(unreadable) > 3 else ""
            self.stderr.write(f"Left out: {'; '.join(unreadable[:3])}{more}.")
        if not read:
            raise unusable(
                f"{', '.join(map(str, paths))}: no file of runs; allowed: files of τ²-bench, the ADK, LangWatch Scenario"
            )
        show_instructions(agent)

    def _judge(self, agent: Agent, *, quiet: bool) -> SimulatedUserReport:
        """Judge every message of the simulated user, and return the report.

        Raises:
            CommandError: The judge refuses to be asked: key, model or address are wrong.
        """
        judge = str(settings.JUDGE_MODEL)
        if is_heuristic(judge):
            return report_simulated_users(agent, offline_scores(agent), judge=judge)
        spec = RunSpec(agent=agent, dimensions=(Dimension.ADHERENCE.value,), samples=MOST_SAMPLES)
        with ProgressBar("Judging", sys.stderr, quiet=quiet) as bar:
            captured = capture([spec], prepared=bar.prepared, progress=bar.progress)
        run: EvaluationRun = captured[0].summary.run
        why_refused = refusal([run])
        if why_refused:
            raise unusable(why_refused)
        return report_simulated_users(agent, stored_scores(run), judge=judge)

    def _print(self, report: SimulatedUserReport) -> None:
        """Print the sentence, the shares by outcome and by proposition, and the first runs to throw away."""
        console = console_on(self.stdout)
        console.print(f"[bold]{escape(report.sentence)}[/]")
        if report.first_turn is not None:
            console.print(f"First at turn {report.first_turn:g} of the user (median).")
        outcomes = [("passed runs", report.passed_runs), ("failed runs", report.failed_runs)]
        console.print("; ".join(f"{name}: {_share_text(runs)}" for name, runs in outcomes))
        judge = judge_label(report.judge)
        console.print(
            f"{report.messages_scored:,} of {counted(report.messages, 'message')} scored. Judge: {escape(judge)}."
        )
        if report.heuristic:
            console.print("Set JUDGE_MODEL for the whole set.")
        rows = []
        for proposition in sorted(report.propositions, key=lambda each: -each.runs.broken):
            turn = "–" if proposition.first_turn is None else f"{proposition.first_turn:g}"
            runs = "not scored" if not proposition.messages_scored else _share_text(proposition.runs)
            rows.append((proposition.proposition, runs, turn))
        print_table(console, ("proposition", "runs broken", "first turn"), rows)
        for row in report.throw_away[:MOST_LISTED]:
            outcome = {True: "passed", False: "failed", None: "no outcome"}[row.passed]
            line = f"{row.run} ({outcome}), turn {row.turn}, {', '.join(row.propositions)}: “{row.text}”"
            console.print(snippet(line))
        if len(report.throw_away) > MOST_LISTED:
            console.print(f"… and {len(report.throw_away) - MOST_LISTED:,} more: --csv FILE or --json lists them.")

    def _end(self, report: SimulatedUserReport, limit: float | None) -> None:
        """End with the exit code of what was found.

        Raises:
            CommandError: Nothing could be judged, or the limit is significantly exceeded.
        """
        runs = report.all_runs
        if runs.interval is None:
            why = "there is no message of the simulated user in these files; --speaker says who it is"
            if report.unjudged_runs:
                why = f"the judge scored no message of {counted(report.unjudged_runs, 'run')}"
            raise CommandError(why, returncode=NOT_ENOUGH)
        if limit is not None and runs.interval[0] > limit:
            raise CommandError(
                f"more than {percent(limit)} of the runs are broken: {_share_text(runs)}", returncode=REGRESSION
            )


def _why_unreadable(path: Path, error: Exception) -> str:
    """Return the file, the line and the reason, in words of this command: options of the one that imports are not here."""
    if not isinstance(error, FileError):
        return f"{path}: {error}".replace("--map", "--speaker")
    line = f", line {error.line}" if error.line else ""
    return f"{path}{line}: {error.reason}"


def _make_user(persona: Path | None) -> Agent:
    """Make the agent that the simulated user is, with the persona of a file; return it.

    Raises:
        CommandError: The file is no persona.
    """
    if persona is None:
        return Agent.objects.create(slug=SLUG, display_name="Simulated user", system_prompt=PERSONA)
    try:
        agents = [result.agent for result in import_agents(path=persona)]
    except (PersonaError, OSError) as error:
        raise unusable(f"--persona {persona}: {error}") from None
    if len(agents) != 1:
        raise unusable(f"--persona {persona}: holds {len(agents)} personas; allowed: a file with one")
    agents[0].slug = SLUG  # its propositions are those of this slug
    agents[0].save()
    return agents[0]


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files that were named, and of folders those inside that end like files of runs, by name.

    Raises:
        CommandError: One is not there.
    """
    for path in paths:
        if not path.exists():
            raise unusable(f"{path}: there is no such file or folder")
        if path.is_dir():
            yield from sorted(file for file in path.rglob("*") if file.suffix in ENDINGS and file.is_file())
        else:
            yield path


def _share_text(runs: BrokenRuns) -> str:
    """Return ``12 of 500, 2.4 % (1.4 % to 4.2 %)``; a dash where there is no run."""
    if runs.share is None or runs.interval is None:
        return "–"
    low, high = runs.interval
    return f"{runs.broken:,} of {runs.runs:,}, {percent(runs.share)} ({percent(low)} to {percent(high)})"
