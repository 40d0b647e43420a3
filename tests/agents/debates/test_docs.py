"""The example of docs/how-to/debate.md prints what stands below it, in a plain Python without settings or database."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from django.conf import settings


def test_the_example_for_debates_of_others_runs() -> None:
    page = (settings.BASE_DIR / "docs/how-to/debate.md").read_text()
    section = page[page.index("## Your own debates through these functions") :]
    code, printed = re.findall(r"```(?:python|text)\n(.*?)```", section, flags=re.DOTALL)[:2]
    plain = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=settings.BASE_DIR, env=plain, capture_output=True, text=True, timeout=60
    )

    assert (done.stdout, done.stderr) == (printed, "")
