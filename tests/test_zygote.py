"""Processes that tests start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.machinery import ROOT, wait_until

STARTS_TWO = """
import sys, time
from tests import zygote
forked = zygote.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
other = zygote.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=-1, text=True, start_new_session=True)
print(forked.pid, other.pid, other.stdout.readline(), flush=True)
time.sleep(600)
"""


def runs(pid: str) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only what ends as usual takes its processes along")
def test_processes_that_a_test_started_end_with_it_when_it_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS_TWO], cwd=ROOT, stdout=subprocess.PIPE, text=True) as test:
        pids = test.stdout.readline().split() if test.stdout else []
        assert [runs(pid) for pid in pids] == [True, True, True]
        test.kill()

    wait_until(lambda: not any(map(runs, pids)), timeout=10, what="the processes are gone")
