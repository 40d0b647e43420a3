"""What the tests of the harness share."""

from __future__ import annotations

from tests.evaluation.harness.building import two

__all__ = ["two"]
