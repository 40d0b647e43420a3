"""Who holds a claim: a process of this host, or of a container that only shares its name."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from agents.models import owner_is_dead, owner_name
from agents.work.lease import _namespace


@pytest.fixture(scope="module")
def ended() -> int:
    """The pid of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    return process.pid


@pytest.mark.skipif(not os.path.exists("/proc/self/ns/pid"), reason="this system has no namespaces of processes")
def test_work_of_a_container_that_shares_our_host_name_is_left_to_its_lease(ended: int) -> None:
    ours = f"{socket.gethostname()}:{ended}:{_namespace()}-abcd"
    theirs = f"{socket.gethostname()}:{ended}:{int(_namespace()) + 1}-abcd"

    assert owner_is_dead(ours)
    assert not owner_is_dead(theirs)


def test_an_owners_name_says_in_which_namespace_its_pid_is_one() -> None:
    assert owner_name().split(":")[2].startswith(_namespace())
    assert not owner_is_dead(owner_name())
