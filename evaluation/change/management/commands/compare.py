"""``manage.py compare``: what changed between two measurements, and how sure that is."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from rich.console import Console
from rich.markup import escape

from agents.kit.commands import (
    NOT_ENOUGH,
    REGRESSION,
    UNUSABLE,
    Cell,
    CodedCommand,
    Emphasis,
    console_on,
    print_table,
    unusable,
    wrong,
)
from agents.kit.text.wording import interval_text, number, signed
from agents.models import Agent
from agents.models.conversations import UnknownAgent, find_agents
from evaluation.calibration.agreement import trust_notes, with_trust
from evaluation.change import choosing
from evaluation.change.change import ChangeResult
from evaluation.change.choosing import Compared
from evaluation.change.comparison import Comparison
from evaluation.change.detection import Detection, detections
from evaluation.change.examples import lowest_messages, print_example, worst_message
from evaluation.change.measurement_files import UnreadableFile
from evaluation.change.measurements import NotComparable
from evaluation.commands import ProgressBar, as_text, channel_named, measuring, split_unusable, tag_pairs
from evaluation.dimensions import DEFAULT_DIMENSIONS
from evaluation.models import CHANNEL_DIMENSIONS, EvaluationRun, is_heuristic
from evaluation.runs.planning import RunSpec
from evaluation.runs.summary import percent, words_or_share
from evaluation.scorers import SCORERS
from evaluation.windows import ALLOWED, parse_window
from evaluation.wording import heading_of, judge_label

MOST_SHOWN = 5  # propositions with a message
NARROW = 100
EMPHASIS: dict[str, Emphasis] = {
    "drifted": "bad",
    "possibly drifted": "warning",
    "steady": "good",
    "improved": "better",
    "not enough data": "faint",
}
CHANGE = (">Baseline", ">Now", ">Change", ">95 % interval", "Verdict", ">More")


class Command(CodedCommand):
    help = (
        "Compare two measurements: of two tags (--a build=40 --b build=41; measured now unless they were before), the newest against the "
        "baseline (the default) or a file, or two evaluations. Per dimension and proposition: the change, its 95 % interval and a verdict. "
        "Exit code: 0 nothing is significantly worse, 1 something is, 2 something could not be compared, or so much less is scored that a "
        "dimension has no score any more, 3 a file cannot be used or is of another judge (what else can be compared is)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--agents", help="slugs separated by commas, or all (default: all active agents)")
        parser.add_argument("--channel", metavar="SLUG", help="compare a channel instead: convergence, ideas quantity")
        parser.add_argument("--a", metavar="TAG=VALUE", help="baseline: messages with these tags, separated by commas")
        parser.add_argument("--b", metavar="TAG=VALUE", help="candidate: messages with these tags")
        parser.add_argument("--runs", nargs=2, type=int, metavar="ID", help="two evaluations, the older first")
        parser.add_argument("--baseline", type=Path, metavar="FILE", help="what capture_baseline --out FILE wrote")
        parser.add_argument(
            "--dimensions",
            help=f"separated by commas; allowed: {','.join(SCORERS)} "
            f"(default with --a and --b: {','.join(DEFAULT_DIMENSIONS)}; of a channel both)",
        )
        parser.add_argument("--window", default="all", help=f"with --a and --b: {ALLOWED} (default: all)")
        parser.add_argument(
            "--samples", type=int, default=20, help="most messages per agent, of each of the two (default: 20)"
        )
        parser.add_argument("--repeats", type=int, default=1, help="judgements per item, 1 to 20 (default: 1)")
        parser.add_argument("--seed", type=int, default=0, help="seed of the sampling (default: 0)")
        parser.add_argument(
            "--margin", type=float, default=0.5, help="changes within ± this many points do not matter (default: 0.5)"
        )
        parser.add_argument(
            "--detect",
            type=float,
            metavar="POINTS",
            help="also say how many messages finding such a change takes",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        self._check(options)
        self.unusable = ""
        try:
            with measuring():
                compared = self._compare(options)
        except (UnknownAgent, UnreadableFile) as error:
            raise unusable(error) from None
        except NotComparable as error:
            raise CommandError(str(error), returncode=NOT_ENOUGH) from None
        self._show(compared, options)
        self._end(compared)

    def _check(self, options: dict[str, Any]) -> None:
        """Refuse options that exclude each other, or are out of range.

        Raises:
            CommandError: Names the option, its value and what is allowed.
        """
        if sum(map(bool, (options["a"] or options["b"], options["runs"], options["baseline"]))) > 1:
            raise wrong("one way of comparing at a time: --a with --b, --runs, or --baseline FILE")
        if bool(options["a"]) != bool(options["b"]):
            raise wrong("--a and --b go together, e.g. --a build=40 --b build=41")
        if options["channel"] and options["agents"]:
            raise wrong("--channel or --agents, one of the two")
        if options["channel"] and not (options["a"] or options["runs"]):
            raise wrong("--channel goes with --a and --b: baselines are of agents")
        for name in ("margin", "detect"):
            value = options[name]
            if value is not None and not 0 < value <= 9:
                raise wrong(f"--{name} {value}: allowed: more than 0, at most 9")
        for name in _named(options["dimensions"]):
            if name not in SCORERS:
                raise wrong(f"--dimensions {name!r}: allowed: {', '.join(SCORERS)}")

    def _compare(self, options: dict[str, Any]) -> Compared:
        margin, dimensions = options["margin"], _named(options["dimensions"])
        if options["a"]:
            return self._compare_tags(options)
        if options["runs"]:
            first, second = (_run(pk) for pk in options["runs"])
            return choosing.of_runs(first, second, margin=margin, dimensions=dimensions)
        if options["baseline"]:
            chosen = find_agents(options["agents"]) if options["agents"] else None
            return choosing.with_file(options["baseline"], chosen, margin=margin, dimensions=dimensions)
        agents = _agents(options["agents"])
        return choosing.with_baselines(agents, judge=settings.JUDGE_MODEL, margin=margin, dimensions=dimensions)

    def _compare_tags(self, options: dict[str, Any]) -> Compared:
        a, b = (tag_pairs([options[name]], option=f"--{name}") for name in ("a", "b"))
        if a == b:
            raise wrong(f"--a and --b are both {options['a']}: nothing to compare")
        asked: dict[str, Any] = {name: options[name] for name in ("samples", "repeats", "seed")}
        if dimensions := _named(options["dimensions"]):
            asked["dimensions"] = dimensions
        try:
            asked["window"] = parse_window(options["window"])
            if options["channel"]:
                channel = channel_named(options["channel"])
                specs = [RunSpec(channel=channel, **{"dimensions": CHANNEL_DIMENSIONS, **asked})]
            else:
                specs = [RunSpec(agent=agent, **asked) for agent in _agents(options["agents"])]
        except UnknownAgent:
            raise
        except ValueError as error:
            raise wrong(error) from None
        specs, self.unusable = split_unusable(specs)
        with ProgressBar("Judging", sys.stderr, quiet=options["json"] and not sys.stderr.isatty()) as bar:
            return choosing.of_tags(specs, a, b, margin=options["margin"], prepared=bar.prepared, progress=bar.progress)

    def _show(self, compared: Compared, options: dict[str, Any]) -> None:
        change = options["detect"]
        detect = [] if change is None else detections(compared.comparisons, change)
        if options["json"]:
            comparisons = [c.model_dump() for c in compared.comparisons]
            for comparison in comparisons:
                how = {name: comparison[name] for name in ("judge", "procedure")}
                with_trust(comparison["dimensions"], **how, agent=comparison["target"])
            document = {
                "comparisons": comparisons,
                "not_compared": compared.undecidable,
                **({} if change is None else {"detect": [row.model_dump() for row in detect]}),
            }
            self.stdout.write(as_text(document))
            return
        comparisons_table(compared.comparisons, self.stdout)
        if change is not None:
            detection_table(detect, self.stdout)

    def _end(self, compared: Compared) -> None:
        refused = compared.undecidable
        if refused:
            rows = "\n  ".join(f"{target}: {reason}" for target, reason in refused.items())
            self.stderr.write(f"could not be compared:\n  {rows}")
        if self.unusable:
            self.stderr.write(self.unusable)
        if any(comparison.worse for comparison in compared.comparisons):
            sys.exit(REGRESSION)
        if self.unusable or compared.wrong_file:
            sys.exit(UNUSABLE)
        lost = any(comparison.lost_dimensions for comparison in compared.comparisons)
        if lost or refused or not compared.comparisons:
            sys.exit(NOT_ENOUGH)


def _named(dimensions: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (dimensions or "").split(",") if name.strip())


def _agents(named: str | None) -> Sequence[Agent]:
    agents = find_agents(named or "all")
    if not agents:
        raise unusable("there are no agents yet: `manage.py seed` loads examples")
    return agents


def _run(pk: int) -> EvaluationRun:
    run: EvaluationRun | None = EvaluationRun.objects.select_related("agent", "channel").filter(pk=pk).first()
    if run is None:
        raise unusable(f"--runs {pk}: no such evaluation; the console lists them")
    return run


# -- tables
def comparisons_table(comparisons: Sequence[Comparison], out: Any) -> None:
    """Comparisons by one judge: a row per target and dimension, the propositions that surely changed, and what to know.

    Of a single comparison every proposition is shown.
    """
    if not comparisons:
        return
    console = console_on(out)
    first, narrow = comparisons[0], console.width < NARROW
    names = {(c.baseline.name, c.candidate.name) for c in comparisons}
    scopes = [{getattr(c, which).scope for c in comparisons} for which in ("baseline", "candidate")]
    _first(comparisons, console)
    several = " → ".join(
        f"{what}{_of_messages(of)}" for what, of in zip(("Baseline", "candidate"), scopes, strict=True)
    )
    what = f"{first.baseline.name} → {first.candidate.name}" if len(names) == 1 else several
    rows: list[list[Cell]] = []
    for comparison in comparisons:
        for n, change in enumerate(comparison.dimensions):
            notes = _of_messages({comparison.candidate.scope}) if len(scopes[1]) > 1 else ""
            notes += " (stale)" if comparison.stale else ""
            name = comparison.target + notes if not n else ""
            rows.append([name, heading_of(change.dimension, narrow=True), *_cells(change, narrow=narrow)])
    print_table(
        console,
        ["Channel" if first.target.startswith("#") else "Agent", "Dim.", *CHANGE],
        rows,
        title=f"{what}, judged by {judge_label(first.judge)}",
        tight=True,
        unwrapped=["Verdict"],
    )
    _propositions(comparisons, console)
    for line in _explanations(comparisons):
        console.print(escape(line))
    dimensions = [change.dimension for comparison in comparisons for change in comparison.dimensions]
    agent = first.target if len(comparisons) == 1 else ""
    for line in trust_notes(first.judge, first.procedure, dimensions, agent=agent):
        console.print(escape(line))
    console.print()
    if is_heuristic(first.judge):
        console.print("heuristic: exact rules and word cues, no LLM. What it cannot see is unscored, never guessed.")


def _first(comparisons: Sequence[Comparison], console: Console) -> None:
    """What can be said although there is no difference of scores, with messages that show it; then what is missing.

    Where several are compared, or something is significantly worse, hits that are not significant stand in the tables alone.
    """
    alone = len(comparisons) == 1 and not comparisons[0].worse
    rows = [(c, one) for c in comparisons for one in c.shown if one.is_sure or alone]
    sides = [(c, c.baseline if one.only_before else c.candidate, one) for c, one in rows]
    for comparison, side, one in sides:
        console.print(escape(f"{comparison.target}: {one}"))
        run = side.evaluation_run
        seen: set[str] = set()
        for message in lowest_messages(run, one.dimension, one.proposition) if run is not None else ():
            print_example(message, console, skip=seen)
            seen |= {message.asked, message.text}
    missing = [(c.target, name, line) for c in comparisons for name, line in c.missing.items()]
    for target, name, line in missing:
        console.print(escape(f"{target}: {name}: {line}."))
    if sides or missing:
        console.print()


def _of_messages(scopes: set[str | None]) -> str:
    """Which messages, where all are of the same."""
    (scope, *others) = scopes
    return f" ({scope})" if scope and not others else ""


def _cells(change: ChangeResult, *, narrow: bool) -> list[Cell]:
    """Scores with the shares scored, on a line of their own where there is little room; difference, interval, verdict."""
    emphasis: Emphasis = "strong" if change.counted and change.verdict == "drifted" else EMPHASIS[change.verdict]
    if change.hits is not None:
        hits: list[Cell] = [f"{share} hit" for share in (change.baseline_hits, change.hits)]
        return [*hits, signed(change.points), interval_text(change.interval), (change.verdict, emphasis), ""]
    shown: list[Cell] = [
        words_or_share(
            "–" if score is None else f"{score:.0f}" if change.counted else number(score),
            share,
            of_words=change.of_words,
            between="\n" if narrow else " · ",
        )
        for score, share in ((change.baseline, change.baseline_share), (change.candidate, change.share))
    ]
    delta = signed(change.delta, 0 if change.counted else 1)
    return [*shown, delta, interval_text(change.interval), (change.verdict, emphasis), change.n_more or ""]


def _propositions(comparisons: Sequence[Comparison], console: Console) -> None:
    """Every proposition of a single comparison; of several, those that surely changed."""
    alone = len(comparisons) == 1
    rows: list[list[Cell]] = []
    for comparison in comparisons:
        for row in comparison.proposition_changes:
            if row.verdict in ("drifted", "improved") or (alone and (row.baseline, row.candidate) != (None, None)):
                of = "" if alone or row.proposition.startswith(comparison.target) else f"{comparison.target}: "
                rows.append([f"{of}{row.proposition}", *_cells(row, narrow=console.width < NARROW)])
    if rows:
        title = "Propositions, worst first" if alone else "Propositions that changed significantly"
        print_table(console, ["Proposition", *CHANGE], rows, title=title, tight=True, unwrapped=["Verdict"])
    _examples(comparisons, console)


def _examples(comparisons: Sequence[Comparison], console: Console) -> None:
    """The sentences of the propositions that surely fell most, each with the message that scores lowest on it now."""
    fallen = [
        (change, comparison)
        for comparison in comparisons
        for change in comparison.proposition_changes
        if change.verdict == "drifted" and change.hits is None
    ]
    runs = EvaluationRun.objects.in_bulk({c.candidate.evaluation_run for _, c in fallen if c.candidate.evaluation_run})
    shown: set[str] = set()
    for change, comparison in sorted(fallen, key=lambda pair: pair[0].delta or 0.0)[:MOST_SHOWN]:
        run = runs.get(comparison.candidate.evaluation_run or 0)
        worst = worst_message([run], change.dimension, change.proposition) if run else None
        if worst is not None:
            console.print(escape(f"{comparison.target}, {change.proposition}:"))
            print_example(worst, console, skip=shown)
            shown.add(worst.text)
    if fallen:
        console.print()


def _explanations(comparisons: Sequence[Comparison]) -> list[str]:
    """What a reader must know of the tables, in sentences."""
    margin = comparisons[0].margin
    rows = [(c, change) for c in comparisons for change in c.dimensions]
    lines = [
        "Scores of 0 to 9, higher is better; in % the share of judgements scored, of the propositions this judge can score at all."
    ]
    large = [
        f"{c.target} {change.dimension} {_fall(change)}"
        for c, change in rows
        if change.interval is None and not change.counted and change.delta is not None and abs(change.delta) > c.margin
    ]
    if large:  # these would be lost among the rows, and no exit code says anything of them
        lines.append(f"large, but with no interval neither sure nor in the exit code: {', '.join(large)}.")
    found = sorted(change.smallest_detectable for _, change in rows if change.smallest_detectable is not None)
    if found:
        first, last = number(found[0]), number(found[-1])
        lines.append(f"80 % power to detect a change of {first if first == last else f'{first} to {last}'} points.")
    if any(change.verdict == "steady" for _, change in rows):
        lines.append(f"steady: the whole interval lies within ±{margin:g} points.")
    if any(change.n_more for _, change in rows):
        lines.append(
            "More: how many more (messages, situations, channels) would decide, if difference and spread stay as they are."
        )
    tested = sum(change.p_value is not None for _, change in rows)
    if tested > 1:
        lines.append(f"drifted, improved: significant after Holm correction ({tested} comparisons, 5 %).")
    notes: dict[str, list[str]] = {}
    for comparison in comparisons:
        for note in _notes(comparison, alone=len(comparisons) == 1):
            notes.setdefault(note, []).append(comparison.target)
    for note, targets in notes.items():
        who = f"{len(targets)} of {len(comparisons)}" if len(targets) > 3 else ", ".join(targets)
        lines.append(f"{who}: {note}.")
    if any("takes a larger one" in change.reason for _, change in rows):
        lines.append("--detect 0.5 says how many messages a baseline takes.")
    return lines


def _notes(comparison: Comparison, *, alone: bool) -> list[str]:
    notes = [
        f"{lost.dimension}: not enough data: {lost} ({percent(lost.before)} → {percent(lost.now)})"
        for lost in comparison.lost
    ]
    for change in comparison.dimensions:
        # Why there is an interval, but neither a sure verdict nor a number of messages that would bring one.
        why = change.reason if change.undecided and change.interval and not change.n_more else ""
        note = "" if change.dimension in comparison.lost_dimensions else change.interval_note
        notes += [f"{change.dimension}: {one}" for one in (note, why) if one]
    notes += comparison.notes
    for what, names, of_several in (
        ("nothing could be judged by", comparison.unjudged, False),
        ("scored in one of the two only, so left out of the dimension", comparison.scored_in_one, False),
        ("judged once over the window, so not in the dimension", comparison.over_window, True),
        ("only in the baseline", comparison.only_baseline, True),
        ("only now", comparison.only_candidate, True),
    ):
        if names:
            listed = ", ".join(names) if alone or of_several else "some propositions (--json names them)"
            notes.append(f"{what}: {listed}")
    return list(dict.fromkeys(notes))


def _fall(change: ChangeResult) -> str:
    before = words_or_share(number(change.baseline), change.baseline_share, of_words=change.of_words)
    return f"{before} → {words_or_share(number(change.candidate), change.share, of_words=change.of_words)}"


def detection_table(rows: Sequence[Detection], out: Any) -> None:
    """What the sample at hand can detect, and what a change of the size asked for takes."""
    console = console_on(out)
    if not rows:
        console.print("Nothing to plan by: no dimension has an interval over messages.\n")
        return
    cells: list[list[Cell]] = [
        [
            *(row.target, heading_of(row.dimension, narrow=True), f"{row.sd:.1f}", row.baseline_n),
            *(row.n, None if row.smallest is None else f"{row.smallest:.1f}", row.needed, row.needed_now),
        ]
        for row in rows
    ]
    heads = ["Target", "Dim.", ">Spread", ">Baseline", ">Now", ">Finds", ">Needs each", ">Needs now"]
    title = f"Messages for 80 % power to detect a change of {rows[0].change:g} points"
    print_table(console, heads, cells, title=title)
    console.print(
        "Spread: standard deviation between messages. Baseline, Now: how many were judged. Finds: the smallest change these\n"
        "find. Needs each: messages in both. Needs now: with the baseline as it is; – no number suffices.\n"
    )
