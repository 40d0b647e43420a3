"""What the console says about itself: a help page per model, a glossary, and the documents of ``docs/``, as data of each app.

An app's folder ``help/`` holds ``<model>.md`` (its help page), ``glossary.yaml`` (terms) and ``fields.yaml`` (help texts of fields that
say nothing themselves: of models of other packages, and where a text in the model would ask for a migration).
"""
