"""Who holds a claim: names of processes, and whether such a process is known to be dead."""

from __future__ import annotations

import os
import secrets
import socket


def owner_name() -> str:
    """A name for this process and moment, ``host:pid:token``, under which it claims work.

    The token begins with the namespace of the pid where there is such a thing: containers may share a host's name, not its processes.
    """
    token = secrets.token_hex(4)
    return f"{socket.gethostname()}:{os.getpid()}:{'-'.join(filter(None, (_namespace(), token)))}"


def owner_is_dead(owner: str) -> bool:
    """Whether `owner` was a process of this host that no longer runs.

    Spares a person who killed a command the wait for its lease. False whenever it cannot be known (another host, or a container
    with processes of its own), so that the lease decides.
    """
    host, _, rest = owner.partition(":")
    pid, _, token = rest.partition(":")
    namespace = token.partition("-")[0] if "-" in token else ""
    if host != socket.gethostname() or not pid.isdecimal() or namespace not in ("", _namespace()):
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _namespace() -> str:
    """The number of the namespace in which this process's pid is unique; empty where the system has none."""
    try:
        return os.readlink("/proc/self/ns/pid").rpartition("[")[2].rstrip("]")
    except OSError:
        return ""
