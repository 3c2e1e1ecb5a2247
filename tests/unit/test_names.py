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
    """A newcomer guesses names by the words of Kubernetes."""
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
def test_retired_words_are_found_in_all_kinds_of_definitions(source: str, word: str) -> None:
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


# Reasons, labels and annotations have one home, so that the reference lists all of them with their meaning.

API = ROOT / "src/haulout/api"
REASON = re.compile(r"[A-Z][A-Za-z]{2,}")
REASON_CALLS = {"NoticeEvent": 0, "PendingEvent": 0, "Readiness": 1, "PreflightFailure": 0, "with_status_event": 1}
EVENT_TUPLES = {"_Event": 1, "_PodEvent": 1}
KEY = re.compile(r"([a-z]+\.)?haulout\.dev/[a-z-]+")


def _outside_of_f_strings(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of an expression; an f-string is a text, or checked by the enum that is called with it."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.JoinedStr):
            yield from _outside_of_f_strings(child)


def literal_reasons(path: str, source: str) -> list[str]:
    """Return where a file gives the reason of a condition or Event as a literal."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        values: list[ast.expr] = [
            keyword.value for keyword in node.keywords if keyword.arg in ("reason", "event_reason")
        ]
        name = ast.unparse(node.func).rsplit(".", 1)[-1]
        at = (REASON_CALLS | EVENT_TUPLES).get(name)
        values += node.args[at : at + 1] if at is not None else []
        found += [
            f"{path}:{part.lineno}: {part.value!r}: use a member of haulout.api.reasons"
            for value in values
            for part in _outside_of_f_strings(value)
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and REASON.fullmatch(part.value)
        ]
    return found


def literal_keys(path: str, source: str) -> list[str]:
    """Return where a file has a label or annotation of ours as a literal."""
    return [
        f"{path}:{node.lineno}: {node.value!r}: use haulout.api.annotations"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and KEY.fullmatch(node.value)
    ]


def _product_sources() -> dict[str, str]:
    paths = (path for path in sorted((ROOT / "src/haulout").rglob("*.py")) if not path.is_relative_to(API))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


# `reason` of a notice is a word of the cloud.
REASONS_OF_CLOUDS = "src/haulout/providers/"


def test_reasons_have_one_home() -> None:
    files = {path: source for path, source in _product_sources().items() if not path.startswith(REASONS_OF_CLOUDS)}
    assert [problem for path, source in files.items() for problem in literal_reasons(path, source)] == []


def test_labels_and_annotations_have_one_home() -> None:
    assert [problem for path, source in _product_sources().items() for problem in literal_keys(path, source)] == []


@pytest.mark.parametrize(
    "source",
    [
        'events.event(node, reason="NodeLost", note="", action="Drain")',
        'Decision(reason="NodeLost" if x else y)',
        'NoticeEvent("NodeLost", text)',
        '_Event("Normal", "NodeLost", note, "Drain")',
    ],
)
def test_a_literal_reason_is_found(source: str) -> None:
    (problem,) = literal_reasons("a.py", source)
    assert "'NodeLost'" in problem


def test_a_literal_annotation_is_found_and_a_text_with_one_is_not() -> None:
    assert len(literal_keys("a.py", 'X = "aws.haulout.dev/some-thing"\nY = "see haulout.dev/hold of the node"')) == 1
