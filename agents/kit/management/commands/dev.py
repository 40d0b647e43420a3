"""``manage.py dev NAME``: tools for developers, apart from the commands of those who run agents."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser
from typing import Any

from django.utils.module_loading import import_string

from agents.kit.capability import declared
from agents.kit.commands import BaseCommand, wrong


class Command(BaseCommand):
    help = "Run a tool for developers of Plumbline; without NAME they are listed. `manage.py dev NAME --help` says what it does."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", metavar="NAME", help="the tool")
        parser.add_argument("arguments", nargs=REMAINDER, help="its own arguments and options")

    def run_from_argv(self, argv: list[str]) -> None:
        """Hand the rest of the line to the tool, which is a command of its own: `dev_commands` of the apps names its class."""
        program, own_name, *rest = argv
        if rest and rest[0] in declared("dev_commands"):
            tool = import_string(declared("dev_commands")[rest[0]])()
            tool.run_from_argv([f"{program} {own_name}", *rest])
        else:
            super().run_from_argv(argv)

    def handle(self, *args: Any, name: str | None, **options: Any) -> None:
        tools = declared("dev_commands")
        if name is not None:
            raise wrong(f"no tool {name!r}; allowed: {', '.join(sorted(tools))}")
        for tool_name, path in sorted(tools.items()):
            self.stdout.write(f"{tool_name}: {import_string(path).help}")
