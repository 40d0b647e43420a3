"""``python -m tests.gateway``: see `measure`."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django.setup()

from tests.gateway.measure import main  # noqa: E402 (its modules read settings)

main()
