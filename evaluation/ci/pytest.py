"""A persona check as a test of your own suite: ``from evaluation.ci.pytest import in_character``. Needs this checkout in PYTHONPATH."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Unjudged", "in_character"]


class Unjudged(AssertionError):
    """Too little could be judged to say: a judge that is away, too few messages."""


def in_character(
    personas: str | Path,
    transcript: str | Path | Sequence[str | Path],
    *,
    propositions: str | Path | None = None,
    baseline: str | Path | None = None,
    threshold: float | Mapping[str, float] | None = None,
    **options: object,
) -> dict[str, Any]:
    """Assert that no persona got worse and none scores below its threshold; nothing is stored.

    Args:
        personas: A persona's file or a folder of them; transcript: what they said, one file or several.
        propositions: A folder of your own. baseline: what an earlier evaluation wrote with ``--out``.
        threshold: Least score, 0 to 9: of every dimension that is scored, or by dimension id.
        options: Others of ``manage.py evaluate``, as ``samples=60`` or ``agents="ada"``; True for a switch.

    Returns:
        The report, as ``evaluate --json`` prints it.

    Raises:
        AssertionError: A persona fell out of character; the message is the report. `Unjudged` where that could not be judged.
        ValueError: A file, an option or a setting is wrong.
    """
    __tracebackhide__ = True
    import django
    from django.core.management import CommandError, call_command

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    django.setup()
    from agents.kit.commands import NOT_ENOUGH, WrongUsage

    least = ",".join(f"{d}={s}" for d, s in threshold.items()) if isinstance(threshold, Mapping) else threshold
    paths = [transcript] if isinstance(transcript, str | Path) else transcript
    given = {"personas": personas, "propositions": propositions, "baseline": baseline, "threshold": least, **options}
    words = [f"--transcript={path}" for path in paths]
    for name, value in given.items():
        if value is not None and value is not False:
            words.append(f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}"))
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        try:
            call_command("evaluate", *words, f"--out={result}", stdout=out, stderr=out)
        except CommandError as error:
            kind = {1: AssertionError, NOT_ENOUGH: Unjudged}.get(error.returncode, ValueError)
            if isinstance(error, WrongUsage):
                kind = ValueError
            raise kind(f"{error}\n\n{out.getvalue()}".strip()) from None
        return json.loads(result.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
