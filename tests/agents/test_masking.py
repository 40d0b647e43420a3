"""Names taken out of a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.text.masking import MASK, NameMask


@pytest.mark.parametrize(
    ("names", "text", "masked"),
    [
        (["Chloe Turner"], "Chloe said so. TURNER too, chloe turner!", "□ said so. □ too, □ □!"),
        (["Chloe"], "Chloe's idea, the two Chloes, chloe’s", "□'s idea, the two □, □’s"),
        (["Ann"], "Annex, plan, Hannah and Ann", "Annex, plan, Hannah and □"),
        (["ann-lee", "Ann Lee"], "ask ann-lee or Lee", "ask □-□ or □"),
        (["ann_lee"], "ann_lee and lee", "□_□ and □"),
        (["A", "B. Smith"], "A plan B for Smith", "A plan B for □"),
        (["José"], "Jose\u0301 and JOSÉ", "□ and □"),
        (["Иван Петров"], "Спроси Иван, не Петров", "Спроси □, не □"),
        ([], "nobody to mask, not even @michael.scott and <@U123>!", "nobody to mask, not even □ and <□>!"),
        (["x"], "a@example.org", "a□"),
    ],
)
def test_every_form_of_a_name_is_masked_and_nothing_else(names: list[str], text: str, masked: str) -> None:
    assert NameMask(names)(text) == masked


@pytest.mark.parametrize(
    ("names", "text", "masked"),
    [
        (["田中太郎"], "田中さんと太郎が来た。田中太郎", "□さんと□が来た。□"),
        (["王小明"], "小明說王小明不在", "□說□不在"),
        (["김민수"], "김민수가 왔다", "□가 왔다"),
        (["أحمد"], "قال لأحمد وأحمد هنا", "قال ل□ و□ هنا"),
        (["さくら"], "さくらちゃん、おはよう", "□ちゃん、おはよう"),
    ],
)
def test_names_with_nothing_around_them_are_masked_wherever_they_stand(
    names: list[str], text: str, masked: str
) -> None:
    assert NameMask(names)(text) == masked


@given(st.text(max_size=60), st.lists(st.text(max_size=10), max_size=4))
def test_masking_twice_is_masking_once(text: str, names: list[str]) -> None:
    mask = NameMask(names)

    assert mask(mask(text)) == mask(text)


@given(st.text(alphabet="abc XY.,!", max_size=40))
def test_a_text_without_names_stays_as_it_is(text: str) -> None:
    assert NameMask(["Michael Scott"])(text) == text


def test_the_mask_is_no_letter() -> None:
    assert not MASK.isalnum()
