"""Patterns of transactional ids, compared with Python's regular expressions."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.transactions.id_pattern import PATTERN_MAX, InvalidPattern, matcher

PATTERNS = [
    "",
    "a",
    "ab|cd|",
    "a*b+c?",
    "(ab)*",
    "(?:ab|c)+d",
    "a{2}",
    "a{2,}b",
    "a{0,3}",
    "(a|b){1,2}c",
    ".*",
    "a.c",
    "[abc]+",
    "[^abc]+",
    "[a-c0-2]*",
    "[]a]+",
    "[a-]+",
    r"[\d\-]+",
    r"\d+-\w+",
    r"\D\W\S\s?",
    r"a\.b\\",
    "^ab$",
    "a+?b*?",
    "(a*)*b",
    "((a|b)|(c|d))*",
    "(?i)^aB$",
    r"(?i)[A-C]+[^D]?\W*\-",
    "(?is)a.C|d",
    "(?s)a.b",
]
TEXTS = st.text(alphabet="abcdAD01-.\\_ ]\n", max_size=8)


@pytest.mark.parametrize("pattern", PATTERNS)
@given(text=TEXTS)
def test_a_text_matches_as_in_python(pattern: str, text: str) -> None:
    assert matcher(pattern)(text) is (re.fullmatch(pattern, text, re.ASCII) is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("orders-.*", "orders-writer-1", True),
        ("orders-.*", "my-orders-writer", False),
        (r"\Qa.b\E+", "a.b", True),
        (r"\Qa.b\E", "axb", False),
        (r"\Qa", "a", True),
        ("a++", "aaa", True),
        ("é+", "éé", True),
        ("a.", "a\n", False),
        (r"a\t", "a\t", True),
    ],
)
def test_a_whole_text_matches_as_in_java(pattern: str, text: str, matches: bool) -> None:
    assert matcher(pattern)(text) is matches


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "(a",
        "a)",
        "[a",
        "[",
        "*",
        "a|*",
        "a{",
        "a{x}",
        "a{3,2}",
        "a{1,99999}",
        "(((a{100}){100}){100})",
        "((((){1000}){1000}){1000})",
        "(?=a)b",
        "(?<n>a)",
        r"(a)\1",
        r"\p{L}",
        r"\b",
        "\\",
        "[b-a]",
        "[a[b]]",
        "[a&&b]",
        "a^b",
        "a$b",
        "(" * 60 + ")" * 60,
        "a" * (PATTERN_MAX + 1),
    ],
)
def test_other_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        matcher(pattern)


@given(pattern=st.text(alphabet="ab()[]{}*+?|.\\^$-,1d:Q", max_size=12))
def test_every_pattern_is_accepted_or_refused(pattern: str) -> None:
    try:
        matches = matcher(pattern)
    except InvalidPattern:
        return
    matches("ab1")


def test_a_pattern_that_is_slow_elsewhere_is_fast_here() -> None:
    """Python's `re` needs longer than anyone waits."""
    assert not matcher("(a*)*(a*)*b")("a" * 200)
    assert not matcher("(a|aa)+$")("a" * 200 + "b")
    matches = matcher("(x+x+)+y|[a-z]{50}.*")
    assert all(not matches("x" * 40 + letter) for letter in string.digits)
