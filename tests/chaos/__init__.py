"""Faults on a real control plane, and a judge that never asks the operator: `make chaos`.

A round starts an etcd, a kube-apiserver and two replicas of the operator, and people who order maintenances. It injects
one fault of one class at an instant that its seed decides, heals it, and waits until everything is back. Then the judge
checks the recording of the round: the audit log of the API server and the watches of an observer, and nothing else.

    suite         rounds of all classes, several at a time
    rounds        one round, from the start of the control plane to its verdict
    faults        the fault classes, which act on a `world`
    workload      nodes, pods, and the people who order maintenances
    replicas      the operator's processes (`patched_operator`), each behind a proxy that can break its connection
    proxy         an HTTP proxy with faults
    observer      the watches of a round
    recording     audit log and watches as values
    judge         the invariants, as pure functions over a recording
    report        the table in docs/operations/reliability.md, and what to replay
    api           the client of people and observer, which shares no code with the operator's

docs/operations/reliability.md explains it to users.
"""
