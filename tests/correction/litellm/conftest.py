"""What the tests of the gate behind LiteLLM share."""

from __future__ import annotations

import pytest

from tests.api_client import Program, program
from tests.console import superuser


@pytest.fixture
def client(db: None) -> Program:
    """A gateway with the token of somebody who may do everything."""
    return program(superuser())
