"""A verdict that a build can trust (`manage.py evaluate`).

`options` reads what is measured and what it is held to, `measure` judges and compares with a baseline, `verdict` decides, `report` puts it
all into one value, and `render` writes that for a terminal, a pull request and a build server. `files` measures without a database.
"""
