"""One registration per table: what console, help, export, erasure, retention and sidebar need to know of a model.

Each app has a module ``tables`` with its registrations, `TABLES`, in the order of the sidebar. Rows that hang on others are registered
after them: what is erased or pruned goes from the last registration to the first, upper apps before lower ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from importlib import import_module
from typing import Any

from django.db.models import Model, Prefetch, QuerySet
from django.utils.module_loading import module_has_submodule
from django.utils.text import capfirst

from agents.kit.capability import Capability, capabilities
from agents.kit.erasing import Erase

PORTION = 1_000  # rows of an export in memory at a time
AGENT_TEXTS = ("system_prompt", "sample_lines", "description")  # long, and in no file of a log


@dataclass(frozen=True, slots=True, kw_only=True)
class Prune:
    """Rows that may be deleted when they are old.

    Attributes:
        rows: Those that may go, made before a moment.
        model: The table of the registration; set where the rules are collected.
        children: Models and their foreign keys whose rows go with one of these; they count as rows of the batch.
        sums: Those over these rows (`agents.kit.ops.sums.SummedRows`), which must be made before the rows go.
    """

    rows: Callable[[datetime], QuerySet[Any]]
    model: type[Model] | None = None
    children: tuple[tuple[type[Model], str], ...] = ()
    sums: Any = None

    @property
    def tables(self) -> list[str]:
        """Return the names of the table and of those of its children."""
        models = [self.model, *(child for child, _ in self.children)]
        return [model._meta.db_table for model in models if model is not None]


Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A log as a file.

    Attributes:
        columns: Their names, in order.
        rows: From the chosen rows of the table to rows of the file, in portions.
        texts: The columns that quote messages: they are left out for users who may not view those.
    """

    columns: Sequence[str]
    rows: Callable[[QuerySet[Any]], Iterable[Row]]
    texts: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if unknown := self.texts.difference(self.columns):
            raise ValueError(f"texts {', '.join(sorted(unknown))}: allowed: the columns {', '.join(self.columns)}")


def export_of(
    columns: str,
    *,
    special: Mapping[str, Callable[[Any], Any]] = {},
    prefetch: Sequence[str | Prefetch[Any]] = (),
    texts: Iterable[str] = (),
) -> Export:
    """Return an export whose cells are read off the rows, newest first.

    Args:
        columns: Names separated by spaces: a field, or ``agent=agent.slug`` with the path to it (null where a part of it is).
        special: Further columns, each a function of the row; those that `columns` names stand where it does.
        prefetch: What these read, so that the number of queries does not grow with the rows. What paths read is joined.
        texts: The columns that quote messages, which not every user gets; see `Export`.
    """
    readers: dict[str, Callable[[Any], Any]] = {}
    related: set[str] = set()  # lookups of the rows that the paths lead through
    for column in columns.split():
        name, _, path = column.partition("=")
        path = path or name
        if name in special:
            readers[name] = special[name]
            continue
        readers[name] = partial(_read_path, path=path)
        if "." in path:
            related.add(path.rpartition(".")[0].replace(".", "__"))
    for name, read in special.items():
        readers.setdefault(name, read)
    # Long texts of agents, which are in no file, are not loaded with them.
    unread: list[str] = []
    for lookup in related:
        if lookup.endswith("agent"):
            unread += [f"{lookup}__{text}" for text in AGENT_TEXTS]

    def rows(chosen: QuerySet[Any]) -> Iterator[Row]:
        newest = chosen.select_related(*sorted(related)).defer(*unread).prefetch_related(*prefetch).order_by("-pk")
        for row in newest.iterator(chunk_size=PORTION):
            yield {name: read(row) for name, read in readers.items()}

    return Export(columns=tuple(readers), rows=rows, texts=frozenset(texts))


def _read_path(row: Any, path: str) -> Any:
    """Return the value at the end of a path of attributes; None where a part of it is missing or null."""
    value = row
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A registration: what is to be known of a model. Its help page is ``help/<model>.md`` of the app.

    Attributes:
        operator, editor: What these groups may do besides viewing, e.g. ``add change``, or ``*``; editors may all that operators may.
        menu, icon: Group of the sidebar (of the setting CONSOLE_MENU; "" is the one without a title) and icon of Material Symbols.
            Without a group the table is a tab, or below another one, or has no list.
        tab_of: The entry of the sidebar that has this list as a tab: a table, such as ``agents.Run``, or a page by the name of its URL,
            such as ``admin:review``; without that entry the list has no place of its own.
        below: The table from whose rows this list is opened, such as ``evaluation.EvaluationRun``; it has neither entry nor tab.
        order: Its place in its group of the sidebar, or among the tabs: smaller numbers first, then as they are registered.
        title: Its name in sidebar, tabs and breadcrumbs; default: the model's plural.
        entry: The name of its entry in the sidebar, where that stands for more than this table.
        empty: What an empty list says: what fills it, and what to do next.
        start: Where that can be done, as buttons below: label, name of the URL, and the permission it takes.
        deleting: What the page that asks before a row is deleted says of it.
        has_saved_views: Whether users may save what the list shows under a name; see `agents.kit.console.saved_views`.
        columns, filters: Of the list, names separated by spaces; see `agents.kit.console.columns`. Empty where an admin class says it.
        search: Columns that a search finds exactly, or, with a star at the end, by a part; separated by spaces.
        fields: Of a row's page: groups of a title and names separated by spaces.
        export: The list as a file.
        erase: What derives from a person's messages, also in tables of lower apps; see `agents.erasure`.
        no_speech: Columns of text, separated by spaces, that never hold what a person said.
        typed: Columns of text, separated by spaces, that people and other programs type: no key leads from a message to them, so they
            are not erased, and ``forget --search`` shows where a name stands in them.
        prune: What goes when it is old; see `agents.kit.ops.retention`.
    """

    model: type[Model]
    operator: str = ""
    editor: str = ""
    menu: str | None = None
    icon: str = ""
    tab_of: str = ""
    below: str = ""
    order: int = 0
    title: str = ""
    entry: str = ""
    empty: str = ""
    start: tuple[tuple[str, str, str], ...] = ()
    deleting: str = ""
    has_saved_views: bool = False
    columns: str = ""
    filters: str = ""
    search: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    export: Export | None = None
    erase: tuple[Erase, ...] = ()
    no_speech: str = ""
    typed: str = ""
    prune: Prune | None = None

    @property
    def name(self) -> str:
        """Return its title, with a capital."""
        return self.title or capfirst(str(self.model._meta.verbose_name_plural))


def homes() -> list[Capability]:
    """Return the apps that register tables, lower ones first."""
    return [app for app in capabilities() if module_has_submodule(app.module, "tables")]


@cache
def tables() -> dict[type[Model], Table]:
    """Return the registrations of all apps by model, lower apps first."""
    registered = {}
    for app in homes():
        for table in import_module(f"{app.name}.tables").TABLES:
            registered[table.model] = table
    return registered


def in_menu(group: str) -> list[Table]:
    """Return the tables that have an entry in a group of the sidebar, in their order."""
    members = [table for table in tables().values() if table.menu == group]
    return sorted(members, key=lambda table: table.order)


def tabs_of(entry: str) -> list[Table]:
    """Return the tables that are tabs of an entry of the sidebar, in their order; see `Table.tab_of`."""
    members = [table for table in tables().values() if table.tab_of == entry]
    return sorted(members, key=lambda table: table.order)


def below(table: Table) -> list[Table]:
    """Return the tables whose lists are opened from rows of this one."""
    return [other for other in tables().values() if other.below == table.model._meta.label]


def table_of(model: type[Model]) -> Table:
    """Return the registration of a model; an empty one where there is none."""
    return tables().get(model) or Table(model=model)


def erasures() -> list[Erase]:
    """Return every rule of erasure in the order in which they are followed, each with its table."""
    rules = []
    for table in reversed(tables().values()):
        for rule in table.erase:
            rules.append(rule if rule.model else replace(rule, model=table.model))
    return rules


def prunings() -> list[Prune]:
    """Return every rule of retention in the order in which they are followed, each with its table."""
    rules = []
    for table in reversed(tables().values()):
        if table.prune is not None:
            rules.append(replace(table.prune, model=table.model))
    return rules
