"""Personality swarms, as stages of the turn: calibrate before an agent answers a person, polish what it wrote, remember the conversation.

`calibration` reads the message (intent, register, whether to ask back by `clarifier`); `state` keeps what was said, each entry with the
words it rests on; `memory` says what of it stands in the prompt, and summarises the rest; `polish` rewrites a draft and `guards` refuses
a rewriting that changes what it says. `stages` puts them into the turn.
"""
