"""Structured debates: several personas answer a question round by round, until nothing more will come.

`starting` starts one, `debate` plays its rounds; each seat's turn is an ordinary turn, in which the stage `stages.Mode` shows the seat what
its mode (`modes`) shows it and asks for a typed answer (`answers`). `measures` says what a round came to: pure functions over rounds of
answers. `consensus` asks a judge how far they agree. `report` is what commands, API and console show.
"""
