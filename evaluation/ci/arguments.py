"""The command line of `manage.py evaluate`."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from agents.transcripts.readers import READERS
from evaluation.change.position import DEFAULT_BINS
from evaluation.ci.limits import MAX_UNSCORED, REGRESSION_DELTA
from evaluation.models import Method
from evaluation.scorers import SCORERS
from evaluation.statistics.difference import MARGIN
from evaluation.windows import ALLOWED, BEFORE


def add_arguments(parser: ArgumentParser) -> None:
    """All options, in groups."""
    _what(parser)
    _limits(parser)
    _how(parser)
    _output(parser)
    _files(parser)


def _what(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("what is measured")
    group.add_argument("--agents", default="all", help="slugs separated by commas, or all (default: all active agents)")
    group.add_argument(
        "--dimensions",
        help=f"separated by commas; allowed: {','.join(SCORERS)} (default: all there are propositions for)",
    )
    group.add_argument("--window", default="all", help=f"which messages: {ALLOWED} (default: all)")
    group.add_argument(
        "--where", action="append", default=[], metavar="TAG=VALUE", help="only messages with this tag; repeatable"
    )
    group.add_argument(
        "--history", default=BEFORE, help=f"what self-consistency compares the window with (default: {BEFORE})"
    )
    group.add_argument(
        "--history-where", action="append", default=[], metavar="TAG=VALUE", help="tags of that history; repeatable"
    )
    group.add_argument(
        "--simulate",
        type=Path,
        metavar="FILE",
        help="simulate these situations with the agents first, and measure what they say in them",
    )
    group.add_argument("--actor-model", default="", metavar="MODEL", help="who acts in them (default: ACTOR_MODEL)")
    group.add_argument(
        "--by",
        choices=["position"],
        help="position: do agents fade within long conversations? Compares with no baseline",
    )
    group.add_argument(
        "--bins",
        default=DEFAULT_BINS,
        metavar="POSITIONS",
        help=f"stretches for --by position (default: {DEFAULT_BINS})",
    )


def _limits(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("what it is held to")
    group.add_argument(
        "--threshold",
        default="",
        metavar="LEAST",
        help="5 for every dimension that is scored, or adherence=6,fluency=4, or overall=6",
    )
    group.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="what an earlier evaluate --json or capture_baseline --json printed (default: the current baselines)",
    )
    group.add_argument(
        "--regression-delta",
        type=float,
        default=REGRESSION_DELTA,
        metavar="POINTS",
        help=f"a sure fall of this much is a regression (default: {REGRESSION_DELTA:g})",
    )
    group.add_argument(
        "--margin",
        type=float,
        default=MARGIN,
        metavar="POINTS",
        help=f"a change within ± this is none (default: {MARGIN:g})",
    )
    group.add_argument(
        "--max-unscored",
        default=str(MAX_UNSCORED),
        metavar="SHARE",
        help="most of what the judge could have judged that may fail, per agent and dimension "
        f"(default: {MAX_UNSCORED:g}); what only an LLM could judge does not count against an offline judge",
    )
    group.add_argument(
        "--strict", action="store_true", help="exit code 2 also for “cannot tell yet” and for a missing baseline"
    )


def _how(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("how it is judged")
    group.add_argument(
        "--repeats",
        type=int,
        default=1,
        help="judgements per item, with --simulate conversations per situation; 1 to 20",
    )
    group.add_argument("--samples", type=int, default=20, help="most messages sampled per agent (default: 20)")
    group.add_argument("--seed", type=int, default=0, help="seed of the sampling (default: 0)")
    group.add_argument("--per-call", type=int, default=10, help="most propositions in one call, 1 to 10 (default: 10)")
    group.add_argument("--hard", action="store_true", help="20 %% off for every flaw the judge finds")
    group.add_argument("--double-check", action="store_true", help="ask the judge a second time whether it is sure")
    group.add_argument("--method", choices=Method.values, default=Method.PLUMBLINE.value, help="see capture_baseline")


def _output(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("what comes out")
    group.add_argument("--json", action="store_true", help="print one JSON object on standard output and nothing else")
    group.add_argument("--out", type=Path, metavar="FILE", help="also write the JSON object to this file")
    group.add_argument("--markdown", type=Path, metavar="FILE", help="write a comment for a pull request")
    group.add_argument(
        "--junit", type=Path, metavar="FILE", help="write JUnit XML: a test case per agent and dimension"
    )
    group.add_argument("--dry-run", action="store_true", help="print calls, tokens and cost, ask nothing")


def _files(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("files instead of the database, which is then not touched")
    group.add_argument(
        "--transcript", type=Path, action="append", default=[], metavar="FILE", help="a conversation; repeatable"
    )
    group.add_argument("--personas", type=Path, metavar="PATH", help="the agents: a file or a folder")
    group.add_argument(
        "--map", action="append", default=[], metavar="SPEAKER=SLUG", help="who is who in the transcripts; repeatable"
    )
    group.add_argument("--format", default="auto", choices=["auto", *READERS], help="of the transcripts")
    group.add_argument(
        "--propositions", type=Path, metavar="DIR", help="claims, beside those of the settings (also with a database)"
    )
