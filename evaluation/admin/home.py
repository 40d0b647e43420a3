"""The part of the console's first page about proposition files that cannot be used."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.home import Answers, HomePart, add_home, step
from evaluation.propositions.files import file_problems

PROBLEMS_NAMED = 4


def files_unusable(request: HttpRequest, answers: Answers) -> SafeString | None:
    """Show proposition files with mistakes: what needs them cannot be measured until they are corrected."""
    problems = file_problems()
    if not problems:
        return None
    text = display.visible("; ".join(str(problem) for problem in problems[:PROBLEMS_NAMED]))
    return step("Proposition files cannot be used", text, command="manage.py check_propositions")


add_home(HomePart(place="setup", order=45, permission="evaluation.view_proposition", render=files_unusable))
