"""A team's own functions, which its settings name by their paths: imported once, and none that cannot be used stops anything."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from django.utils.module_loading import import_string

Function = TypeVar("Function")


@dataclass(slots=True)
class TeamFunctions(Generic[Function]):
    """The functions of a setting: the usable ones by name, and by path what is wrong with the others."""

    usable: dict[str, Function] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def import_team_functions(
    paths: Iterable[str], *, kind: str, taken: Collection[str], checked: Callable[[Any], Function]
) -> TeamFunctions[Function]:
    """Import functions by their paths; those that cannot be used are `problems`, with why, and do not raise.

    Args:
        kind: What they are called in a problem, e.g. ``precondition``.
        taken: Names of functions that there are already.
        checked: Returns an imported function as it is kept, or raises an exception whose text says what is wrong with it.
    """
    functions = TeamFunctions[Function]()
    for path in paths:
        name = path.rpartition(".")[2]
        try:
            function = import_string(path)
            if inspect.iscoroutinefunction(function):  # what it returns is always true
                raise TypeError("it is an async function; allowed: def")
            kept = checked(function)
            if name in taken or name in functions.usable:
                raise ValueError(f"there is a {kind} {name!r} already; allowed: another name")
            functions.usable[name] = kept
        except Exception as error:  # noqa: BLE001 (whatever a team's module raises when it is imported)
            functions.problems[path] = f"{type(error).__name__}: {error}"
    return functions
