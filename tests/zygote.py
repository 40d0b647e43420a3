"""Python processes that start in a fifth of the usual time: they are forked from one that has imported every library.

`Popen` and `run` stand for those of `subprocess` where the command is ``[sys.executable, …]``. The process reads its
environment, the settings and all of our own code as usual; it is a child of the caller, and can be signalled, killed and
waited for. Use `subprocess` itself where the start of the interpreter is what is tested.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import gc
import importlib
import inspect
import io
import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OURS = ("agents", "evaluation", "correction", "project", "manage", "tests", "conftest", "__main__", "__mp_main__")
OF_TESTS = (
    "pytest",
    "_pytest",
    "xdist",
    "execnet",
    "hypothesis",
    "playwright",
    "pytest_django",
    "axe_playwright_python",
)
PR_SET_CHILD_SUBREAPER = 36  # prctl(2): orphans become children of this process
_started: list[socket.socket] = []
_guards: list[subprocess.Popen[bytes]] = []
# Reads process ids. When the input ends it kills those that still run, with their group where they lead one; the time at which a process
# started tells it from a later one with the same id.
GUARD = """
import os, signal, sys
def started(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""
processes = {}
for line in sys.stdin:
    processes[int(line)] = started(int(line))
for pid, at in processes.items():
    try:
        if at and started(pid) == at:
            (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)
    except OSError:
        pass
"""


def kill_with_us(pid: int) -> None:
    """Have a process killed when this one ends in whatever way, with its group if it leads one; only on Linux."""
    if not _guards:
        # In a session of its own, so that Ctrl-C does not reach it.
        guard = subprocess.Popen(
            [sys.executable, "-ISc", GUARD], stdin=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        _guards.append(guard)
        atexit.register(guard.wait, 10)
        atexit.register(guard.stdin.close)  # type: ignore[union-attr]
    os.write(_guards[0].stdin.fileno(), f"{pid}\n".encode())  # type: ignore[union-attr]


def _server() -> socket.socket:
    """Return the socket of this process's zygote, which is started on first use."""
    if not _started:
        ours, its = socket.socketpair()
        names = [name for name in list(sys.modules) if name.partition(".")[0] not in (*OURS, *OF_TESTS)]
        environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        process = subprocess.Popen(
            [sys.executable, __file__, str(its.fileno())], cwd=ROOT, env=environment, pass_fds=[its.fileno()]
        )
        its.close()
        _send(ours, names)
        atexit.register(process.wait, 10)
        atexit.register(ours.close)  # the later one is called first
        _started.append(ours)
    return _started[0]


def _send(to: socket.socket, value: Any, files: Sequence[int] = ()) -> None:
    """Send a value as JSON after its length, with open files."""
    data = json.dumps(value).encode()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    to.sendmsg([len(data).to_bytes(8, "big")], rights)
    to.sendall(data)


def _receive(end: socket.socket) -> tuple[Any, list[int]]:
    """Return the next value and its files; None at the end."""
    files = array.array("i")
    head, rights, *_ = end.recvmsg(8, socket.CMSG_SPACE(3 * files.itemsize))
    if not head:
        return None, []
    for _, _, data in rights:
        files.frombytes(data)
    left, parts = int.from_bytes(head, "big"), []
    while left:
        parts.append(end.recv(left))
        left -= len(parts[-1])
    return json.loads(b"".join(parts)), list(files)


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen`, whose process does not outlive this one.

    What it does not know how to fork starts as usual: other programs, and modules (``-m``).
    """

    def _execute_child(self, args: Any, *others: Any) -> None:
        names = inspect.signature(subprocess.Popen._execute_child).parameters  # type: ignore[attr-defined]
        given = dict(zip(list(names)[2:], others, strict=True))
        if sys.platform != "linux" or args[0] != sys.executable or args[1] == "-m" or given["pass_fds"]:
            super()._execute_child(args, *others)  # type: ignore[misc]
            kill_with_us(self.pid)
            return
        order = {
            "argv": [os.fspath(word) for word in args[1:]],
            "env": dict(os.environ if given["env"] is None else given["env"]),
            "cwd": os.fspath(given["cwd"] or Path.cwd()),
            "session": given["start_new_session"],
        }
        pipes = [given[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        files = [own if pipe == -1 else pipe for own, pipe in enumerate((pipes[0], pipes[3], pipes[5]))]
        prctl, server = ctypes.CDLL(None).prctl, _server()
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _send(server, order, files)
        self.pid = _receive(server)[0]
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        kill_with_us(self.pid)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run(
    args: Sequence[str], *, timeout: float = 120, check: bool = False, capture_output: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command of this Python to its end, as `subprocess.run` does."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(args, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
    done = subprocess.CompletedProcess(args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _serve(orders: socket.socket) -> list[str]:
    """Fork a process for each order; return its arguments in each of them. Ends when the orders do."""
    names, _ = _receive(orders)
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001, S112 (it needs settings: each process imports it itself)
            continue
    gc.freeze()  # what all processes share is neither looked at nor taken apart by each
    while True:
        order, files = _receive(orders)
        if order is None:
            os._exit(0)
        read, write = os.pipe()
        if between := os.fork():
            os.waitpid(between, 0)  # the new process is an orphan now, and so a child of the one that ordered it
            _send(orders, int(os.read(read, 20)))
            for descriptor in (read, write, *files):
                os.close(descriptor)
        elif made := os.fork():
            os.write(write, str(made).encode())
            os._exit(0)
        else:
            os.close(read)
            os.close(write)
            orders.close()
            return _become(order, files)


def _become(order: dict[str, Any], files: list[int]) -> list[str]:
    """Take over session, folder, environment and streams."""
    if order["session"]:
        os.setsid()
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    for own, given in enumerate(files):
        os.dup2(given, own)
        os.close(given)
    now = "PYTHONUNBUFFERED" in os.environ
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))  # type: ignore[misc]
    out, err = (io.BufferedWriter(io.FileIO(own, "w", closefd=False)) for own in (1, 2))
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(out, write_through=now)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = io.TextIOWrapper(err, errors="backslashreplace", line_buffering=True)  # type: ignore[misc]
    sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path.insert(
        0, order["cwd"] if order["argv"][0].startswith("-") else str(Path(order["argv"][0]).resolve().parent)
    )
    return list(order["argv"])


if __name__ == "__main__":
    sys.argv = _serve(socket.socket(fileno=int(sys.argv[1])))
    if sys.argv[0] == "-c":
        code = sys.argv.pop(1)
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 (ours)
    elif sys.argv[0] == "-m":
        sys.argv.pop(0)
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
