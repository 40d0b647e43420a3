"""Formats of dates for people, by language: Django's own of English write "Nov. 2, 2026, 2:05 p.m."."""
