"""A persona check as a test of your own suite: ``from evaluation.ci.pytest import in_character``. Needs this checkout in PYTHONPATH."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django.core.management import CommandError

__all__ = ["Unjudged", "in_character"]


class Unjudged(AssertionError):
    """Too little could be judged to say: a judge that is away, too few messages."""


def in_character(
    personas: str | Path,
    transcript: str | Path | Sequence[str | Path] | Sequence[Mapping[str, Any]],
    *,
    propositions: str | Path | None = None,
    baseline: str | Path | None = None,
    threshold: float | Mapping[str, float] | None = None,
    **options: object,
) -> dict[str, Any]:
    """Assert that no persona got worse and none scores below its threshold; nothing is stored.

    Args:
        personas: A persona's file or a folder of them.
        transcript: What they said: one file or several, or the messages of a conversation, such as
            ``[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]`` with ``map="assistant=ada"``.
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

    values: dict[str, object] = {
        "personas": personas,
        "propositions": propositions,
        "baseline": baseline,
        "threshold": threshold,
        **options,
    }
    if isinstance(threshold, Mapping):
        values["threshold"] = ",".join(f"{dimension}={least}" for dimension, least in threshold.items())
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        files = _files_of(transcript, Path(folder))
        arguments = [f"--transcript={path}" for path in files] + _arguments(values)
        result = Path(folder) / "result.json"
        try:
            call_command("evaluate", *arguments, f"--out={result}", stdout=out, stderr=out)
        except CommandError as error:
            raise _raised_for(error, f"{error}\n\n{out.getvalue()}".strip()) from None
        return json.loads(result.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def _files_of(
    transcript: str | Path | Sequence[str | Path] | Sequence[Mapping[str, Any]], folder: Path
) -> list[str | Path]:
    """Return the files of a transcript; messages are written into one in the folder."""
    if isinstance(transcript, str | Path):
        return [transcript]
    files = [part for part in transcript if isinstance(part, str | Path)]
    if len(files) == len(transcript):
        return files
    written = folder / "messages.json"
    written.write_text(json.dumps(list(transcript), default=str), encoding="utf-8")
    return [written]


def _arguments(options: Mapping[str, object]) -> list[str]:
    """Return options as a command line has them; those that are None or False are left out, True is a switch."""
    arguments = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            arguments.append(option)
        elif value is not None and value is not False:
            arguments.append(f"{option}={value}")
    return arguments


def _raised_for(error: CommandError, report: str) -> Exception:
    """Return what a test raises for the end of the command."""
    from agents.kit.commands import NOT_ENOUGH, REGRESSION, WrongUsage

    if isinstance(error, WrongUsage):  # it has the exit code of `Unjudged`
        return ValueError(report)
    if error.returncode == REGRESSION:
        return AssertionError(report)
    if error.returncode == NOT_ENOUGH:
        return Unjudged(report)
    return ValueError(report)
