"""The routes of evaluation under ``/api/evaluations/``. Thin: they parse, call one service, present."""
