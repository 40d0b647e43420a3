"""The paper's own figures, shown beside ours."""

from __future__ import annotations

from evaluation.experiments.published import figures


def test_the_papers_own_table_has_nineteen_rows() -> None:
    assert sum(map(len, figures().values())) == 19
