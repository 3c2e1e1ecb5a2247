"""What a person can type to move a node on: each command as it is, to be pasted into a shell. Pure.

Names, labels and values come from a cluster, and may be anything: whatever a shell could take for something else is
quoted.
"""

import shlex
from collections.abc import Iterator

import msgspec

from haulout.drain.blockers import Kind
from haulout.drain.cordon import BACKUP, MARK, BadMark, cordon_of
from haulout.kinds import hold
from haulout.kube.objects import RawObject
from haulout.maintenance.resource import NODE_MAINTENANCES
from haulout.notices.calling_off import is_by_a_source
from haulout.profiles import approval
from haulout.profiles.approval import Offer
from haulout.profiles.model import Configuration
from haulout.profiles.plugin import DATA_ANNOTATION
from haulout.web.api.shapes import Act, ActKind, Blocker, Command, Drain, NodeState
from haulout.web.api.standing import orphans
from haulout.web.api.subject import Subject

_MOST = 12


def commands_for(
    subject: Subject, *, state: NodeState, drains: tuple[Drain, ...], configuration: Configuration | None
) -> tuple[Command, ...]:
    """Return what would move a node on, the most useful first."""
    found = (
        *_about_data(subject),
        *_about_cordon(subject),
        *_about_a_hold(subject),
        *(command for drain in drains for it in drain.blockers for command in _about_blocker(it)),
        *_about_profiles(subject, configuration),
        *_about_orders(subject),
        *_about_notices(subject),
        *(_before_it_begins(subject) if state in (NodeState.IDLE, NodeState.PLANNED) else ()),
    )
    return tuple({it.command: it for it in reversed(found)}.values())[::-1][:_MOST]


def _about_data(subject: Subject) -> Iterator[Command]:
    if subject.data_problem:
        yield Command(
            title="Forget where its profiles stand",
            command=f"kubectl annotate node {_q(subject.node.name)} {DATA_ANNOTATION}-",
            why="what the annotation says cannot be read; without it all profiles begin as operational",
        )


def _about_cordon(subject: Subject) -> Iterator[Command]:
    node, name = subject.node, _q(subject.node.name)
    try:
        mark = cordon_of(node)
    except BadMark:
        yield Command(
            title="Take the broken mark off, and uncordon",
            command=f"kubectl annotate node {name} {MARK}- {BACKUP}- && kubectl uncordon {name}",
            why="only once its maintenance is over: nobody can tell any more who cordoned it",
        )
        return
    if mark is None and node.spec.unschedulable:
        yield Command(
            title="Give it back", command=f"kubectl uncordon {name}", why="it was cordoned by hand, not by Haulout"
        )
    elif mark is not None and (gone := orphans(mark, subject)):
        yield Command(
            title="Clear away what was left on it",
            command=f"haulout uncordon {name}",
            why=f"it is kept cordoned for {', '.join(it.replace('/', ' ', 1) for it in gone)}, which is no more",
        )


# Pods that do not leave


def _about_blocker(blocker: Blocker) -> Iterator[Command]:
    namespace, _, pod = blocker.pod.rpartition("/")
    where = f"kubectl -n {_q(namespace)}"
    match blocker.kind:
        case Kind.BUDGET if blocker.object:
            budget = blocker.object.rpartition("/")[2]
            yield Command(
                title=f"Look at {blocker.object}",
                command=f"{where} describe pdb {_q(budget)}",
                why="; ".join(filter(None, (blocker.reason, blocker.advice))),
            )
            if blocker.workload:
                yield Command(title=f"Look at the pods of {blocker.workload}", command=f"{where} get pods -o wide")
        case Kind.POLICY:
            yield Command(title=f"Delete {blocker.pod}", command=f"{where} delete pod {_q(pod)}", why=blocker.reason)
        case Kind.KUBELET:
            yield Command(
                title=f"Delete {blocker.pod} with force",
                command=f"{where} delete pod {_q(pod)} --force --grace-period=0",
                why=f"{blocker.reason}; only once it is known that it does not run any more",
            )
        case Kind.VOLUME:
            yield Command(
                title=f"Look at {blocker.object}",
                command="kubectl get volumeattachments",
                why="; ".join(filter(None, (blocker.reason, blocker.advice))),
            )
        case Kind.PERMISSION:
            yield Command(title="See what Haulout may not do", command="haulout cluster-info", why=blocker.reason)
        case Kind.FINALIZER | Kind.WEBHOOK | Kind.API | Kind.SEVERAL_BUDGETS | Kind.RULE:
            yield Command(
                title=f"Look at {blocker.pod}",
                command=f"{where} get pod {_q(pod)} -o yaml",
                why="; ".join(filter(None, (blocker.reason, blocker.advice))),
            )


# Profiles


def _about_profiles(subject: Subject, configuration: Configuration | None) -> Iterator[Command]:
    """Yield what lets profiles go on, if it can be typed as a whole."""
    reports = () if subject.info is None else subject.info.reports
    offered = () if configuration is None else approval.offers(reports, configuration)
    for it in offered:
        if not it.waits_for or it.is_approval:
            yield _going_on(it, subject)


def _going_on(offer: Offer, subject: Subject) -> Command:
    only = offer.checks[0]
    is_one = len(offer.checks) == 1 and offer.wishes[0].value is not None
    return Command(
        title=f"Approve for profile {offer.profile}"
        if offer.waits_for
        else f"Let profile {offer.profile} go to {offer.target}",
        command=approval.command(subject.node, offer.wishes),
        why=f"it goes to {offer.target} when {' and '.join(filter(None, (offer.would, offer.waits_for)))}",
        act=Act(act=ActKind.APPROVE, node=subject.node.name, profile=offer.profile, check=only) if is_one else None,
    )


# Orders and notices


def _about_orders(subject: Subject) -> Iterator[Command]:
    for order in subject.orders:
        if not order.is_leaving:
            yield Command(
                title="End the maintenance, and give the node back",
                command=f"kubectl delete nodemaintenance {_q(order.name)}",
                act=Act(act=ActKind.CANCEL, node=subject.node.name, maintenance=order.name),
            )


def _about_notices(subject: Subject) -> Iterator[Command]:
    for notice in subject.notices:
        if not is_by_a_source(notice.spec):
            yield Command(
                title="Call the announced maintenance off",
                command=f"haulout notice cancel {_q(notice.name)}",
                act=Act(act=ActKind.CANCEL, node=subject.node.name, notice=notice.name),
            )


def _about_a_hold(subject: Subject) -> Iterator[Command]:
    if held := hold.told(subject.node, now=subject.now):
        name = subject.node.name
        yield Command(
            title="Let maintenance begin again",
            command=f"haulout release {_q(name)}",
            why=f"it is {held}",
            act=Act(act=ActKind.RELEASE, node=name),
        )


def _before_it_begins(subject: Subject) -> Iterator[Command]:
    if not subject.orders:
        yield from _starting(subject)
    if hold.hold_of(subject.node) is None:
        name = subject.node.name
        yield Command(
            title="Keep maintenance off it",
            command=f"haulout hold {_q(name)} --for 4h --reason 'by hand'",
            why="nothing begins on it until then; what a cloud announces comes nevertheless",
            act=Act(act=ActKind.HOLD, node=name),
        )


def _starting(subject: Subject) -> Iterator[Command]:
    name = subject.node.name
    yield Command(
        title="Take it out of service now",
        command=ordering(name, reason="by hand"),
        why="cordons and drains it, within the budget; deleting the NodeMaintenance gives it back",
        act=Act(act=ActKind.START, node=name),
    )


def ordering(node: str, *, reason: str) -> str:
    """Return the command that takes a node out of service."""
    return f"echo {_q(msgspec.json.encode(order(node, reason=reason)).decode())} | kubectl apply -f -"


def order(node: str, *, reason: str) -> RawObject:
    """Return the NodeMaintenance that takes a node out of service: the same for whoever asks for it again."""
    return {
        "apiVersion": NODE_MAINTENANCES.api_version,
        "kind": NODE_MAINTENANCES.kind,
        "metadata": {"name": node},
        "spec": {"nodeName": node, "reason": reason},
    }


_q = shlex.quote
