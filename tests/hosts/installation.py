"""Install Plumbline on two machines by the commands of docs/how-to/deploy.md, in their order."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable

from tests.hosts.machines import PYTHON, SHARED, Machine, run
from tests.machinery import ROOT, wait_until
from tests.test_documents import blocks

PAGE = "docs/how-to/deploy.md"
CLONE = "/root/plumbline.git"
JUDGE_PORT = 9000
# The packages are installed once for both machines, see `packages`.
PACKAGES = f"""{PYTHON} -m venv --without-pip .venv
echo {SHARED}/lib/python3.*/site-packages > $(echo .venv/lib/python3.*/site-packages)/shared.pth
for program in gunicorn celery; do
  sed "1s|.*|#!$PWD/.venv/bin/python|" {SHARED}/bin/$program > .venv/bin/$program && chmod 755 .venv/bin/$program
done"""
# What the page cannot know, or what takes the network.
INSTEAD = {
    "apt-get install": "true",
    "https://git.example.org/plumbline.git": CLONE,
    "python3 -m venv .venv && .venv/bin/pip install --require-hashes -r requirements.lock": PACKAGES,
    "scp -p /etc/plumbline.env two:/etc/": "true",
    "plumbline createsuperuser": (
        "export DJANGO_SUPERUSER_USERNAME=ada DJANGO_SUPERUSER_EMAIL=ada@example.org DJANGO_SUPERUSER_PASSWORD=pass-for-trials\n"
        "plumbline createsuperuser --noinput"
    ),
    "ANTHROPIC_API_KEY=\n": f"ANTHROPIC_API_KEY=sk-test\nANTHROPIC_BASE_URL=http://10.77.0.1:{JUDGE_PORT}\nJUDGE_MODEL=test-model\nLOG_LEVEL=INFO\nSILENCED_SYSTEM_CHECKS=agents.W002\nWEB_PROCESSES=2\n",
}
Say = Callable[[str], None]


def install(one: Machine, two: Machine, *, latency: float, say: Say) -> None:
    """Run the page's blocks whose titles begin with "Needs root, on", up to the first heading after the installation."""
    publish_code(one, two)
    start_judge(one, latency)
    for title, script in page_blocks():
        machines = {"one": [one], "two": [two], "every machine": [one, two]}[title]
        for machine in machines:
            begun = time.monotonic()
            machine.run(on(machine, script))
            say(f"{title}: on {machine.name}, {time.monotonic() - begun:.0f} s")
        if title == "one" and not (two.root / "etc/plumbline.env").exists():
            shutil.copy2(one.root / "etc/plumbline.env", two.root / "etc/plumbline.env")
    wait_until(lambda: all(map(is_ready, (one, two))), timeout=300, what="both web processes are ready")


def on(machine: Machine, script: str) -> str:
    """Name the machine's own address in a script of the page, as an operator does."""
    return script.replace("address=10.77.0.1", f"address={machine.address}")


def page_blocks(part: str = "") -> list[tuple[str, str]]:
    """Return the machine and the script of each block of a part of the page: the installation, "upgrade", "restore"."""
    found = []
    for block in blocks(PAGE):
        title = re.fullmatch(rf"Needs root, {part} ?on (one|two|every machine)", block.title)
        if title is not None:
            script = block.text
            for old, new in INSTEAD.items():
                script = script.replace(old, new)
            found.append((title[1], script))
    return found


def publish_code(*machines: Machine) -> None:
    """Give each machine the repository, with this commit as the version v1."""
    for machine in machines:
        repository = str(machine.root) + CLONE
        run("git", "clone", "--quiet", "--bare", str(ROOT), repository)
        run("git", "-C", repository, "tag", "--force", "v1", "HEAD")


def start_judge(one: Machine, latency: float) -> None:
    one.run(f"git clone --quiet --branch v1 {CLONE} /opt/judge")
    script = f"cd /opt/judge && exec {PYTHON} -m tests.hosts.judge {one.address} {JUDGE_PORT} {latency}"
    one.start(script, one.folder / "judge.log")


def is_ready(machine: Machine) -> bool:
    return "ready" in machine.run(f"curl -sf {machine.address}:8000/readyz || true")
