"""What the commands that measure share: their options, the specs these make, and the JSON they write."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from agents.commands import WRONG_USAGE
from agents.models import Channel
from agents.models.personas import find_agents
from evaluation.models import Method
from evaluation.propositions.files import default_dimensions
from evaluation.runs.planning import RunSpec
from evaluation.scorers import SCORERS
from evaluation.scorers.windows import ALLOWED, BEFORE, parse_history, parse_window

AGENTS: dict[str, Any] = {
    "default": "all",
    "help": "slugs separated by commas, or all (default: all active agents)",
}
HOW = ("samples", "seed", "per_call", "repeats", "hard", "double_check", "method")


def wrong(why: object) -> CommandError:
    """Return the error of a command line that makes no sense; `why` says which option and what is allowed."""
    return CommandError(str(why), returncode=WRONG_USAGE)


def add_what(parser: ArgumentParser) -> Any:
    """Add the options for what is measured, and return what adds others to their group."""
    add = parser.add_argument_group("what is measured").add_argument
    tags: dict[str, Any] = {"action": "append", "default": [], "metavar": "TAG=VALUE"}
    known = ",".join(SCORERS)
    add("--agents", **AGENTS)
    add("--dimensions", help=f"separated by commas; allowed: {known} (default: all there are propositions for)")
    add("--window", default="all", help=f"which messages: {ALLOWED} (default: all)")
    add("--where", **tags, help="only messages with this tag; repeatable")
    add(
        "--history",
        default=BEFORE,
        help=f"what self-consistency compares the window with: {BEFORE} (all that was said before it), or a window "
        f"(default: {BEFORE})",
    )
    add("--history-where", **tags, help="tags of that history; repeatable")
    return add


def add_how(parser: ArgumentParser, *, repeats: str = "judgements per item, 1 to 20 (default: 1)") -> Any:
    """Add the options for how it is judged, and return what adds others to their group."""
    add = parser.add_argument_group("how it is judged").add_argument
    add("--repeats", type=int, default=1, help=repeats)
    add("--samples", type=int, default=20, help="most messages sampled per agent (default: 20)")
    add("--seed", type=int, default=0, help="seed of the sampling, stored with the evaluation (default: 0)")
    add("--per-call", type=int, default=10, help="most propositions in one call, 1 to 10 (default: 10)")
    add("--hard", action="store_true", help="20 %% off for every flaw the judge finds, in claims that can be hard")
    add("--double-check", action="store_true", help="ask the judge a second time whether it is sure")
    add(
        "--method",
        choices=Method.values,
        default=Method.PLUMBLINE.value,
        help="tinytroupe: one claim per call, penalties taken off by the judge, a trivial 9 counts; compares with "
        "nothing else",
    )
    return add


def tag_pairs(values: Sequence[str], *, option: str = "--where") -> dict[str, str]:
    """Return ``key=value`` options as a mapping.

    Raises:
        CommandError: A value has no ``=``.
    """
    pairs = {}
    for part in (part for value in values for part in value.split(",")):
        key, equals, text = part.partition("=")
        if not equals or not key.strip():
            raise wrong(f"{option} {part!r}: write tag=value, e.g. {option} build=41")
        pairs[key.strip()] = text.strip()
    return pairs


def specs_of(options: dict[str, Any], *, empty: str = "", **more: Any) -> list[RunSpec]:
    """Return a spec per agent, as `add_what` and `add_how` read them; `more` are further fields of each.

    Args:
        empty: What else can be done where there are no agents.

    Raises:
        CommandError: What is asked for makes no sense.
        PropositionError: A proposition file cannot be used.
    """
    named = options["dimensions"]
    try:
        asked: dict[str, Any] = {
            **{name: options[name] for name in HOW},
            **{name: tag_pairs(options[name]) for name in ("where", "history_where")},
            "window": parse_window(options["window"]),
            "history": parse_history(options["history"]),
            "dimensions": default_dimensions()
            if named is None
            else tuple(filter(None, map(str.strip, named.split(",")))),
        }
        specs = [RunSpec(agent=agent, **asked, **more) for agent in find_agents(options["agents"])]
    except ValueError as error:
        raise wrong(error) from None
    if not specs:
        none = "there are no agents yet: `manage.py seed` loads examples, `manage.py import_agents` your own"
        raise wrong(none + empty)
    return specs


def channel_named(slug: str) -> Channel:
    """Return the channel of that slug.

    Raises:
        CommandError: There is none; names those there are.
    """
    channel = Channel.objects.filter(slug=slug).first()
    if channel is None:
        known = ", ".join(Channel.objects.order_by("slug").values_list("slug", flat=True)[:20])
        raise wrong(f"no channel {slug!r}; channels: {known or 'none yet'}")
    return channel


def check_writable(option: str, path: Path) -> None:
    """Refuse a file that cannot be written before anything is judged.

    Raises:
        CommandError: It cannot be written; says why.
    """
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise wrong(f"{option} {path}: {error.strerror}") from None


def write_text(option: str, path: Path, text: str) -> None:
    """Write a file.

    Raises:
        CommandError: It cannot be written; says why.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise wrong(f"{option} {path}: {error}") from None


def as_text(document: Any) -> str:
    """Return a JSON document as commands print it."""
    return json.dumps(document, ensure_ascii=False, indent=2)
