"""All commands in the documentation, and how each is tested.

A `console` block is for a reader who follows the page from top to bottom. A test does the same, and needs to know the
environment of the page (`FOLLOWED_PAGES`). Every other command, in an `sh` block or an indented one, runs on its own
against a sandbox and must succeed. Commands that cannot run are in `NOT_RUN`, with the reason. So every new command is
run unless somebody states why not.

A synopsis, with options in brackets, is not run: its options must exist.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    it.relative_to(ROOT).as_posix() for it in (*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md")
)

_PROGRAMS = "haulout|kubectl|make|helm|docker|curl|aws|export|cd|python|pip|git|env|openssl"
_COMMAND = re.compile(rf"^(?:\$ )?((?:{_PROGRAMS})(?: |$).*)")
_FENCE = re.compile(r"^( *)```(\w*)")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_HEREDOC = re.compile(r"<<(\w+)")
_SYNOPSIS = re.compile(r"\[|\.\.\.|\bFILE\b|<[a-z ]+>")

# Pages that a test of their own follows.
FOLLOWED_PAGES = {
    "docs/how-to/drain-a-node.md": "tests/cluster/test_documented_walkthroughs.py",
    "docs/tutorials/hub.md": "tests/cluster/test_hub_docs.py",
    "docs/migrating/aws-node-termination-handler.md": "tests/cluster/test_migrating_from_nth.py",
    "docs/migrating/machine-maintenance-operator.md": "tests/cluster/test_migrating_from_mmo.py",
    "docs/migrating/maintenance-controller.md": "tests/cluster/test_migrating_from_smc.py",
    "docs/migrating/node-maintenance-operator.md": "tests/cluster/test_migrating_from_nmo.py",
    "docs/migrating/oci-node-maintenance-handler.md": "tests/cluster/test_migrating_from_onmh.py",
    "docs/migrating/runtime-extension-maintenance-controller.md": "tests/cluster/test_migrating_from_remc.py",
    "docs/operations/high-availability.md": "tests/cluster/test_documented_walkthroughs.py",
    "docs/operations/install.md": "tests/cluster/test_install_docs.py",
    "docs/operations/troubleshooting.md": "tests/cluster/test_documented_walkthroughs.py",
    "docs/operations/upgrading.md": "tests/cluster/test_documented_walkthroughs.py",
    "docs/tutorials/quickstart.md": "tests/cluster/test_documented_walkthroughs.py",
    "docs/reference/notice.md": "tests/cluster/test_notice_docs.py",
}

_NEEDS_A_CLOUD = "it needs an account of the cloud, or its command line"
_NEEDS_AN_ENGINE = "it needs a container engine"
_NEEDS_A_POD = "it needs a pod that runs a container"
_NEEDS_A_FORWARDED_PORT = "it needs a port that another command forwards"
_EXPECTED_FAILURE = "the page shows how it fails, and a unit test does"

# Commands that no test runs, by how they begin, or by page and how they begin.
NOT_RUN: Mapping[str, str] = {
    "docker ": _NEEDS_AN_ENGINE,
    "aws ": _NEEDS_A_CLOUD,
    "haulout oci send-event": _NEEDS_A_CLOUD,
    "kubectl -n haulout port-forward": _NEEDS_A_POD,
    "kubectl -n kube-system port-forward": _NEEDS_A_POD,
    "kubectl -n haulout logs": _NEEDS_A_POD,
    "kubectl -n haulout top pods": "it needs the metrics API",
    "curl localhost:8081": _NEEDS_A_FORWARDED_PORT,
    "curl 'localhost:8081": _NEEDS_A_FORWARDED_PORT,
    "haulout why n2 --from": _NEEDS_A_FORWARDED_PORT,
    "haulout cluster-info --grant | kubectl --context ADMIN": "it needs a second context",
    "README.md: helm install": "the page about installing is followed, and begins with it",
    "docs/reference/check.md: haulout check maintenance.yaml": _EXPECTED_FAILURE,
    "docs/reference/webhook.md: kubectl apply -f maintenance.yaml": _EXPECTED_FAILURE,
    "docs/operations/install.md: helm upgrade haulout "
    "deploy/helm/haulout -n haulout --set replica=3": _EXPECTED_FAILURE,
    "docs/operations/install.md: helm install haulout deploy/helm/haulout -n haulout --take": "test_helm.py has it",
    "docs/how-to/drain-a-node.md: haulout drain -l pool=general": "it would wait for a budget for a quarter of an hour",
    "docs/reference/eviction-requests.md: kubectl ": "it needs an API that is new; test_drains_by_request.py has it",
    "docs/reference/approve.md: haulout approve n1": "a profile has to wait for it: test_hold_commands.py",
    "docs/design/sandbox.md: ": "it needs the sources of Kubernetes",
    "docs/operations/reliability.md: ": "it takes minutes; tests/unit/chaos has its parts",
    "docs/reference/sandbox-scenarios.md: kubectl ": "test_run_with_kubectl.py has the scenario hub",
    "docs/reference/metal3.md: kubectl annotate baremetalhosts": "it needs Metal3; test_metal3.py has the annotation",
    "docs/operations/alerts.md: kubectl get machine": "it needs OpenShift; test_machine_maintenance.py has the kinds",
    "docs/operations/alerts.md: kubectl get clusters": "it needs Cluster API; test_hub_page.py has it",
    "docs/operations/alerts.md: kubectl get baremetalhosts": "it needs Metal3; test_metal3.py has it",
    "docs/reference/esx.md: haulout maintenance-controller": "it needs a vCenter; tests/behaviour/test_esx.py has one",
    "docs/reference/hub.md: haulout run --mode management": "it has no end: tests/cluster/test_hub.py runs it",
}


@dataclass(frozen=True, slots=True)
class DocumentedCommand:
    """A command of a page."""

    page: str
    line: int
    text: str
    is_followed: bool = False  # it is in a block that a reader follows

    @property
    def reason(self) -> str:
        """Return why no test runs it; empty if one does."""
        return next((why for start, why in NOT_RUN.items() if self.starts_with(start)), "")

    def starts_with(self, start: str) -> bool:
        """Return whether the command, or its page and it, begin so; a newline at the end requires an exact match."""
        return any(f"{text}\n".startswith(start) for text in (self.text, f"{self.page}: {self.text}"))

    @property
    def is_synopsis(self) -> bool:
        """Return whether this is the synopsis of a command."""
        return bool(_SYNOPSIS.search(_QUOTED.sub("", self.text.partition("<<")[0])))


def documented_commands(page: str, text: str) -> Iterator[DocumentedCommand]:
    """Yield all commands of a page."""
    for line, kind, block in _blocks(text.splitlines()):
        for offset, command in _commands(block, has_prompt=kind == "console"):
            yield DocumentedCommand(page, line + offset, command, kind == "console")


def all_documented_commands() -> list[DocumentedCommand]:
    """Return all commands of all pages."""
    return [
        command for page in PAGES for command in documented_commands(page, (ROOT / page).read_text(encoding="utf-8"))
    ]


def _blocks(lines: list[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the blocks of code of a page that may have commands: where, of what kind, their lines."""
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        end = at + 1
        if fence:
            while lines[end].strip() != "```":
                end += 1
            end += 1
            if fence[2] in {"console", "sh"}:
                yield at + 2, fence[2], [line.removeprefix(fence[1]) for line in lines[at + 1 : end - 1]]
        elif lines[at].startswith("    ") and not (at and lines[at - 1].strip()):
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            yield (
                at + 1,
                "",
                [line.strip() if line.strip().startswith("docker") else line[4:] for line in lines[at:end]],
            )
        at = end


def _commands(block: list[str], *, has_prompt: bool) -> Iterator[tuple[int, str]]:
    at = 0
    while at < len(block):
        start, line = at, block[at]
        at += 1
        found = _COMMAND.match(line)
        if not found or (has_prompt and not line.startswith("$ ")):
            continue
        text = found[1]
        while text.endswith("\\"):
            text, at = f"{text[:-1].rstrip()} {block[at].strip()}", at + 1
        heredoc = _HEREDOC.search(text)
        while heredoc and text.splitlines()[-1] != heredoc[1]:
            text, at = f"{text}\n{block[at]}", at + 1
        yield start, text if heredoc else re.sub(r"\s+# .*$", "", text)
