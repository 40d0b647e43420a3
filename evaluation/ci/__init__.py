"""A verdict that a build can trust (`manage.py evaluate`).

`measure` judges agents and compares them with a baseline (`results`), `findings` says what is wrong with what `limits` allow, `verdict`
decides, and `report` is the value that `terminal`, `markdown` and `junit` draw and JSON holds. `files` measures without a database.
"""
