"""Packages of the operator from one source: a Helm chart, a kustomization, plain manifests and an OLM bundle.

    python -m tools.packages deploy          # or: make packages

The objects are those of `haulout.app.manifests.operator_manifests` and `haulout.app.manifests.workload`; the
permissions are those that controllers and plugins declare. The packages differ only in their format. The generated
files are committed, and a test checks that they are current. Only a few templates of the chart, which are more logic
than objects, are written by hand (`chart.HANDWRITTEN`).
"""
