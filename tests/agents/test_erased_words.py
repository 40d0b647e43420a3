"""What is left of a text, or of a JSON value, that is blanked."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from agents.erasure import ERASED, blanked

LABELS = {"Marla": "erased-1", "erased-1": "erased-1"}


def test_how_an_exchange_is_built_and_its_numbers_stay() -> None:
    exchange = {
        "role": "user",
        "blocks": [{"type": "text", "text": "Hi", "cache": True}],
        "persona_version": 3,
        "none": None,
        "empty": "",
    }

    assert blanked(exchange) == exchange | {"blocks": [{"type": "text", "text": ERASED, "cache": True}]}


def test_a_name_alone_becomes_the_label_and_kept_keys_keep_other_values() -> None:
    voices = {"voices": {"Marla": ["Hi"]}, "speakers": [{"speaker": "ada", "taken_for": "Marla"}]}

    left = blanked(voices, keep={"speaker", "taken_for"}, labels=LABELS)

    assert left == {"voices": {"erased-1": [ERASED]}, "speakers": [{"speaker": "ada", "taken_for": "erased-1"}]}


JSON = st.recursive(
    st.none() | st.integers() | st.text("abc", min_size=1).map("said {}".format),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["text", "items", "n"]), inner),
)


@given(JSON)
def test_no_text_is_left_and_a_second_time_changes_nothing(value: object) -> None:
    left = blanked(value, labels=LABELS)

    assert "said" not in json.dumps(left)
    assert blanked(left, labels=LABELS) == left
