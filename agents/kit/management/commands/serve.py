"""``manage.py serve``: the console and a worker on this machine, for one person."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentParser
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError

from agents.kit.commands import BaseCommand, unusable, wrong
from agents.kit.groups import make_admin


class Command(BaseCommand):
    help = (
        "Start web and worker on this machine, for local use: migrates, creates the user `admin` once and prints its password. "
        "For production see docs/how-to/deploy.md: gunicorn project.wsgi and `manage.py work`."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=8000, help="port on 127.0.0.1 (default: 8000)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate, make the user `admin`, and run web and worker as child processes until one of them ends or this one is to stop.

        Both children are ended then. That one ended by itself with an error is an error of the command; that a person stopped it is none.
        """
        if settings.PRODUCTION:
            raise unusable("serve is for local use; in production run gunicorn project.wsgi and `manage.py work`.")
        self._check_port(options["port"])
        call_command("migrate", verbosity=0)
        self._ensure_admin()
        url = f"http://127.0.0.1:{options['port']}/admin/"
        self.stdout.write(self.style.SUCCESS(f"Console: {url}   (stop with Ctrl-C)"))
        environment = {**os.environ, "DEBUG": os.environ.get("DEBUG", "1")}  # plain http needs cookies without Secure
        commands = (["runserver", "--noreload", "--nostatic", f"127.0.0.1:{options['port']}"], ["work"])
        children = [subprocess.Popen([sys.executable, sys.argv[0], *command], env=environment) for command in commands]  # noqa: S603

        def asked_to_stop(number: int, frame: FrameType | None) -> None:
            raise KeyboardInterrupt

        previous = signal.signal(signal.SIGTERM, asked_to_stop)
        try:
            # Another parent later says that the process that started this has died: the children must not go on alone.
            parent = os.getppid()
            while all(child.poll() is None for child in children) and os.getppid() == parent:
                time.sleep(0.5)
        except KeyboardInterrupt:
            self.stdout.write("Stopping.")
        finally:
            signal.signal(signal.SIGTERM, previous)
            for child in children:
                child.terminate()
            codes = [child.wait(timeout=20) for child in children]
        if any(code > 0 for code in codes):  # below 0 are those that were ended by a signal
            raise CommandError("web or worker ended; see its message above")

    def _check_port(self, port: int) -> None:
        """Raise a CommandError where the port cannot be used, before anything is printed that is shown only once."""
        if not 1 <= port <= 65535:
            raise wrong(f"--port {port}: allowed 1 to 65535")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise unusable(f"--port {port}: {error.strerror}; choose another with --port") from None

    def _ensure_admin(self) -> None:
        """Make the user `admin` where there is none, give it a password where it has none, and print how to log in."""
        admin = make_admin()
        if admin.has_usable_password():
            self.stdout.write(
                "Login: admin, with the password printed when it was created (`manage.py changepassword admin` sets another)."
            )
            return
        password = secrets.token_urlsafe(12)
        admin.set_password(password)
        admin.save(update_fields=["password"])
        self.stdout.write(self.style.SUCCESS(f"Login: admin   Password: {password}   (shown once)"))
