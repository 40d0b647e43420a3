"""Proposition drafting: claims and rules proposed from a persona's own words, and a person who accepts or rejects them.

`service` asks, `validation` checks what was proposed, `writing` adds it to a file, `edits` and `decisions` change the file when
somebody decides, `trying` shows what a proposition would score.
"""
