"""How the operator is packaged: a Helm chart, a kustomization, plain manifests and a bundle for OLM, from one source.

    python -m tools.packages deploy          # or: make packages

The objects are those of `haulout.app.manifests.operator_manifests` and `haulout.app.manifests.workload`, the
permissions those that controllers and plugins declare. What differs between the packages is only how they are written
down. What this makes is committed, and a test says that it is what was made. By hand are only the few templates of the
chart that are logic more than objects (`chart.BY_HAND`).
"""
