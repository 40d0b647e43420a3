"""What the tests of the harness share."""

from __future__ import annotations

from tests.evaluation.ci.building import two

__all__ = ["two"]
