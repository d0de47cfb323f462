"""Text of messages and parameters: similar names, counts, durations, sizes of memory."""

from __future__ import annotations

import difflib
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral
from typing import Any

MAX_NAMES = 5  # number of columns that a message names

# ---- Suggestions in errors: known names that are similar to an unknown one -----------------------


def did_you_mean(name: object, known_names: Iterable[object], n: int = 3) -> str:
    """Suggest up to ``n`` known names that are similar to a name; return "" if there are none.

    >>> did_you_mean("medv", ["MEDV", "CRIM", "MEDIAN"])
    "did you mean 'MEDV' or 'MEDIAN'?"
    >>> did_you_mean("x", ["MEDV"])
    ''
    """
    texts: dict[str, list[str]] = {}
    for candidate in known_names:
        texts.setdefault(str(candidate).casefold(), []).append(repr(candidate))
    close_texts = difflib.get_close_matches(str(name).casefold(), texts, n=n, cutoff=0.6)
    matches = [text for match in close_texts for text in texts[match]][:n]
    return f"did you mean {' or '.join(matches)}?" if matches else ""


def known_instead(name: object, known_names: Iterable[object], n: int = 8) -> str:
    """Suggest similar names as `did_you_mean`, or else list the first ``n`` known names.

    >>> known_instead("Pariss", ["Paris", "Rome"])
    "did you mean 'Paris'?"
    >>> known_instead("x", ["Paris", "Rome"])
    "there are 'Paris', 'Rome'"
    """
    known_names = list(known_names)
    verb = "is only" if len(known_names) == 1 else "are"
    return did_you_mean(name, known_names) or f"there {verb} {list_names(known_names, n)}"


def no_column(name: object, columns: Iterable[object]) -> str:
    """Write the error for a missing column, with suggestions.

    >>> no_column("Age", ["age", "sex"])
    "there is no column 'Age'; did you mean 'age'?"
    """
    return f"there is no column {name!r}; {known_instead(name, columns)}"


def as_names(names: Any) -> list[Any]:
    """List the names of a parameter that takes one name or several.

    >>> as_names("age"), as_names(["age", "sex"])
    (['age'], ['age', 'sex'])
    """
    return [names] if isinstance(names, str) or not isinstance(names, Iterable) else list(names)


def user_stacklevel() -> int:
    """Find the ``stacklevel`` of a warning that points to the line outside of the libraries.

    From Python 3.12 on, ``skip_file_prefixes`` does the same.
    """
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals["__name__"].partition(".")[0] in ("combutab", "sklearn"):
        frame, level = frame.f_back, level + 1
    return level


def counted(n: int, what: str) -> str:
    """Write a number with a noun whose plural ends in s.

    >>> counted(1, "real row"), counted(4000, "real row")
    ('1 real row', '4,000 real rows')
    """
    return f"{n:,} {what}{'s' * (n != 1)}"


def join_names(names: Iterable[object], n_shown: int | None = None) -> str:
    """Join names with commas and "and"; if there are many, count those after the first ``n_shown``.

    >>> join_names(["a"]), join_names("abc"), join_names("abcde", 2)
    ('a', 'a, b and c', 'a, b and 3 more')
    """
    texts = [one_line(name) for name in names]
    if n_shown is not None and len(texts) > n_shown + 1:
        texts[n_shown:] = [f"{len(texts) - n_shown} more"]
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def join_with_smallest_p(names: Iterable[object], pvalues: Iterable[float]) -> str:
    """Join the names of models that are not significantly different, with the smallest p-value.

    >>> join_with_smallest_p(["a", "b"], [0.4, 1.0]), join_with_smallest_p(["a"], [0.4])
    ('a and b (smallest p = 0.4)', 'a (p = 0.4)')
    """
    p = list(pvalues)
    return f"{join_names(names)} ({'smallest ' * (len(p) > 1)}p {p_relation(min(p))})"


def format_p(p: float) -> str:
    """Format a p-value for a table, below 0.05 if and only if it is.

    >>> format_p(0.0312), format_p(1.0), format_p(3e-7)
    ('0.031', '1', '< 0.0001')
    >>> format_p(0.04996), format_p(0.05), format_p(0.0502)
    ('0.04996', '0.05', '0.05')
    """
    if p < 1e-4:
        return "< 0.0001"
    digits = 2
    while p < 0.05 <= float(f"{p:.{digits}g}"):
        digits += 1
    return f"{p:.{digits}g}"


def p_relation(p: float) -> str:
    """Format a p-value with its relation, for a sentence.

    >>> p_relation(0.0312), p_relation(3e-7)
    ('= 0.031', '< 0.0001')
    """
    return f"= {format_p(p)}" if p >= 1e-4 else format_p(p)


def one_line(error: object) -> str:
    """Write the message of an error on one line.

    >>> one_line(ValueError("too\\n  long"))
    'too long'
    """
    return " ".join(str(error).split())


def align_columns(columns: Mapping[str, Iterable[object]], number_format: str) -> str:
    """Write a table as text: the first column is aligned left, the others right.

    >>> print(align_columns({"name": ["a", "b c"], "size": [0.12345, 10.0]}, ".3g"))
    name   size
    a     0.123
    b c      10
    """
    cells = [
        [name, *(format(v, number_format) if isinstance(v, float) else one_line(v) for v in values)]
        for name, values in columns.items()
    ]
    widths = [max(map(len, column)) for column in cells]
    return "\n".join(
        "  ".join([first.ljust(widths[0]), *map(str.rjust, texts, widths[1:])]).rstrip()
        for first, *texts in zip(*cells, strict=True)
    )


# ---- Durations in numbers and text ---------------------------------------------------------------

_DURATIONS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def parse_seconds(value: float | str | None) -> float:
    """Convert a time limit to seconds; None is infinity.

    Raises ValueError if it is not a positive number, or text without a number and a unit.

    >>> parse_seconds("1.5min"), parse_seconds(10), parse_seconds(None)
    (90.0, 10.0, inf)
    """
    if value is None:
        return float("inf")
    if not isinstance(value, str):
        return float(value)
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(s|min|h)\s*", value)
    if match is None or not float(match[1]):
        raise ValueError(
            f"max_time must be a number of seconds or text such as '90s', '2min' or '1h', got "
            f"{value!r}"
        )
    return float(match[1]) * _DURATIONS[match[2]]


def in_words(seconds: float) -> str:
    """Write a duration in its largest unit: tens of seconds, minutes or hours.

    >>> in_words(44), in_words(100), in_words(8000)
    ('40 seconds', '2 minutes', '2 hours')
    """
    for unit, size in (("hour", 3600), ("minute", 60)):
        if seconds >= 1.5 * size:
            return counted(round(seconds / size), unit)
    return counted(10 * max(1, round(seconds / 10)), "second")


# ---- Sizes of memory in bytes and text, and memory limits ----------------------------------------

_SIZES = {"": 1, **{p: 1000 ** (i + 1) for i, p in enumerate("kmgt")}}
_SIZES |= {f"{p}i": 1024 ** (i + 1) for i, p in enumerate("kmgt")}
RESERVE = 32 << 20  # bytes that allocators reserve
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?|)b\s*", re.IGNORECASE)


def parse_bytes(limit: Any) -> int:
    """Convert a number of bytes, or text such as "500MB" or "1.5 GiB", to bytes.

    >>> parse_bytes("500MB"), parse_bytes("1.5 GiB"), parse_bytes(4096)
    (500000000, 1610612736, 4096)
    """
    if isinstance(limit, str):
        match = _PATTERN.fullmatch(limit)
        if match is not None:
            return int(float(match[1]) * _SIZES[match[2].lower()])
    elif isinstance(limit, Integral) and not isinstance(limit, bool) and int(limit) > 0:
        return int(limit)
    raise ValueError(
        "memory_limit must be a positive number of bytes or text such as '500MB', '2GB' or "
        f"'1.5GiB', got {limit!r}"
    )


def check_limit(limit: int, needed: int, what: str, instead: str) -> None:
    """Raise ValueError with the smallest sufficient limit if ``memory_limit`` is too small.

    >>> check_limit(10**6, 2 * 10**6, "100 rows", "use fewer columns")
    Traceback (most recent call last):
        ...
    ValueError: memory_limit of 1000000 bytes is too small for 100 rows: at least 2000000 bytes \
(2MB) are needed; raise it, or use fewer columns
    """
    if needed > limit:
        raise ValueError(
            f"memory_limit of {limit} bytes is too small for {what}: at least {needed} bytes "
            f"({-(-needed // 10**6)}MB) are needed; raise it, or {instead}"
        )


def describe_generator(
    kind: str, version: str, params: Mapping[str, Any], fitted: Mapping[str, Any]
) -> dict[str, str]:
    """Describe a generator in words, and whether its fit is differentially private.

    >>> describe_generator("TVAE", "0.1.0", {"epochs": 9}, {})
    {'Generator': 'TVAE of combutab 0.1.0', 'Differential privacy': 'not guaranteed', 'epochs': '9'}
    """
    guarantee = "not guaranteed"
    if "epsilon_" in fitted:  # the parameter epsilon may have been changed after the fit
        guarantee = f"guaranteed, epsilon={fitted['epsilon_']:g}, delta={fitted['delta_']:g}"
    facts = {"Generator": f"{kind} of combutab {version}", "Differential privacy": guarantee}
    return facts | {str(name): str(value) for name, value in params.items()}


def describe_guarantee(epsilon: float, delta: float, unit: str) -> str:
    """Describe the guarantee of (epsilon, delta) in words.

    >>> describe_guarantee(1.0, 1e-6, "row")[:75]
    'The rows are (1, 1e-06)-differentially private: an attacker who knows all o'
    """
    certainty = 100 / (1 + math.exp(-epsilon))
    return (
        f"The rows are ({epsilon:g}, {delta:g})-differentially private: an attacker who knows all "
        f"other rows can increase the certainty of a guess about one {unit} from 50 % to at most "
        f"{certainty:.0f} %, except with a probability of {delta:g}. Budgets add up: each release "
        "of the same table adds its own."
    )


def list_names(names: Iterable[Any], n: int = MAX_NAMES, write: Callable[[Any], str] = repr) -> str:
    """List the first n column names or other values, and count the rest.

    >>> list_names(["a", "b"]), list_names("abcdefg"), list_names([1, 2, 3], 2)
    ("'a', 'b'", "'a', 'b', 'c', 'd', 'e' and 2 more", '1, 2 and 1 more')
    """
    names = list(names)
    remainder = f" and {len(names) - n:,} more" if len(names) > n else ""
    return f"{', '.join(map(write, names[:n]))}{remainder}"
