"""``manage.py lineup --channel X``: can a line be attributed to its speaker?"""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import CommandError
from rich.console import Console
from rich.markup import escape

from agents.kit.commands import NOT_ENOUGH, CodedCommand, console_on, print_table
from agents.kit.use_cases import add_options, read_options
from evaluation.commands import as_text, channel_named
from evaluation.lineup.measuring import LineUp, LineUpRequest, line_up


class Command(CodedCommand):
    help = """Voice line-up: can a line of this channel be attributed to its speaker by how it is written? Free, offline, any language.

What is done: names and mentions are masked, the lines are cut into 5 contiguous stretches of time, and the lines of each
stretch are attributed by their character 2- to 4-grams, learned from the other stretches.

What the figure means: balanced accuracy is the mean over the speakers of the share of their lines that went to them.
100 % = every voice is unmistakable. Beside it stands what chance gives: the same with the speakers' labels shuffled within
each stretch. p is how often a shuffle does as well; above 0.05 the voices cannot be told apart with these lines. "Most
often taken for" shows which personas blend.

What it does not mean: high is not "in character", only "unlike the others". A speaker who always talks about the same
things, or writes in another language, is recognised by that too; nicknames are not masked. A low figure on few short lines says
little: some 20 lines for each speaker are a fair start. Figures compare between builds of one channel with the same
speakers (--where build=41), not between channels. At most 2,000 lines of the 50 speakers who said most are compared,
evenly spread over all, and of a line the first 2,000 characters.

Exit code: 0 there is a figure, 2 there are too few lines or speakers for one."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.add_argument("--channel", required=True, metavar="SLUG", help="whose lines")
        add_options(parser, LineUpRequest)
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        asked = read_options(LineUpRequest, options)
        channel = channel_named(options["channel"])
        result = line_up(channel=channel, window=asked.window, where=asked.where, everybody=asked.everybody)
        if options["json"]:
            self.stdout.write(as_text(result.model_dump()))
        else:
            self._show(result)
        if result.reason:
            hint = (
                f" ({result.others} users or outsiders spoke: --everybody compares them too)" if result.others else ""
            )
            raise CommandError(f"no figure for #{channel.slug}: {result.reason}{hint}", returncode=NOT_ENOUGH)

    def _show(self, result: LineUp) -> None:
        console = console_on(self.stdout)
        if not result.reason:
            _figures(result, console)
        if result.left_out:
            rows = [(row.speaker, row.lines, row.reason) for row in result.left_out]
            print_table(console, ["Speaker", ">Lines", "Why"], rows, title="Left out")
        for note in result.notes:
            console.print(escape(note))


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def _figures(result: LineUp, console: Console) -> None:
    verdict = (
        "can be told apart better than by chance"
        if result.distinct
        else "cannot be told apart from chance with these lines"
    )
    console.print(
        f"[bold]Voices in #{escape(result.channel)} {verdict}[/bold]\n"
        f"Balanced accuracy {percent(result.balanced_accuracy)}; by chance {percent(result.chance)}, "
        f"95 % of {result.permutations:,} shuffles up to {percent(result.chance_high)}; p = {result.p_value:.3g}. "
        f"{result.compared:,} of {result.lines:,} lines compared, names masked, {result.blocks} stretches of time."
    )
    rows = [
        (
            *(voice.speaker, voice.lines, voice.compared, percent(voice.recall), percent(voice.chance)),
            f"{voice.taken_for} ({voice.taken} of {voice.compared})" if voice.taken else None,
        )
        for voice in sorted(result.voices, key=lambda v: -v.recall)
    ]
    heads = ["Speaker", ">Lines", ">Compared", ">Recognised", ">By chance", "Most often taken for"]
    print_table(console, heads, rows, title="Whose lines are recognised")
