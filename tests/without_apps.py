"""The settings of an installation that deleted the lines of some apps; ``WITHOUT_APPS`` names them, separated by commas."""

import os

from project.settings import *  # noqa: F403
from project.settings import INSTALLED_APPS, TURN_PIPELINE

GONE = tuple(os.environ["WITHOUT_APPS"].split(","))
INSTALLED_APPS = [app for app in INSTALLED_APPS if app not in GONE]
TURN_PIPELINE = [path for path in TURN_PIPELINE if not path.startswith(tuple(f"{app}." for app in GONE))]
