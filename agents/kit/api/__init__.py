"""What every route under ``/api/`` shares.

`requests` checks who asks and how often, `views` and `filters` refuse what a route does not know, `headers` makes requests safe to
repeat. `rows` and `pagination` make the answers, `problems` the errors; `schema` and `browsing` show the same to programs and to people.
"""
