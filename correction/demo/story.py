"""The story that `manage.py demo` tells on one screen: what was measured, who drifted since when, what the gate did to a message.

It is told from stored rows, so every run tells the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings
from django.db import transaction
from django.db.models import Count
from django.db.models.fields.json import KeyTextTransform

from agents.kit.commands import console_on, snippet
from agents.kit.text.wording import counted, day_text, decimal, interval_text
from agents.models import Agent, Channel, ChannelMember, Message
from correction.demo import GATE_CHANNEL
from correction.demo.demonstration import (
    DRAFT_OUT_OF_CHARACTER,
    SECOND_DRAFT,
    Stage,
    example_agents,
    gate_settings,
)
from correction.models import GateSession
from evaluation.calibration.passport import not_usable_line, passports_of
from evaluation.change.evidence import judged_ways
from evaluation.change.overview import AgentDrift, Overview, State, drift_overview
from evaluation.change.sentences import sentence_of, why_drifted
from evaluation.models import is_heuristic
from evaluation.runs.execute import Captured
from evaluation.wording import judge_label

if TYPE_CHECKING:
    from rich.console import Console

BUILD, EARLIER, LATER = "build", "40", "41"
OTHER_STATES: tuple[State, ...] = ("possibly drifted", "not enough data", "steady", "improved")
LONGEST_QUOTE = 150  # characters: two lines of a wide terminal
LONGEST_REASON = 130
INDENT = 3


def check_two_drafts(*, again: bool) -> None:
    """Send two drafts of one message by michael through the gate, the first out of character; only once for a judge.

    Args:
        again: Also where that was done before.

    Raises:
        LookupError: The example agent is missing.
    """
    if _gate_session() is not None and not again:
        return
    agents = example_agents(["michael"])
    with transaction.atomic():
        channel, _ = Channel.objects.get_or_create(
            slug=GATE_CHANNEL, defaults={"name": GATE_CHANNEL, "synthetic": True, "topic": "Demonstration of the gate"}
        )
        ChannelMember.objects.get_or_create(channel=channel, agent=agents["michael"])
    stage = Stage(channel, channel, agents)
    stage.send_drafts("michael", (DRAFT_OUT_OF_CHARACTER, SECOND_DRAFT), gate_settings())


def _gate_session() -> GateSession | None:
    """Return the newest session of the two drafts with the judge that is set; None where there is none."""
    sessions = GateSession.objects.filter(
        channel__slug=GATE_CHANNEL,
        logs__attempt=1,
        logs__original_text=DRAFT_OUT_OF_CHARACTER,
        logs__judge=str(settings.JUDGE_MODEL),
    )
    return sessions.select_related("agent", "channel").order_by("-pk").first()


def print_story(out: Any, *, agents: Sequence[Agent], results: Sequence[Captured]) -> None:
    """Print the story.

    Args:
        agents: Whose builds were measured.
        results: The evaluations of both builds.
    """
    console = console_on(out)
    overview = drift_overview(agents, next(iter(judged_ways()), None))
    drifted = [drift for drift in overview.drifts if drift.state == "drifted"]
    _print_measured(console, agents, results)
    _print_drift(console, overview, drifted)
    _print_gate(console)
    _print_next(console, drifted)


def _print_measured(console: Console, agents: Sequence[Agent], results: Sequence[Captured]) -> None:
    """Print of what builds how many messages were judged, by what, and how much of it was scored."""
    messages = Message.objects.filter(agent__in=agents, synthetic=False, tags__has_key=BUILD)
    by_build = messages.order_by().values_list(KeyTextTransform(BUILD, "tags")).annotate(Count("pk"))
    counts = dict(by_build)
    scored = unscored = 0
    for result in results:
        for dimension in result.summary.dimensions.values():
            scored += dimension.scored
            unscored += dimension.unscored
    judge = str(settings.JUDGE_MODEL)
    _heading(console, "1. What was measured")
    _paragraph(
        console,
        f"{counted(len(agents), 'example agent')}: {counts.get(EARLIER, 0):,} messages of build {EARLIER}, the baseline, and "
        f"{counts.get(LATER, 0):,} of build {LATER}. Judge: {judge_label(judge)}.",
    )
    how_much = f"It scored {scored:,} of {scored + unscored:,} judgements, from 0 to 9; higher is better."
    if is_heuristic(judge):
        how_much += (
            " It knows exact rules and word cues alone; what it cannot see is unscored, never guessed. "
            "With ANTHROPIC_API_KEY or JUDGE_MODEL a model judges everything."
        )
    _paragraph(console, how_much)
    not_usable = not_usable_line(passports_of([result.summary.run for result in results]))
    if not_usable:
        _paragraph(console, not_usable)


def _print_drift(console: Console, overview: Overview, drifted: Sequence[AgentDrift]) -> None:
    """Print who drifted, a line each, and of the first one the messages that show it."""
    _heading(console, "2. Who drifted, and since when")
    others = [f"{overview.states[state]} {state}" for state in OTHER_STATES if overview.states.get(state)]
    counts = ", ".join([f"{len(drifted)} of {counted(overview.total, 'agent')} drifted", *others])
    _paragraph(console, f"{counts}. The drift was planted: docs/reference/seed-data.md.")
    if not drifted:
        return
    rows = []
    for drift in drifted:
        sentence = sentence_of(drift)
        if drift.main is not None and drift.main.since_at is not None:
            sentence = f"{sentence.removesuffix('.')}, {day_text(drift.main.since_at)}."
        rows.append((f"[red]{snippet(drift.agent.display_name)}[/]", snippet(sentence)))
    _columns(console, rows)
    _print_evidence(console, drifted[0])


def _print_evidence(console: Console, drift: AgentDrift) -> None:
    """Print of one agent what was asked, the best message before and the worst now, and how sure the change is."""
    main = drift.main
    if main is None:
        return
    console.print()
    holds = "should not hold" if main.inverted else "should hold"
    _paragraph(console, f"[bold]{snippet(drift.agent.display_name)}[/], asked: “{snippet(drift.claim)}” ({holds})")
    rows = []
    for when, quote in (("before", drift.baseline_quote), ("now", drift.candidate_quote)):
        if quote is not None:
            rows.append((f"{when}, scored {quote.score}", f"“{snippet(quote.message.text, LONGEST_QUOTE)}”"))
    _columns(console, rows)
    interval = main.result.interval
    points = f"{decimal(abs(main.result.shown_points or 0.0))} points lost"
    if interval is not None:
        points += f" (95 % interval of the change {interval_text(interval)})"
    _paragraph(console, f"{points}; {why_drifted(drift)}.")


def _print_gate(console: Console) -> None:
    """Print what the gate did to the two drafts, and what was sent."""
    session = _gate_session()
    if session is None or session.agent is None:
        return
    _heading(console, "3. What the gate does to a message")
    name = snippet(session.agent.display_name)
    _paragraph(
        console,
        f"Two drafts that we gave {name}, in {GATE_CHANNEL}, a channel that is never measured.",
    )
    rows = []
    for log in session.logs.order_by("attempt").prefetch_related("dimension_results"):
        rows.append((f"draft {log.attempt}", f"“{snippet(log.original_text, LONGEST_QUOTE)}”"))
        for result in log.dimension_results.all():
            style = "green" if result.passed else "red"
            score = "not judged" if result.score is None else f"{result.score:g}"
            mark = "✓" if result.passed else "✗"
            reason = snippet(result.reasoning.partition("\n")[0] or result.reason, LONGEST_REASON)
            needed = f"{float(result.threshold):g}"
            rows.append(("", f"[{style}]{mark} {result.dimension} {score}[/], needs {needed}: {reason}"))
        rows.append(("", f"→ {log.get_outcome_display()}"))
    _columns(console, rows)


def _print_next(console: Console, drifted: Sequence[AgentDrift]) -> None:
    """Print commands to go on with."""
    slug = drifted[0].agent.slug if drifted else "michael"
    scene = "debate" if apps.is_installed("agents.debates") else "correction"
    _heading(console, "Next (manage.py stands for .venv/bin/python manage.py)")
    rows = [
        ("make run", "the console; its first page says who drifted"),
        (f"manage.py demo --scene {scene}", "more to see; demo --help lists the scenes"),
        (f"manage.py configure {slug}", "the gate is off until you switch it on"),
        (f"manage.py compare --agents {slug} --a {BUILD}={EARLIER} --b {BUILD}={LATER}", "in figures"),
        ("docs/tutorial.md", "your own agent, in fifteen minutes"),
    ]
    for command, what in rows:
        _paragraph(console, f"[bold]{command:30}[/]  {what}")


def _heading(console: Console, text: str) -> None:
    console.print(f"\n[bold]{text}[/]")


def _paragraph(console: Console, text: str) -> None:
    """Print text indented, wrapped at the console's width."""
    from rich.padding import Padding

    console.print(Padding(text, (0, 0, 0, INDENT)))


def _columns(console: Console, rows: Sequence[tuple[str, str]]) -> None:
    """Print rows of a name and a text, indented; the text is wrapped in its column."""
    from rich.padding import Padding
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(name, text)
    console.print(Padding(table, (0, 0, 0, INDENT)))
