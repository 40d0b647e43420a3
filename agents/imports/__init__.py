"""Files handed in over the console: kept as rows, checked and imported by a worker, with the services of the commands."""

from agents.imports.work import work_one

__all__ = ["work_one"]
