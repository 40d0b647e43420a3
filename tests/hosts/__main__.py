"""The page docs/how-to/deploy.md on two machines: ``python -m tests.hosts walk | scale | upgrade | restore``."""

from __future__ import annotations

import argparse
import os
import sys
import time

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
os.environ.setdefault("DEBUG", "1")


def say(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')}  {line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "what",
        nargs="+",
        choices=("walk", "upgrade", "scale", "restore"),
        help="after the walk, which always comes first",
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave the machines running until there is a file `stop` beside them"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="of scale: how often each number of workers is tried (default: 3)"
    )
    parser.add_argument(
        "--in-flight", type=int, default=20, help="of scale: model calls of a process at a time (default: 20)"
    )
    parser.add_argument("--rate", type=float, default=20, help="of upgrade: requests a second (default: 20)")
    given = parser.parse_args()
    from tests.hosts import trials
    from tests.hosts.installation import install
    from tests.hosts.machines import two_machines

    with two_machines() as (one, two):
        try:
            install(one, two, latency=1, say=say)
            if "upgrade" in given.what:
                trials.upgrade(one, two, rate=given.rate, say=say)
            if "scale" in given.what:
                trials.scale(one, two, rounds=given.rounds, in_flight=given.in_flight, say=say)
            if "restore" in given.what:
                trials.restore(one, two, say=say)
        except SystemExit as failure:
            say(str(failure))
            if not given.keep:
                raise
        finally:
            if given.keep:
                say(f"nsenter --all --target {one.leader} or {two.leader}; touch {one.folder.parent}/stop")
                while not (one.folder.parent / "stop").exists():
                    time.sleep(1)


if __name__ == "__main__":
    main()
