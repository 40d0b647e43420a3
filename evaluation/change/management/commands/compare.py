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
from agents.kit.text.markdown import plain
from agents.kit.text.wording import interval_text, number, signed
from agents.models import Agent
from agents.models.conversations import NO_AGENTS, UnknownAgent, find_agents
from evaluation.calibration.passport import not_usable_line, passport_lines, passports, with_passports
from evaluation.change import choosing
from evaluation.change.change import ChangeResult
from evaluation.change.choosing import Compared
from evaluation.change.comparison import Comparison, Shown
from evaluation.change.detection import Detection, detections
from evaluation.change.examples import lowest_messages, print_example, worst_message
from evaluation.change.measurement_files import UnreadableFile
from evaluation.change.measurements import NotComparable
from evaluation.change.overview import drift_of_comparison
from evaluation.change.sentences import channel_predicate, predicate_of
from evaluation.commands import (
    ProgressBar,
    as_text,
    channel_named,
    measuring,
    split_unusable,
    tag_pairs,
    unknown_tag_line,
)
from evaluation.dimensions import DEFAULT_DIMENSIONS
from evaluation.judge.passport import Passport
from evaluation.models import CHANNEL_DIMENSIONS, EvaluationRun, is_heuristic
from evaluation.runs.shares import Share, percent, words_or_share
from evaluation.runs.spec import RunSpec
from evaluation.scorers import SCORERS
from evaluation.windows import ALLOWED, parse_window
from evaluation.wording import heading_of, judge_label

MOST_EXAMPLES = 5  # propositions with a message
MOST_NAMED_TARGETS = 3  # of a note; more are counted
MOST_IN_A_SENTENCE = 1_000  # characters
NARROW = 100  # characters: a terminal with fewer has shares and remarks on lines of their own
EMPHASIS: dict[str, Emphasis] = {
    "drifted": "bad",
    "possibly drifted": "warning",
    "steady": "good",
    "improved": "better",
    "not enough data": "faint",
}
CHANGE_HEADINGS = (">Baseline", ">Now", ">Change", ">95 % interval", "Verdict", ">More")
DETECTION_HEADINGS = ("Target", "Dim.", ">Spread", ">Baseline", ">Now", ">Finds", ">Needs each", ">Needs now")


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
        detected = None
        if options["detect"] is not None:
            detected = detections(compared.comparisons, options["detect"])
        if options["json"]:
            self._write_json(compared, detected)
        else:
            comparisons_table(compared.comparisons, self.stdout)
            if detected is not None:
                detection_table(detected, self.stdout)
        self._end(compared)

    def _check(self, options: dict[str, Any]) -> None:
        """Refuse options that exclude each other, or are out of range.

        Raises:
            CommandError: Names the option, its value and what is allowed.
        """
        by_tags = options["a"] or options["b"]
        ways = [way for way in (by_tags, options["runs"], options["baseline"]) if way]
        if len(ways) > 1:
            raise wrong("one way of comparing at a time: --a with --b, --runs, or --baseline FILE")
        if by_tags and not (options["a"] and options["b"]):
            raise wrong("--a and --b go together, e.g. --a build=40 --b build=41")
        if options["channel"] and options["agents"]:
            raise wrong("--channel or --agents, one of the two")
        if options["channel"] and not (options["a"] or options["runs"]):
            raise wrong("--channel goes with --a and --b: baselines are of agents")
        for name in ("margin", "detect"):
            points = options[name]
            if points is not None and not 0 < points <= 9:
                raise wrong(f"--{name} {points}: allowed: more than 0, at most 9")
        for name in _split_dimension_names(options["dimensions"]):
            if name not in SCORERS:
                raise wrong(f"--dimensions {name!r}: allowed: {', '.join(SCORERS)}")

    def _compare(self, options: dict[str, Any]) -> Compared:
        """Compare in the way that was asked for: two tags, two evaluations, a file, or the current baselines."""
        margin = options["margin"]
        dimensions = _split_dimension_names(options["dimensions"])
        if options["a"]:
            return self._compare_tags(options)
        if options["runs"]:
            first, second = (_evaluation(pk) for pk in options["runs"])
            return choosing.compare_runs(first, second, margin=margin, dimensions=dimensions)
        if options["baseline"]:
            agents = find_agents(options["agents"]) if options["agents"] else None
            return choosing.compare_with_file(options["baseline"], agents, margin=margin, dimensions=dimensions)
        return choosing.compare_with_baselines(
            _agents(options["agents"]), judge=settings.JUDGE_MODEL, margin=margin, dimensions=dimensions
        )

    def _compare_tags(self, options: dict[str, Any]) -> Compared:
        """Compare the messages of two tags; measure first what was not measured yet."""
        baseline_tags = tag_pairs([options["a"]], option="--a")
        candidate_tags = tag_pairs([options["b"]], option="--b")
        if baseline_tags == candidate_tags:
            raise wrong(f"--a and --b are both {options['a']}: nothing to compare")
        specs, self.unusable = split_unusable(_specs(options))
        with ProgressBar("Judging", sys.stderr, quiet=options["json"] and not sys.stderr.isatty()) as bar:
            compared = choosing.compare_tags(
                specs,
                baseline_tags,
                candidate_tags,
                margin=options["margin"],
                prepared=bar.prepared,
                progress=bar.progress,
            )
        for tags in (baseline_tags, candidate_tags):
            if compared.undecidable and (line := unknown_tag_line(tags)):
                self.stderr.write(line)
        return compared

    def _write_json(self, compared: Compared, detected: Sequence[Detection] | None) -> None:
        """Print one JSON object: the comparisons with the passport of their judge, what could not be compared, and detectable changes."""
        comparisons = []
        for comparison in compared.comparisons:
            entry = comparison.model_dump()
            with_passports(
                entry["dimensions"],
                judge=comparison.judge,
                procedure=comparison.procedure,
                agent=comparison.target,
            )
            comparisons.append(entry)
        document: dict[str, Any] = {"comparisons": comparisons, "not_compared": compared.undecidable}
        if detected is not None:
            document["detect"] = [detection.model_dump() for detection in detected]
        self.stdout.write(as_text(document))

    def _end(self, compared: Compared) -> None:
        """Say what could not be compared, and end with the exit code: something worse first, then unusable files, missing data."""
        not_compared = compared.undecidable
        if not_compared:
            targets_by_reason: dict[str, list[str]] = {}
            for target, reason in not_compared.items():
                targets_by_reason.setdefault(reason, []).append(target)
            rows = "\n  ".join(f"{', '.join(targets)}: {reason}" for reason, targets in targets_by_reason.items())
            self.stderr.write(f"could not be compared:\n  {rows}")
        if self.unusable:
            self.stderr.write(self.unusable)
        if any(comparison.worse for comparison in compared.comparisons):
            sys.exit(REGRESSION)
        if self.unusable or compared.wrong_file:
            sys.exit(UNUSABLE)
        any_lost = any(comparison.lost_dimensions for comparison in compared.comparisons)
        if any_lost or not_compared or not compared.comparisons:
            sys.exit(NOT_ENOUGH)


def _split_dimension_names(dimensions: str | None) -> tuple[str, ...]:
    names = (dimensions or "").split(",")
    return tuple(name.strip() for name in names if name.strip())


def _agents(named: str | None) -> Sequence[Agent]:
    """Return the agents that were named, by default all active ones.

    Raises:
        CommandError: There are none.
        UnknownAgent: There is no agent of a name.
    """
    agents = find_agents(named or "all")
    if not agents:
        raise unusable(NO_AGENTS)
    return agents


def _evaluation(pk: int) -> EvaluationRun:
    """Return an evaluation by its number.

    Raises:
        CommandError: There is none.
    """
    run: EvaluationRun | None = EvaluationRun.objects.select_related("agent", "channel").filter(pk=pk).first()
    if run is None:
        raise unusable(f"--runs {pk}: no such evaluation; the console lists them")
    return run


def _specs(options: dict[str, Any]) -> list[RunSpec]:
    """Return what is measured of each tag: of a channel, or of agents.

    Raises:
        CommandError: An option is out of range, or there is no such channel.
        UnknownAgent: There is no such agent.
    """
    dimensions = _split_dimension_names(options["dimensions"])
    fields: dict[str, Any] = {name: options[name] for name in ("samples", "repeats", "seed")}
    try:
        fields["window"] = parse_window(options["window"])
        if options["channel"]:
            channel = channel_named(options["channel"])
            return [RunSpec(channel=channel, dimensions=dimensions or CHANNEL_DIMENSIONS, **fields)]
        if dimensions:
            fields["dimensions"] = dimensions
        return [RunSpec(agent=agent, **fields) for agent in _agents(options["agents"])]
    except UnknownAgent:  # a ValueError, too, with an exit code of its own
        raise
    except ValueError as error:
        raise wrong(error) from None


# -- tables
def comparisons_table(comparisons: Sequence[Comparison], out: Any) -> None:
    """Print comparisons by one judge: a row per target and dimension, the propositions that changed significantly, and what to know.

    Of a single comparison every proposition is shown.
    """
    if not comparisons:
        return
    console = console_on(out)
    judge_passports = _passports_of(comparisons)
    not_usable = not_usable_line(judge_passports)
    if not_usable:
        console.print(f"[bold red]{escape(not_usable)}[/]")
    if len(comparisons) == 1:
        _print_sentence(comparisons[0], console)
    _print_without_scores(comparisons, console)
    _print_dimensions(comparisons, console)
    _print_propositions(comparisons, console)
    _print_examples(comparisons, console)
    for line in _explanations(comparisons):
        console.print(escape(line))
    for line in passport_lines(judge_passports):
        console.print(escape(line))
    console.print()
    if is_heuristic(comparisons[0].judge):
        console.print("heuristic: exact rules and word cues, no LLM. What it cannot see is unscored, never guessed.")


def _passports_of(comparisons: Sequence[Comparison]) -> list[Passport]:
    """Return the judge's passports in these dimensions; of a single agent also with its own figure."""
    first = comparisons[0]
    dimensions = [change.dimension for comparison in comparisons for change in comparison.dimensions]
    agent = first.target if len(comparisons) == 1 else ""
    return passports(first.judge, first.procedure, dimensions, agent=agent)


def _print_sentence(comparison: Comparison, console: Console) -> None:
    """Print the sentence that the console's page begins with; nothing where one of the two has no evaluations: it is a file."""
    if not (comparison.baseline.runs and comparison.candidate.runs):
        return
    sentence = f"{comparison.target} {channel_predicate(comparison)}"
    agent = Agent.objects.filter(slug=comparison.target).first()
    if agent is not None:
        sentence = f"{agent.display_name} {predicate_of(drift_of_comparison(agent, comparison))}"
    console.print(escape(plain(sentence, MOST_IN_A_SENTENCE)))
    console.print()


def _print_without_scores(comparisons: Sequence[Comparison], console: Console) -> None:
    """Print what can be said although there is no difference of scores, with messages that show it; then what is missing.

    Where several are compared, or something is significantly worse, hits that are not significant stand in the tables alone.
    """
    with_unsure_hits = len(comparisons) == 1 and not comparisons[0].worse
    any_printed = False
    for comparison in comparisons:
        for finding in comparison.shown:
            if finding.is_sure or with_unsure_hits:
                _print_shown(finding, comparison, console)
                any_printed = True
    for comparison in comparisons:
        for dimension, line in comparison.missing.items():
            console.print(escape(f"{comparison.target}: {dimension}: {line}."))
            any_printed = True
    if any_printed:
        console.print()


def _print_shown(finding: Shown, comparison: Comparison, console: Console) -> None:
    """Print hits, or a score on one side only, with the lowest messages of that side (of hits: now); none where it has no evaluation."""
    console.print(escape(f"{comparison.target}: {finding}"))
    side = comparison.baseline if finding.only_before else comparison.candidate
    if side.evaluation_run is None:
        return
    already_shown: set[str] = set()
    for message in lowest_messages(side.evaluation_run, finding.dimension, finding.proposition):
        print_example(message, console, skip=already_shown)
        already_shown |= {message.asked, message.text}


def _print_dimensions(comparisons: Sequence[Comparison], console: Console) -> None:
    """Print a row per target and dimension; where candidates are of different messages, each target says of which (``7d, build=41``)."""
    candidate_scopes = {comparison.candidate.scope for comparison in comparisons}
    rows: list[list[Cell]] = []
    for comparison in comparisons:
        target = comparison.target
        if len(candidate_scopes) > 1:
            target += _of_messages({comparison.candidate.scope})
        if comparison.stale:
            target += " (stale)"
        for change in comparison.dimensions:
            rows.append([target, heading_of(change.dimension, narrow=True), *_cells(change, console)])
            target = ""  # in the first of its rows only
    heading = "Channel" if comparisons[0].target.startswith("#") else "Agent"
    print_table(
        console,
        [heading, "Dim.", *CHANGE_HEADINGS],
        rows,
        title=f"{_compared_names(comparisons)}, judged by {judge_label(comparisons[0].judge)}",
        tight=True,
        wrapped=True,
    )


def _compared_names(comparisons: Sequence[Comparison]) -> str:
    """Return what is compared with what: the names where all have the same, else ``Baseline (7d) → candidate (7d)``.

    The messages in brackets are missing where they differ, too.
    """
    baseline_names = {comparison.baseline.name for comparison in comparisons}
    candidate_names = {comparison.candidate.name for comparison in comparisons}
    if len(baseline_names) == 1 and len(candidate_names) == 1:
        return f"{comparisons[0].baseline.name} → {comparisons[0].candidate.name}"
    baseline = _of_messages({comparison.baseline.scope for comparison in comparisons})
    candidate = _of_messages({comparison.candidate.scope for comparison in comparisons})
    return f"Baseline{baseline} → candidate{candidate}"


def _of_messages(scopes: set[str | None]) -> str:
    """Return which messages were measured, in brackets; empty where the scopes differ, or it is not known."""
    if len(scopes) > 1:
        return ""
    (scope,) = scopes
    return f" ({scope})" if scope else ""


def _cells(change: ChangeResult, console: Console) -> list[Cell]:
    """Return the cells below `CHANGE_HEADINGS`: scores with the shares scored (or hits), difference, interval, verdict, and messages more.

    The last says how many more would decide; of hits it is empty.
    """
    interval = interval_text(change.interval)
    if change.hits is not None:
        verdict = (change.verdict, EMPHASIS[change.verdict])
        return [f"{change.baseline_hits} hit", f"{change.hits} hit", signed(change.shown_points), interval, verdict, ""]
    emphasis = EMPHASIS[change.verdict]
    if change.counted and change.verdict == "drifted":
        emphasis = "strong"  # a count that changed is neither good nor bad
    return [
        _score_cell(change, change.baseline, change.baseline_share, console),
        _score_cell(change, change.candidate, change.share, console),
        signed(change.shown_points, 0 if change.counted else 1),
        interval,
        (change.verdict, emphasis),
        change.n_more or "",
    ]


def _score_cell(change: ChangeResult, score: float | None, share: Share | None, console: Console) -> str:
    """Return a score with the share scored, on a line of its own where there is little room."""
    between = "\n" if console.width < NARROW else " · "
    if score is None:
        text = "–"
    elif change.counted:
        text = f"{score:.0f}"
    else:
        text = number(score)
    return words_or_share(text, share, of_words=change.of_words, between=between)


def _print_propositions(comparisons: Sequence[Comparison], console: Console) -> None:
    """Print every scored proposition of a single comparison; of several, those that changed significantly. Nothing where none is left."""
    alone = len(comparisons) == 1
    rows: list[list[Cell]] = []
    for comparison in comparisons:
        for change in comparison.proposition_changes:
            scored = change.baseline is not None or change.candidate is not None
            if change.verdict not in ("drifted", "improved") and not (alone and scored):
                continue
            name = change.proposition
            if not alone and not name.startswith(comparison.target):
                name = f"{comparison.target}: {name}"
            rows.append([name, *_cells(change, console)])
    if rows:
        title = "Propositions, worst first" if alone else "Propositions that changed significantly"
        print_table(console, ["Proposition", *CHANGE_HEADINGS], rows, title=title, tight=True, wrapped=True)


def _print_examples(comparisons: Sequence[Comparison], console: Console) -> None:
    """Print the propositions that fell significantly, the five largest falls, each with its sentence and its lowest message now.

    Those compared by hits are left out: `_print_without_scores` shows their messages. So is one without a single evaluation behind
    it, or without a scored judgement now.
    """
    fallen = []
    for comparison in comparisons:
        for change in comparison.proposition_changes:
            if change.verdict == "drifted" and change.hits is None:
                fallen.append((comparison, change))
    if not fallen:
        return
    fallen.sort(key=lambda pair: pair[1].delta or 0.0)
    # 0, which no evaluation has: the candidate rests on several, or on a file.
    runs = EvaluationRun.objects.in_bulk({comparison.candidate.evaluation_run or 0 for comparison, _ in fallen})
    already_shown: set[str] = set()  # messages that show several propositions are printed in full once
    for comparison, change in fallen[:MOST_EXAMPLES]:
        run = runs.get(comparison.candidate.evaluation_run or 0)
        worst = worst_message([run], change.dimension, change.proposition) if run else None
        if worst is not None:
            console.print(escape(f"{comparison.target}, {change.proposition}:"))
            print_example(worst, console, skip=already_shown)
            already_shown.add(worst.text)
    console.print()


# -- what a reader must know of the tables
def _explanations(comparisons: Sequence[Comparison]) -> list[str]:
    """Return sentences: on the scale, on power, on verdicts, then the notes of each comparison."""
    margin = comparisons[0].margin
    changes: list[ChangeResult] = []
    for comparison in comparisons:
        changes += comparison.dimensions
    lines = [
        "Scores of 0 to 9, higher is better; in % the share of judgements scored, of the propositions this judge can score at all.",
        *_large_without_interval(comparisons),
        *_power(changes),
    ]
    if any(change.verdict == "steady" for change in changes):
        lines.append(f"steady: the whole interval lies within ±{margin:g} points.")
    if any(change.n_more for change in changes):
        lines.append(
            "More: how many more (messages, situations, channels) would decide, if difference and spread stay as they are."
        )
    tested = sum(change.p_value is not None for change in changes)
    if tested > 1:
        lines.append(f"drifted, improved: significant after Holm correction ({tested} comparisons, 5 %).")
    lines += _notes_by_target(comparisons)
    # As `decide` says of a baseline that is too small.
    if any("takes a larger one" in change.reason for change in changes):
        lines.append("--detect 0.5 says how many messages a baseline takes.")
    return lines


def _large_without_interval(comparisons: Sequence[Comparison]) -> list[str]:
    """Return a line on changes beyond the margin that have no interval, empty without any.

    They would be lost among the rows, and no exit code says anything of them.
    """
    large = []
    for comparison in comparisons:
        for change in comparison.dimensions:
            if change.interval is not None or change.counted or change.delta is None:
                continue
            if abs(change.delta) > comparison.margin:
                large.append(f"{comparison.target} {change.dimension} {_scores(change)}")
    if not large:
        return []
    return [f"large, but with no interval neither significant nor in the exit code: {', '.join(large)}."]


def _scores(change: ChangeResult) -> str:
    before = words_or_share(number(change.baseline), change.baseline_share, of_words=change.of_words)
    now = words_or_share(number(change.candidate), change.share, of_words=change.of_words)
    return f"{before} → {now}"


def _power(changes: Sequence[ChangeResult]) -> list[str]:
    """Return a line on the changes that these samples can detect."""
    detectable = sorted(change.smallest_detectable for change in changes if change.smallest_detectable is not None)
    if not detectable:
        return []
    first, last = number(detectable[0]), number(detectable[-1])
    points = first if first == last else f"{first} to {last}"
    return [f"80 % power to detect a change of {points} points."]


def _notes_by_target(comparisons: Sequence[Comparison]) -> list[str]:
    """Return each note once, with the agents or channels that it is about."""
    targets_of: dict[str, list[str]] = {}
    for comparison in comparisons:
        for note in _notes(comparison, alone=len(comparisons) == 1):
            targets_of.setdefault(note, []).append(comparison.target)
    lines = []
    for note, targets in targets_of.items():
        who = ", ".join(targets)
        if len(targets) > MOST_NAMED_TARGETS:
            who = f"{len(targets)} of {len(comparisons)}"
        lines.append(f"{who}: {note}.")
    return lines


def _notes(comparison: Comparison, *, alone: bool) -> list[str]:
    """Return what limits a comparison; `alone`: it is the only one, so that propositions are named."""
    notes = []
    for lost in comparison.lost:
        shares = f"{percent(lost.before)} → {percent(lost.now)}"
        notes.append(f"{lost.dimension}: not enough data: {lost} ({shares})")
    for change in comparison.dimensions:
        if change.interval_note and change.dimension not in comparison.lost_dimensions:  # whose note is above
            notes.append(f"{change.dimension}: {change.interval_note}")
        # There is an interval, but neither a verdict nor a number of messages that would bring one.
        if change.reason and change.undecided and change.interval and not change.n_more:
            notes.append(f"{change.dimension}: {change.reason}")
    notes += comparison.notes
    some = "some propositions (--json names them)"
    if comparison.unjudged:
        names = ", ".join(comparison.unjudged) if alone else some
        notes.append(f"nothing could be judged by: {names}")
    if comparison.scored_in_one:
        names = ", ".join(comparison.scored_in_one) if alone else some
        notes.append(f"scored in one of the two only, so left out of the dimension: {names}")
    if comparison.over_window:
        names = ", ".join(comparison.over_window)
        notes.append(f"judged once over the window, so not in the dimension: {names}")
    if comparison.only_baseline:
        notes.append(f"only in the baseline: {', '.join(comparison.only_baseline)}")
    if comparison.only_candidate:
        notes.append(f"only now: {', '.join(comparison.only_candidate)}")
    return list(dict.fromkeys(notes))


def detection_table(detected: Sequence[Detection], out: Any) -> None:
    """Print what the samples at hand can detect, and what a change of the size asked for takes."""
    console = console_on(out)
    if not detected:
        console.print("Nothing to plan by: no dimension has an interval over messages.\n")
        return
    rows: list[list[Cell]] = []
    for detection in detected:
        rows.append(
            [
                detection.target,
                heading_of(detection.dimension, narrow=True),
                f"{detection.sd:.1f}",
                detection.baseline_n,
                detection.n,
                None if detection.smallest is None else f"{detection.smallest:.1f}",
                detection.needed,
                detection.needed_now,
            ]
        )
    title = f"Messages for 80 % power to detect a change of {detected[0].change:g} points"
    print_table(console, DETECTION_HEADINGS, rows, title=title)
    console.print(
        "Spread: standard deviation between messages. Baseline, Now: how many were judged. Finds: the smallest change these\n"
        "find. Needs each: messages in both. Needs now: with the baseline as it is; – no number suffices.\n"
    )
