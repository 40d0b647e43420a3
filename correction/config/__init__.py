"""The settings of correction, per agent.

`fields` says what can be set and reads values, `resolve` finds what is in effect, `configure` changes it.
"""
