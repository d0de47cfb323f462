"""Mutation testing: small defects are put into the package, and the tests have to find them.

    python -m tests.mutations --coverage .coverage
    python -m tests.mutations --coverage .coverage --count 150 --seed 1 --package nn

Each mutation changes one place of one file: a comparison, an operator, a number, a condition, a
raised error. A place is drawn at random, each package as often as it has lines that tests run. The
tests that run the mutated line decide: the mutation is killed where one of them fails. Coverage
comes from a run of the suite that notes which test runs which line:

    pip install coverage
    coverage run --rcfile=tests/mutations.cfg -m pytest --ignore tests/trust/test_interrupts.py
    coverage combine --rcfile=tests/mutations.cfg

Coverage holds a lock where Ctrl-C may reach it, so the tests of interrupts would hang in it.
A seed gives the same mutations as long as the package stays the same, so that the rate before and
after a change of the tests alone can be compared.
"""

import argparse
import ast
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
SWAPPED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutation:
    """One place of one file, and the text that stands there instead."""

    path: str
    line: int
    before: str
    after: str
    source: str

    def __str__(self):
        return f"{self.path}:{self.line}  {self.before}  ->  {self.after}"


def changed(node):
    """A copy of an expression or statement with a defect, or None where there is none to make."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            return ast.Compare(node.left, [SWAPPED[type(op)]()], node.comparators)
        case ast.BinOp(op=op) if type(op) in SWAPPED:
            return ast.BinOp(node.left, SWAPPED[type(op)](), node.right)
        case ast.BoolOp(op=op):
            return ast.BoolOp(SWAPPED[type(op)](), node.values)
        case ast.UnaryOp(op=ast.Not()):
            return node.operand
        case ast.Constant(value=bool()):
            return ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            return ast.Constant(node.value + 1)
        case ast.IfExp():
            return ast.IfExp(node.test, node.orelse, node.body)
        case ast.Raise() | ast.Expr(value=ast.Call()):
            return ast.Pass()
        case ast.Break():
            return ast.Continue()
    return None


def places(tree):
    """Nodes inside functions that may be mutated: no annotations, defaults or decorators."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                for node in ast.walk(statement):
                    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AnnAssign):
                        break  # a function in it is walked on its own
                    if changed(node) is not None:
                        yield node


def mutations_of(path, covered):
    """All mutations of a file on lines that tests run."""
    source = path.read_text("utf-8")
    lines = source.splitlines(keepends=True)
    starts = np.cumsum([0, *(len(line.encode()) for line in lines)])
    data = source.encode()
    for node in places(ast.parse(source)):
        if node.lineno not in covered:
            continue
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before, after = data[start:end].decode(), ast.unparse(changed(node))
        if isinstance(node, ast.expr):
            after = f"({after})"
        text = (data[:start] + after.encode() + data[end:]).decode()
        yield Mutation(path.relative_to(ROOT).as_posix(), node.lineno, before, after, text)


def read_coverage(file):
    """Tests by file and line, ``{path: {line: {test, ...}}}``; a test is ``path::function``."""
    tests = {}
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as base:
        rows = base.execute(
            "select path, context, numbits from line_bits join file on file.id = file_id"
            " join context on context.id = context_id where context like 'tests.%'"
        ).fetchall()
    for path, context, bits in rows:
        module, _, function = context.rpartition(".")
        test_file = Path(*module.split(".")).with_suffix(".py")
        python = path.endswith(".py")  # and no template
        if not (python and function.startswith("test_") and (ROOT / test_file).exists()):
            continue
        of_file = tests.setdefault("combutab" + path.rpartition("combutab")[2], {})
        run = np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little"))
        for line in run.tolist():
            of_file.setdefault(line, set()).add(f"{test_file.as_posix()}::{function}")
    return tests


def draw(tests, count, seed, package=None):
    """Mutations at random, each file as often as it has lines that tests run."""
    rng = np.random.default_rng(seed)
    paths = sorted(p for p in tests if package in (None, *Path(p).parts) and (ROOT / p).exists())
    n_lines = np.array([len(tests[path]) for path in paths])
    drawn = {}
    for path in rng.choice(paths, 4 * count, p=n_lines / n_lines.sum()):
        found = list(mutations_of(ROOT / path, tests[path]))
        if found:
            mutation = found[rng.integers(len(found))]
            drawn.setdefault((mutation.path, mutation.line), mutation)
    return list(drawn.values())[:count]


def first_failure(source, path, tests, timeout):
    """The first of the tests that fails with this text in a file of the package, or None."""
    command = [
        sys.executable,
        *["-P", "-m", "pytest", "-q", "-x", "-rfE", "-n", "0", "-p", "no:cacheprovider"],
    ]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "combutab", Path(folder) / "combutab")
        (Path(folder) / path).write_text(source, "utf-8")
        chosen = Path(folder) / "tests.txt"
        chosen.write_text("\n".join(tests), "utf-8")
        environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
        try:
            ran = subprocess.run(
                [*command, f"@{chosen}"],
                cwd=ROOT,
                env=environment,
                timeout=timeout,
                capture_output=True,
                text=True,
            )
        except subprocess.TimeoutExpired:
            return "a test that does not end"
    if ran.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", ran.stdout, re.MULTILINE)
    return failed[1] if failed else "all, at once"


def verdict_of(mutation, tests, *, most, timeout):
    """Whether one of the tests finds the mutation, and fails because of it."""
    chosen = sorted(tests)[:: max(1, len(tests) // most)]
    failed = first_failure(mutation.source, mutation.path, chosen, timeout)
    if failed is None:
        return "SURVIVED"
    if "::" in failed:
        unchanged = (ROOT / mutation.path).read_text("utf-8")
        if first_failure(unchanged, mutation.path, [failed], timeout) is not None:
            return "fails without it"
    return "killed"


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--coverage", required=True, help="coverage's data, with test contexts")
    parser.add_argument("--count", type=int, default=120, help="mutations (default: 120)")
    parser.add_argument("--seed", type=int, default=0, help="which mutations (default: 0)")
    parser.add_argument("--package", help="mutate this package alone, e.g. nn")
    parser.add_argument("--most", type=int, default=200, help="tests per mutation (default: 200)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds per mutation")
    options = parser.parse_args(arguments)
    tests = read_coverage(options.coverage)
    drawn = draw(tests, options.count, options.seed, options.package)
    verdicts = []
    for mutation in drawn:
        by = tests[mutation.path][mutation.line]
        verdict = verdict_of(mutation, by, most=options.most, timeout=options.timeout)
        verdicts.append(verdict)
        print(f"{verdict:8}", mutation, flush=True)
    counted = len(verdicts) - verdicts.count("fails without it")
    print(f"{verdicts.count('killed')} of {counted} mutations are killed")


if __name__ == "__main__":
    main()
