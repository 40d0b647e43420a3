"""Patterns of operators, teams and files: what they match, what they cannot say, and that none of them stops the process."""

from __future__ import annotations

import threading
import time

import pytest

from agents.text.patterns import LONGEST, TIMED_OUT, Undecided, find, find_all, one_message, phrase_pattern

CYRILLIC = r"/([\u0430-\u044f]+[\u0430-\u044f]+)*\Z!/"
SLOW = {
    CYRILLIC: "д" * 5_000,
    "/(?:a|aa)+$/": "a" * 20_000 + "!",
    "/(a+)+$/": "a" * 20_000 + "!",
    r"/\s+$/": " " * 19_000 + "x",
    r"/(\w+\s?)+[!?]\1$/": "ab " * 5_000 + "!",
    "/(?:x+x+)+y/": "x" * 20_000,
}


@pytest.mark.parametrize("pattern", SLOW)
def test_a_pattern_ends_whatever_the_text_says(pattern: str) -> None:
    begun = time.perf_counter()
    found, undecided = find_all([pattern], SLOW[pattern])

    assert not found
    assert [str(problem) for problem in undecided.values()] in ([], [f"{TIMED_OUT}{pattern}"])
    assert time.perf_counter() - begun < 5  # 0.1 s of processor time; the machine may be busy


def test_a_pattern_that_takes_too_long_is_named() -> None:
    with pytest.raises(Undecided, match="pattern timed out: "):
        find("/(?:a|aa)+$/", SLOW["/(?:a|aa)+$/"])


def test_other_threads_go_on_while_a_pattern_runs() -> None:
    running, steps = threading.Event(), 0

    def search() -> None:
        for _ in range(3):
            with pytest.raises(Undecided):
                find("/(?:a|aa)+$/", SLOW["/(?:a|aa)+$/"])
        running.set()

    searching = threading.Thread(target=search)
    searching.start()
    while not running.wait(0.001):
        steps += 1
    searching.join()

    assert steps > 10  # one that held the interpreter would leave three at most


def test_the_patterns_of_one_message_share_their_time_and_ordinary_ones_still_run() -> None:
    text = "a" * 15_000 + "! thanks"
    slow = [f"/(?:a|aa){{{n},}}$/" for n in range(1, 41)]
    begun = time.process_time()
    with one_message():
        found, undecided = find_all([*slow, "/thanks/"], text)

    assert list(found) == ["/thanks/"]
    assert len(undecided) == 40
    assert time.process_time() - begun < 3  # 1 s, then 0.01 s each; alone they take 4 s


def test_the_patterns_of_one_message_end_however_many_they_are() -> None:
    slow = [f"/(?:a|aa){{{n},}}$/" for n in range(1, 601)]
    begun = time.process_time()
    with one_message():
        found, undecided = find_all(slow, "a" * 15_000 + "!")

    assert (len(found), len(undecided)) == (0, 600)
    assert time.process_time() - begun < 5  # with 0.01 s for each of them it would be 7 s


@pytest.mark.parametrize("phrase", ["long " * 300, "/" + "a?" * 2_400 + "a" * 2_400 + "/", "/(?:foo){e<=5}/"])
def test_what_takes_long_to_compile_or_means_something_else_is_refused(phrase: str) -> None:
    with pytest.raises(ValueError, match=r"allowed: 1,000|for the brace in"):
        phrase_pattern(phrase)


@pytest.mark.parametrize(
    ("pattern", "tail", "found"),
    [
        ("/x$/", "x", None),
        (r"/x\Z/", "x", None),
        (r"/x\b/", "xy", None),
        ("/x(?!y)/", "xy", None),
        ("/x(?=y)/", "xy", None),  # the first 20,000 do not decide: unscored, and not "nothing matches"
        (r"/x(?s:.*)\Z/", "xy", True),
        ("/(?m)x$/", "x\ny", True),
        ("/x(?!y)/", "xz", True),
        (r"/x\b/", "x y", True),
        ("/x/", "x", True),
        ("/z/", "yyyy", None),
        ("z", "yyyy z", True),  # a phrase is looked for in all of it
        ("q", "yyyy z", False),
    ],
)
def test_the_cut_is_no_end_of_the_text(pattern: str, tail: str, found: bool | None) -> None:
    """The tail's first character is the last one that a pattern is shown; the text goes on after the tail."""
    text = "-" * (LONGEST - 1) + tail + "-" * 50 * (not tail.endswith("z"))
    text += "y" if len(text) <= LONGEST else ""
    if found is None:
        with pytest.raises(Undecided, match=f"the first 20,000 of {len(text):,} characters do not decide"):
            find(pattern, text)
    else:
        assert bool(find(pattern, text)) is found


def test_a_text_of_exactly_what_is_shown_has_an_end() -> None:
    assert find("/x$/", "-" * (LONGEST - 1) + "x")
    assert not find("/y/", "-" * LONGEST)


@pytest.mark.parametrize(
    "pattern",
    [
        "/a{99999999999}/",
        "/" + "(" * 450 + ")" * 449 + "/",
        "/(/",
        "/[z-a]/",
    ],
    ids=["count", "nested", "open", "range"],
)
def test_what_cannot_be_compiled_is_a_value_error_like_any_other(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not a valid regular expression"):
        phrase_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "/(?:(?:a{1000}){1000}){1000}/",
        "/a{6000}/",
        "/" + "(?:" * 60 + "a+" + ")+" * 60 + "/",
        "/(?:ab|[cd]{9}){2000,}/",
    ],
    ids=["copies", "one", "nested", "choice"],
)
def test_a_pattern_that_fills_the_memory_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"is too large: .* allowed: 1,000"):
        phrase_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"/^\s*\d{1,3}[.)]\s/", " 12. Tea"),
        (r"/\b(?:[a-z]+ing )+on\b/", "Carrying ON"),
        ("/.{0,1000}end/", "the end"),
        (r"/(\S+\s+){3,11}/", "one two three four"),
        (r"/straße/", "STRAßE"),
        (r"/(?<=\bno )(?P<w>\w+), (?P=w)/", "no way, way"),
    ],
)
def test_ordinary_patterns_are_taken(pattern: str, text: str) -> None:
    assert find(pattern, text)
