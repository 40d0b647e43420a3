"""How much code four everyday paths enter: files, functions, and the lines of these functions.

    python -m tests.trace            # a table; measured on a database of its own, offline

A development tool: it shows what a reader has to open to follow one path.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
APPS = tuple(str(ROOT / name) + os.sep for name in ("agents", "evaluation", "correction", "project"))


def entered(path: Callable[[], object]) -> set[CodeType]:
    """The functions of the apps that a call enters, in all threads."""
    seen: set[CodeType] = set()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(APPS) and code.co_flags & inspect.CO_OPTIMIZED:
            seen.add(code)  # bodies of modules and classes, which an import runs, are not optimized

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        path()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return seen


def lines_of(code: CodeType) -> int:
    return len({line for _, _, line in code.co_lines() if line})


def paths() -> dict[str, Callable[[], object]]:
    from django.core.management import call_command

    from agents.models import Agent, Channel, ChannelMember
    from agents.turn.send_message import send_message

    michael = Agent.objects.get(slug="michael")
    attic = Channel.objects.create(slug="attic", name="attic", synthetic=True)
    ChannelMember.objects.create(channel=attic, agent=michael)
    gated = {"gate_mode": "enforce", "gate_adherence_enabled": True}

    def quiet(*command: str) -> Callable[[], object]:
        return lambda: call_command(*command, stdout=StringIO(), stderr=StringIO())

    def send(**overrides: Any) -> Callable[[], object]:
        return lambda: send_message(agent=michael, channel=attic, text="Please be advised.", overrides=overrides)

    return {
        "capture of one agent on one dimension": quiet(
            "capture_baseline", "--agents", "michael", "--dimensions", "adherence", "--no-simulate"
        ),
        "a gated send": send(**gated),
        "a send with everything off": send(gate_mode="off"),
        "detect_behavior": quiet("detect_behavior", "Could you be a bit shorter?", "--agent", "michael"),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "project.settings",
            "DATABASE_URL": f"sqlite:///{folder}/trace.sqlite3",
            "DEBUG": "1",
            "JUDGE_MODEL": "offline:lexical-1",
            "ACTOR_MODEL": "offline:scripted-1",
            "CELERY_BROKER_URL": "",
        }
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        call_command("seed", verbosity=0, stdout=StringIO())
        sys.stdout.write(f"{'path':<40}{'files':>7}{'functions':>11}{'lines':>7}\n")
        for name, path in paths().items():
            path()  # imports what it needs: the classes and decorators of a module are no step of the path
            codes = entered(path)
            files, lines = {code.co_filename for code in codes}, sum(lines_of(code) for code in codes)
            sys.stdout.write(f"{name:<40}{len(files):>7}{len(codes):>11}{lines:>7}\n")


if __name__ == "__main__":
    main()
