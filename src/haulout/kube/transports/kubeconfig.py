"""Kubeconfig files: found where kubectl finds them, and merged as kubectl merges them.

The rules are those of client-go (tools/clientcmd/loader.go): an explicit file stands alone and must exist; otherwise
the files of $KUBECONFIG, of which some may be missing; otherwise ~/.kube/config. The first file to name a context,
cluster or user wins, entirely: two halves of one user are never mixed. The first file with a current-context sets it.

What an entry means is not decided here; its `Section` still knows the file, so relative paths stay right after merging.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from haulout.core.suggestions import closest_match
from haulout.errors import KubeconfigError
from haulout.kube.transports import kubeconfig_section
from haulout.kube.transports.kubeconfig_section import Section

_MAX_NAMES = 10


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """What one file says, or several together."""

    files: tuple[str, ...]
    current_context: str
    contexts: Mapping[str, Section]
    clusters: Mapping[str, Section]
    users: Mapping[str, Section]

    @property
    def source(self) -> str:
        """Name the files, for people."""
        return os.pathsep.join(self.files)

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing in it to connect with."""
        return not (self.current_context or self.contexts or self.clusters)

    def context(self, name: str) -> Section:
        """Return the context called `name`."""
        if name in self.contexts:
            return self.contexts[name]
        raise KubeconfigError(f"there is no context {name!r}{_suggestion(name, self.contexts)}", file=self.source)

    def cluster_of(self, context: Section) -> Section:
        """Return the cluster that `context` names."""
        name = context.text("cluster")
        if name in self.clusters:
            return self.clusters[name]
        problem = (
            f"there is no cluster {name!r}{_suggestion(name, self.clusters)}" if name else "expected a cluster's name"
        )
        raise context.error_at(problem, "cluster")

    def user_of(self, context: Section) -> Section | None:
        """Return the user that `context` names, or None for a context without one."""
        name = context.text("user")
        if not name or name in self.users:
            return self.users.get(name)
        raise context.error_at(f"there is no user {name!r}{_suggestion(name, self.users)}", "user")


def candidate_files(environ: Mapping[str, str]) -> list[Path]:
    """Return the files to look at when none is given explicitly."""
    listed = environ.get("KUBECONFIG", "")
    if listed:
        return [Path(name) for name in dict.fromkeys(listed.split(os.pathsep)) if name]
    home = environ.get("HOME")
    return [(Path(home) if home else Path.home()) / ".kube" / "config"]


def read(path: Path) -> Kubeconfig:
    """Read one file, which must exist."""
    file = str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"cannot read the kubeconfig: {error.strerror}", file=file) from None
    return parse(data, file=file)


def parse(data: bytes, *, file: str) -> Kubeconfig:
    """Return what `data` says, which is known to people as `file`."""
    section = kubeconfig_section.parse(data, file=file)
    if section is None:
        return Kubeconfig((file,), "", {}, {}, {})
    if (kind := section.text("kind")) not in {"", "Config"}:
        article = "an" if kind[0] in "AEIOU" else "a"
        raise section.error_at(f"expected a kubeconfig, found {article} {kind}", "kind")
    return Kubeconfig(
        files=(file,),
        current_context=section.text("current-context"),
        contexts=_named(section, "contexts", "context"),
        clusters=_named(section, "clusters", "cluster"),
        users=_named(section, "users", "user"),
    )


def read_existing(paths: Iterable[Path]) -> Kubeconfig:
    """Read those of `paths` that exist, as one."""
    return merge([read(path) for path in paths if _exists(path)])


def merge(parts: Sequence[Kubeconfig]) -> Kubeconfig:
    """Return all of `parts` as one; where they disagree, the earlier one is right."""
    return Kubeconfig(
        files=tuple(file for part in parts for file in part.files),
        current_context=next((part.current_context for part in parts if part.current_context), ""),
        contexts=_first_wins(part.contexts for part in parts),
        clusters=_first_wins(part.clusters for part in parts),
        users=_first_wins(part.users for part in parts),
    )


def format_names(names: Iterable[str]) -> str:
    """List `names` for people, shortened if they are many."""
    ordered = sorted(names)
    more = len(ordered) - _MAX_NAMES
    return ", ".join(ordered[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # reading it will tell what is wrong
    return True


def _named(section: Section, plural: str, singular: str) -> dict[str, Section]:
    found: dict[str, Section] = {}
    for entry in section.sections(plural):
        name = entry.text("name")
        if not name:
            raise entry.error_at("expected a name", "name")
        found.setdefault(name, entry.section(singular))
    return found


def _first_wins(parts: Iterable[Mapping[str, Section]]) -> dict[str, Section]:
    merged: dict[str, Section] = {}
    for part in parts:
        merged = {**part, **merged}
    return merged


def _suggestion(name: str, known: Mapping[str, Section]) -> str:
    if not known:
        return "; there are none at all, is the file cut off?"
    closest_name = closest_match(name, known)
    suggestion = f", did you mean {closest_name!r}?" if closest_name else ";"
    return f"{suggestion} there are: {format_names(known)}"
