"""Names in the words of Kubernetes and its tools: what a program can check. CONTRIBUTING has the vocabulary."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src/haulout", "sandbox/src/haulout_sandbox", "tools", "tests/support", "benchmarks")
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

# Words that only this project used, and what Kubernetes, client-go, Prometheus or HTTP call the same.
RETIRED = {
    "away": "unavailable",
    "begun": "started",
    "crowded": "exhausted",
    "deed": "action",
    "deeds": "actions",
    "desk": "session, writer",
    "doorkeeper": "middleware",
    "facing": "dashboard",
    "glimpse": "snapshot",
    "hindrance": "blocker",
    "inwords": "description",
    "keysmith": "certificate generator",
    "lately": "recent",
    "looker": "subscriber",
    "mailroom": "notifier",
    "minded": "matched",
    "openings": "windows, watches",
    "posting": "delivery",
    "promises": "recent admissions",
    "restlessness": "rate limiter",
    "said": "message",
    "scenery": "view",
    "sight": "view, informers",
    "sights": "views",
    "standing": "status",
    "standings": "statuses",
    "struck": "redacted",
    "surroundings": "informers",
    "tallies": "metrics",
    "teller": "event recorder",
    "tells": "records",
    "told": "recorded, notified",
    "traveller": "pod to evict",
    "verdict": "result, decision",
    "whoever": "the caller's role",
    "wish": "request",
    "wishes": "requests",
}

# A module is a thing: these are nouns of the field, although they end in -ing.
NOUNS_IN_ING = {
    "autoscaling": "the AWS service",
    "binding": "the subresource of pods",
    "scheduling": "what kube-scheduler does",
    "streaming": "the OCI service",
}


def _modules() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (path for path in sorted((ROOT / folder).rglob("*.py")) if path.stem != "__init__")


def _defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Assign() | ast.AnnAssign():
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        yield node.lineno, target.id
                    elif isinstance(target, ast.Attribute):
                        yield node.lineno, target.attr


def retired_words(path: str, source: str) -> list[str]:
    """Return where a file defines a name with a retired word, and what to say instead."""
    names = [(1, Path(path).stem), *_defined_names(ast.parse(source))]
    return [
        f"{path}:{line}: {name}: not {word!r}, but {RETIRED[word]}"
        for line, name in names
        for word in sorted({part.lower() for part in WORD.findall(name)} & RETIRED.keys())
    ]


def test_no_name_has_a_retired_word() -> None:
    """A stranger guesses names by the words of Kubernetes, not by ours."""
    files = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in _modules()}
    assert [problem for path, source in files.items() for problem in retired_words(path, source)] == []


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("def told(): ...", "told"),
        ("class NodeSight: ...", "sight"),
        ("def f(wishes): ...", "wishes"),
        ("x.said = 1", "said"),
    ],
)
def test_a_retired_word_is_found_wherever_a_name_is_defined(source: str, word: str) -> None:
    (problem,) = retired_words("a/b.py", source)
    assert repr(word) in problem


def test_modules_are_named_with_nouns() -> None:
    """`eviction`, not `evicting`: a module is a thing, and its functions are verbs."""
    gerunds = [
        str(path.relative_to(ROOT))
        for path in _modules()
        if (word := path.stem.rsplit("_", 1)[-1]).endswith("ing") and word not in NOUNS_IN_ING
    ]
    assert gerunds == []
