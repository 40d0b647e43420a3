"""Two machines for trials: Debian with systemd in containers of their own, each with its name, address and disk.

Needs root, systemd-nspawn (Debian's systemd-container) and what the page installs; the files are those of this machine, beneath an overlay.
The network is one cable between the two, which reaches nothing else.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from tests.machinery import ROOT, wait_until

DISK = 24  # gigabytes that both machines may write; the file is sparse
PYTHON = "/usr/bin/python3"  # Debian's
SHARED = "/opt/packages"  # on the machines: a virtual environment with what the lock names
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(*command: str) -> str:
    """Run a command on this machine and return its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)}: {done.stderr or done.stdout}")
    return done.stdout


@cache
def packages() -> Path:
    """Install what the lock names, as the page has it, once for all machines: they reach no package index."""
    lock = ROOT / "requirements.lock"
    made = Path("/var/tmp/plumbline-hosts") / hashlib.sha256(lock.read_bytes()).hexdigest()[:12]  # noqa: S108 (large)
    if not (made / "complete").exists():
        run(PYTHON, "-m", "venv", str(made))
        run(f"{made}/bin/pip", "install", "--quiet", "--require-hashes", "-r", str(lock))
        (made / "complete").touch()
    return made


class Machine:
    """One machine; its commands run as root."""

    def __init__(self, folder: Path, name: str, address: str) -> None:
        self.folder, self.name, self.address = folder / name, name, address
        self.root, self.log = self.folder / "root", self.folder / "console"
        self.network = f"plumbline-{os.getpid()}-{name}"
        self.process: subprocess.Popen[bytes] | None = None
        self.leader = 0
        self.started: list[subprocess.Popen[bytes]] = []

    def boot(self, names: str) -> None:
        """Start systemd and wait until it has started its services."""
        for made in ("root", "upper", "work"):
            (self.folder / made).mkdir(parents=True)
        layers = f"lowerdir=/,upperdir={self.folder}/upper,workdir={self.folder}/work"
        run("mount", "-t", "overlay", "overlay", "-o", layers, str(self.root))
        (self.root / "etc/hostname").write_text(f"{self.name}\n")
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{names}")
        command = ["systemd-nspawn", "--quiet", f"--directory={self.root}", f"--machine={self.network}", "--boot"]
        command += [f"--network-namespace-path=/run/netns/{self.network}", "--register=no", "--keep-unit"]
        command += [f"--bind-ro={packages()}:{SHARED}"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--console=pipe"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._has_booted, timeout=90, what=f"{self.name} boots, see {self.log}")

    def _has_booted(self) -> bool:
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        if not children:
            return False
        self.leader = int(children[0])
        state = subprocess.run(self.command("systemctl is-system-running"), capture_output=True, text=True, check=False)
        return state.stdout.strip() in ("running", "degraded")

    def command(self, script: str) -> list[str]:
        """Return the command that runs a script of bash on this machine."""
        inside = ["nsenter", "--target", str(self.leader), "--mount", "--uts", "--ipc", "--net", "--pid", "--"]
        clean = ["env", "-i", f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
        return [*inside, *clean, "bash", "-euo", "pipefail", "-c", f"cd /root\n{script}"]

    def run(self, script: str, timeout: float = 900) -> str:
        """Run a script of bash and return its output; end this program with what it said when it fails."""
        done = subprocess.run(self.command(script), capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode:
            raise SystemExit(
                f"on {self.name} ended with {done.returncode}:\n{script}\n{done.stdout[-1000:]}\n{done.stderr[-1500:]}"
            )
        return done.stdout

    def start(self, script: str, output: Path) -> subprocess.Popen[bytes]:
        """Start a script that runs on; its output goes to a file."""
        with output.open("wb") as log:
            process = subprocess.Popen(self.command(script), stdout=log, stderr=log, start_new_session=True)
        self.started.append(process)
        return process

    def halt(self) -> None:
        for process in self.started:  # one that is left would hold the disk
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)  # systemd-nspawn has the machine shut down
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        subprocess.run(["umount", "--lazy", str(self.root)], check=False, capture_output=True)


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Boot the machines *one* and *two*, and remove them at the end."""
    for program in ("systemd-nspawn", "psql", "redis-server", "nginx", "ip"):
        if shutil.which(program, path=PATH) is None:
            raise SystemExit(
                f"{program} is missing: apt-get install systemd-container postgresql redis-server nginx-light iproute2"
            )
    folder = Path(tempfile.mkdtemp(prefix="plumbline-hosts-"))
    disk, mounted = folder / "disk", folder / "machines"
    mounted.mkdir()
    run("truncate", "--size", f"{DISK}G", str(disk))
    run("mkfs.ext4", "-q", str(disk))
    run("mount", "-o", "loop", str(disk), str(mounted))
    machines = Machine(mounted, "one", "10.77.0.1"), Machine(mounted, "two", "10.77.0.2")
    try:
        connect(*machines)
        names = "".join(f"{machine.address} {machine.name}\n" for machine in machines)
        for machine in machines:
            machine.boot(names)
        yield machines
    finally:
        for machine in machines:
            machine.halt()
            subprocess.run(["ip", "netns", "del", machine.network], check=False, capture_output=True)
        subprocess.run(["umount", "--lazy", str(mounted)], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def connect(one: Machine, two: Machine) -> None:
    """Give each machine a network of its own, with one cable between them."""
    for machine in (one, two):
        run("ip", "netns", "add", machine.network)
        run("ip", "-n", machine.network, "link", "set", "lo", "up")
    run(*f"ip -n {one.network} link add cable type veth peer name cable netns {two.network}".split())
    for machine in (one, two):
        run("ip", "-n", machine.network, "address", "add", f"{machine.address}/24", "dev", "cable")
        run("ip", "-n", machine.network, "link", "set", "cable", "up")
