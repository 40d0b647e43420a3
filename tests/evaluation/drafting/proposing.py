"""What a model proposes about a persona, and personas to propose from."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

from django.core.management import CommandError, call_command

from agents.models import Agent
from tests.factories import make_agent

PROMPT = """You are Ada, clerk of the harbour.

## Voice
Dry and exact. You answer in two sentences at most. You never use emoji or
exclamation marks. Sales talk makes you wince.

## People
Bob never uses question marks. Cyd writes in lower case.
"""


HAND_WRITTEN = """\
# ours
dimension: adherence   # what else
agent_id: ada
propositions:
    # short
    - id: short
      claim: >
        {{agent_name}} is
        short
      active:   false   # not yet
      weight: 2.0
    - active: no
      id: dry
      claim: '{{agent_name}} is dry'
      source: "Dry and exact"
    - {id: exact, claim: "{{agent_name}} is exact, \u00e9", active: false, source: 'Dry and exact'}
    - {id: kind, claim: "{{agent_name}} is kind"}
# the end"""


def make_ada(slug: str = "ada", **fields: Any) -> Agent:
    return make_agent(slug, **{"display_name": "Ada Lund", "system_prompt": PROMPT, **fields})


def proposal(claim: str = "{{agent_name}} avoids sales talk", **changes: Any) -> dict[str, Any]:
    """A good one."""
    return {
        "id": "sales-talk",
        "claim": claim,
        "inverted": False,
        "quote": "Sales talk makes you wince",
        "rule": {},
        "supports": ["to be fair"],
        "contradicts": ["world class", "/\\bsynerg\\w+/"],
        "recommendation": "Say it plainly.",
        **changes,
    }


def reply(*proposals: Any) -> dict[str, Any]:
    """A scripted answer of the loopback server."""
    return {"json": {"proposals": list(proposals)}}


def file_of(folder: Path, slug: str = "ada") -> Path:
    return folder / "adherence" / f"{slug}.suggestions.yaml"


def run(*args: str) -> tuple[int, str]:
    """Exit code and standard output; the error stands at the end of the latter."""
    out = StringIO()
    try:
        call_command(*args, stdout=out)
    except CommandError as error:
        return error.returncode, f"{out.getvalue()}{error}"
    return 0, out.getvalue()


def document(*args: str) -> dict[str, Any]:
    code, out = run(*args, "--json")
    result: dict[str, Any] = json.loads(out)
    assert code == 0
    return result
