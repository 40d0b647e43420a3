"""``manage.py make_token USER``: a token with which a program acts as a user."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from agents.kit.commands import CodedCommand, unusable, wrong
from agents.kit.models import ApiToken
from agents.kit.text.wording import day_text


class Command(CodedCommand):
    help = "Make an API token for a user, and print it: it is shown only now."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", help="user name")
        parser.add_argument(
            "--name", default="from the terminal", help="which program uses it (default: from the terminal)"
        )
        parser.add_argument(
            "--days", type=int, default=90, metavar="N", help="after which it is refused; 0 = never (default: 90)"
        )
        parser.add_argument("--quiet", action="store_true", help="print the token and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the key of a new token, alone on stdout; on stderr, unless it is to be quiet, whose it is and until when."""
        if not 0 <= options["days"] <= 3650 or not 1 <= len(options["name"]) <= 100:
            raise wrong("--days is 0 to 3650, --name 1 to 100 characters")
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise unusable(f"there is no user {options['user']!r}; manage.py createsuperuser makes one")
        expires_at = timezone.now() + timedelta(days=options["days"]) if options["days"] else None
        _, key = ApiToken.make(user=user, name=options["name"], expires_at=expires_at)
        self.stdout.write(key)
        if not options["quiet"]:
            ends = f"until {day_text(expires_at)}" if expires_at else "without an end"
            self.stderr.write(f"{user.username} may use it {ends}: Authorization: Token {key[:6]}…")
