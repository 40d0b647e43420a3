"""A verdict that a build can trust (`manage.py evaluate`).

`measure` judges and compares with a baseline, `verdict` decides, and `render` writes the report for a terminal, a pull request and a build
server. `files` measures without a database.
"""
