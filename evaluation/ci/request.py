"""From the command line to what is measured and what it is held to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agents.models import Agent
from evaluation.capture import choose_agents
from evaluation.change.position import BY_POSITION, Bin, parse_bins
from evaluation.ci.limits import Limits, parse_share, parse_thresholds
from evaluation.propositions.files import default_dimensions
from evaluation.run_spec import RunSpec
from evaluation.scorers import SCORERS
from evaluation.windows import parse_history, parse_window


class WrongUsage(ValueError):
    """A command line that makes no sense; says which option and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for, read as far as it can be without a database.

    Attributes:
        options: As the command line gave them.
        limits: What the build is held to.
        bins: Stretches of positions; empty unless asked for by position.
    """

    options: Mapping[str, Any]
    limits: Limits
    bins: tuple[Bin, ...]

    @property
    def from_files(self) -> bool:
        """Whether the team's files are measured instead of the database."""
        return self.options["personas"] is not None

    @property
    def files_to_write(self) -> dict[str, Path]:
        return {f"--{name}": self.options[name] for name in ("out", "markdown", "junit") if self.options[name]}


def read_request(options: Mapping[str, Any]) -> Request:
    """Check options that need no database.

    Raises:
        WrongUsage: They make no sense.
    """
    _check_combinations(options)
    try:
        limits = Limits(
            thresholds=parse_thresholds(options["threshold"]),
            regression_delta=options["regression_delta"],
            margin=options["margin"],
            max_unscored=parse_share(str(options["max_unscored"])),
            strict=options["strict"],
        )
        bins = parse_bins(options["bins"]) if options["by"] else ()
        parse_window(options["window"])
        parse_history(options["history"])
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    return Request(options=options, limits=limits, bins=bins)


def _check_combinations(options: Mapping[str, Any]) -> None:
    personas, transcripts, simulate = options["personas"], options["transcript"], options["simulate"]
    if transcripts and personas is None:
        raise WrongUsage("--transcript needs --personas PATH: without them nobody in it is an agent")
    if personas is not None and not transcripts and not simulate:
        raise WrongUsage(
            "--personas needs --transcript FILE (what they said) or --simulate FILE (situations to simulate)"
        )
    if transcripts and simulate:
        raise WrongUsage("--transcript and --simulate: measure what was said, or simulate situations; not both at once")
    if options["map"] and not transcripts:
        raise WrongUsage("--map is for --transcript")
    if options["actor_model"] and not simulate:
        raise WrongUsage("--actor-model is for --simulate")
    if simulate and (options["where"] or options["window"] != "all"):
        raise WrongUsage(
            "--simulate measures all that was simulated; --where and --window are for what was said before"
        )
    if options["by"] and options["baseline"]:
        raise WrongUsage("--by position compares late positions with early ones, not with a --baseline")
    if options["dry_run"] and (options["markdown"] or options["junit"]):
        raise WrongUsage("--dry-run asks nothing, so there is nothing to write to --markdown or --junit")
    for name in ("threshold", "regression_delta", "margin"):
        if options[name] is None:
            raise WrongUsage(f"--{name.replace('_', '-')} needs a value")


def specs_of(request: Request, *, where: Mapping[str, str], history_where: Mapping[str, str]) -> list[RunSpec]:
    """One spec per agent.

    Raises:
        WrongUsage: What is asked for makes no sense.
        PropositionError: Proposition files cannot be used.
    """
    options = request.options
    try:
        dimensions = _dimensions(options["dimensions"])
        if request.bins and not set(BY_POSITION) & set(dimensions):
            raise WrongUsage(
                f"--by position needs one of {', '.join(BY_POSITION)} among --dimensions: only they are judged by message"
            )
        request.limits.check_dimensions(dimensions)
        return [
            replace(_spec(agent, dimensions, request), where=dict(where), history_where=dict(history_where))
            for agent in _agents(options["agents"])
        ]
    except ValueError as error:
        raise WrongUsage(str(error)) from None


def _agents(names: str) -> Sequence[Agent]:
    agents = choose_agents(names)
    if not agents:
        raise WrongUsage(
            "there are no agents yet: `manage.py seed` loads examples, `manage.py import_agents` your own; or measure "
            "files with --personas and --transcript"
        )
    return agents


def _spec(agent: Agent, dimensions: tuple[str, ...], request: Request) -> RunSpec:
    options = request.options
    return RunSpec(
        agent=agent,
        dimensions=dimensions,
        window=parse_window(options["window"]),
        samples=options["samples"],
        seed=options["seed"],
        per_call=options["per_call"],
        history=parse_history(options["history"]),
        repeats=options["repeats"],
        hard=options["hard"],
        double_check=options["double_check"],
        method=options["method"],
        position_bins=request.bins,
        simulated=options["simulate"] is not None,
    )


def _dimensions(named: str | None) -> tuple[str, ...]:
    """Those named, or all that can be measured."""
    if named is None:
        return default_dimensions()
    found = tuple(dict.fromkeys(name.strip() for name in named.split(",") if name.strip()))
    if unknown := [name for name in found if name not in SCORERS]:
        raise WrongUsage(f"--dimensions {', '.join(unknown)}: allowed: {', '.join(SCORERS)}")
    return found


def named_agents(request: Request, specs: Sequence[RunSpec]) -> frozenset[str]:
    """Slugs of the agents that were asked for by name; none for ``all``."""
    everybody = request.options["agents"].strip().lower() == "all"
    return frozenset() if everybody else frozenset(spec.target.slug for spec in specs)
