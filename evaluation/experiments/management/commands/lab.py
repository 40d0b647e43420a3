"""``manage.py lab``: fork a real conversation, try repairs on the forks, and say which works, for how many turns, and at what cost."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import CommandError

from agents.kit.commands import FAILED, BaseCommand, console_on, snippet, unusable
from agents.kit.use_cases import add_options, fields_of, read_options, refusing
from evaluation.experiments.commands import estimate_line, play_and_judge
from evaluation.experiments.estimate import estimate_experiment
from evaluation.experiments.lab import LabRequest, request_lab
from evaluation.experiments.printed import as_markdown, show
from evaluation.experiments.problems import ExperimentRefused

OPTIONS = [name for name in fields_of(LabRequest) if name not in ("channel", "arms")]


class Command(BaseCommand):
    help = """An agent has drifted in a conversation: which repair works, for how many turns, and at what cost?

  manage.py lab office --at 40 --dry-run                 what it would play and cost; writes nothing
  manage.py lab office --at 40                           a reminder and gate=enforce, beside a control
  manage.py lab office --at 40 --arm reminder --arm "reminder-every=5" --arm persona=2 --arm gate=enforce

The conversation is only read: forks of it, marked synthetic, are played on. Ctrl-C stops it; manage.py experiment run NUMBER resumes
it, and manage.py experiment report NUMBER shows the report again (also markdown, csv, json).

Exit code: 0 done, 1 not finished (failed, paused by its budget)."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        add_options(parser, LabRequest, "channel")
        parser.add_argument(
            "--arm", dest="arms", action="append", metavar="REPAIR", help=fields_of(LabRequest)["arms"].help
        )
        add_options(parser, LabRequest, *OPTIONS)
        parser.add_argument("--dry-run", action="store_true", help="say what it would play and cost, and write nothing")
        parser.add_argument("--format", choices=("terminal", "markdown"), default="terminal")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        """Start a laboratory, play and judge it here, and show the report; with ``--dry-run`` only say what it would take.

        Raises:
            CommandError: It cannot be played, was stopped, or did not finish.
        """
        if options["arms"]:
            options["arms"] = "\n".join(options["arms"])
        request = read_options(LabRequest, options)
        is_quiet = options["json"] or options["format"] != "terminal"
        with refusing(LabRequest):
            try:
                estimate = estimate_experiment(request.scenario(), **request.models)
                if options["dry_run"] and options["json"]:
                    self.stdout.write(estimate.model_dump_json(indent=2))
                    return
                if options["dry_run"] or not is_quiet:
                    self._print_line(estimate_line(estimate))
                    for finding in estimate.findings():
                        self._print_line(finding)
                if options["dry_run"]:
                    return
                experiment = request_lab(request)
            except ExperimentRefused as error:
                raise unusable(f"it cannot be played:\n{error}") from None
        if not is_quiet:
            resuming = f"manage.py experiment run {experiment.pk} resumes it"
            self._print_line(f"Experiment {experiment.pk}, {experiment.name}: Ctrl-C stops it; {resuming}.")
        result = play_and_judge(experiment, quiet=is_quiet)
        if options["json"]:
            self.stdout.write(result.model_dump_json(indent=2))
        elif options["format"] == "markdown":
            self.stdout.write(as_markdown(result))
        else:
            show(result, console_on(self.stdout))
        if result.unfinished:
            raise CommandError(f"not finished: {result.unfinished}", returncode=FAILED)

    def _print_line(self, line: str) -> None:
        console_on(self.stdout).print(snippet(line, 1_000))
