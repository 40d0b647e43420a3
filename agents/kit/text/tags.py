"""Tags of messages and conversations, such as ``build=41``: what their keys may be."""

import re

TAG_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
