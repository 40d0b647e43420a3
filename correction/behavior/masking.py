"""What in a message is not said but shown: quotations and code. They are data and count for no request, only that they are there."""

from __future__ import annotations

import re

QUOTE, CODE = "\ue000", "\ue001"  # of the private use area: no text holds them after masking but from here
LONGEST_SPAN = 2_000  # characters of a quotation within a line
LONGEST_READ = 4_000  # characters of a message, from its beginning and its end

_PRIVATE = re.compile("[\ue000-\ue0ff]")
_BLOCKS = re.compile(
    r"(?P<code>^[ \t]{0,3}(?P<fence>`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t]{0,3}(?P=fence)[`~]*[ \t]*$|\Z))"
    r"|(?P<lines>(?:^[ \t]{0,3}(?:>|&gt;)[^\n]*(?:\n|\Z))+)"
    r"|(?P<mark>\[quoted text, [\d,]+ characters?\])",
    re.MULTILINE | re.DOTALL,
)
_INLINE_CODE = re.compile(r"(`{1,3})[^`\n]{1,2000}?\1")
_PAIRS = (
    ("\u201c", "\u201d\u201c"),
    ("\u201e", "\u201c\u201d"),
    ("\u00ab", "\u00bb"),
    ("\u00bb", "\u00ab"),
    ("\u300c", "\u300d"),
    ("\u300e", "\u300f"),
)
_QUOTED = re.compile(
    "|".join(rf"{opening}[^{closing}{opening}]{{1,{LONGEST_SPAN}}}[{closing}]" for opening, closing in _PAIRS)
    + rf'|"[^"]{{1,{LONGEST_SPAN}}}"'
    + r"|(?<![\w'])['\u2018][^'\u2018\u2019\n]{1,300}(?:['\u2019]\w[^'\u2018\u2019\n]{0,300}){0,5}['\u2019](?!\w)"
)
_CODE_LINE = re.compile(
    r"""^[ \t]*(?:
        (?:def|class|function|func|fn|public|private|static|const|let|var|return)\b[^\n]*[({=;][^\n]*
        |(?:if|while|for|elif|else|except|try)\b[^\n]*[):][ \t]*$[^\n]*
        |(?:import[ ]\w|from[ ]\w+[ ]import[ ]|\#include)[^\n]*
        |(?:git|npm|pip|docker|kubectl|curl|sudo|cd|ls|echo|select|insert|update)[ ][^\n]*(?:[ ]--?\w|[;|"']|[ ]from[ ])[^\n]*
        |[\w.]{1,60}\([^\n]*\)[ \t]*;?[ \t]*$
        |[\w.\[\]]{1,60}[ ]?[-+*/]?=[ ]?[^\n]+
        |[{}\[\]][^\n]*[:,{}\]][^\n]*
        |</?\w+[^>\n]*>[^\n]*
        |\w*(?:Error|Exception)\b:[^\n]*|Traceback[^\n]*
        |//[^\n]*|/\*[^\n]*|\$[ ][^\n]*
        )""",
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)


def masked(text: str) -> str:
    """The message with `QUOTE` for each quotation and `CODE` for each stretch of code; its middle is left out where it is very long."""
    text = _PRIVATE.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n"))
    if (
        len(text) > 2 * LONGEST_READ
    ):  # blocks are looked for in more than is read in the end, so that their ends are found
        text = text[: LONGEST_READ * 4] + ("\n" + text[-LONGEST_READ * 4 :] if len(text) > LONGEST_READ * 4 else "")
    text = _BLOCKS.sub(lambda found: f"\n{CODE if found['code'] else QUOTE}\n", text)
    text = _INLINE_CODE.sub(f" {CODE} ", text)
    text = _QUOTED.sub(f" {QUOTE} ", text)
    text = _CODE_LINE.sub(f" {CODE} ", text)
    if len(text) > LONGEST_READ:
        half = LONGEST_READ // 2
        text = f"{text[:half]}\n{text[-half:]}"
    return text
