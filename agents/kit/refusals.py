"""What is asked for and cannot be done as it is: refused with the field, its value and what is allowed, at every door."""

from __future__ import annotations

from collections.abc import Mapping


class Refused(ValueError):
    """What is asked for is refused.

    Attributes:
        errors: By the path of a field, such as ``messages[0].text``, what is wrong and what is allowed.
        names_nothing: Whether all that is wrong are names of what is not there, or files that cannot be used.
    """

    def __init__(self, errors: Mapping[str, str], *, names_nothing: bool = False) -> None:
        self.errors = dict(errors)
        self.names_nothing = names_nothing
        super().__init__("; ".join(self.errors.values()))
