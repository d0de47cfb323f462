"""What readers search for, and the page that explains it: entries that the search puts first."""

from __future__ import annotations

import re

WORDS = {
    "calibration": "guide/predict",
    "categorical features": "guide/predict",
    "conditional sampling": "guide/synthetic",
    "confidence interval": "guide/statistics",
    "differential privacy": "guide/privacy",
    "early stopping": "guide/tune",
    "ensemble": "guide/predict",
    "feature importance": "guide/explain",
    "foreign key": "guide/tables",
    "gpu": "gpu",
    "hyperparameter tuning": "guide/tune",
    "missing values": "guide/predict",
    "mlflow": "guide/recipes",
    "multi-table": "guide/tables",
    "onnx": "guide/recipes",
    "out of memory": "guide/scale",
    "partial dependence": "guide/explain",
    "prediction interval": "guide/predict",
    "privacy budget": "guide/privacy",
    "sequence": "guide/tables",
    "shap": "guide/explain",
    "synthetic data": "guide/synthetic",
}
"""Words, in lower case -> the page (its section whose title has most of the words)."""

HEADING = re.compile(r"^#{2,3} (.+)$", re.MULTILINE)
FENCED = re.compile(r"^(`{3,}|:{3,}).*?^\1 *$", re.DOTALL | re.MULTILINE)


def place(text: str, words: str) -> int:
    """Where an entry for these words stands in a page: above a section, or below the title."""
    inside = [match.span() for match in FENCED.finditer(text)]
    stems = [word.rstrip("s") for word in words.split()]

    def likeness(heading: re.Match[str]) -> int:
        return sum(stem in heading[1].lower() for stem in stems)

    headings = [
        match
        for match in HEADING.finditer(text)
        if not any(start <= match.start() < end for start, end in inside)
    ]
    best = max(headings, key=likeness, default=None)
    if best is not None and likeness(best):
        return best.start()
    title = re.search(r"^# .+\n", text, re.MULTILINE)
    return title.end() if title else 0


def mark(name: str, text: str) -> str:
    """Add the index entries of a page to its Markdown."""
    entries = [(place(text, words), words) for words, page in WORDS.items() if page == name]
    for at, words in sorted(entries, reverse=True):
        text = f"{text[:at]}\n```{{index}} ! {words}\n```\n\n{text[at:]}"
    return text
