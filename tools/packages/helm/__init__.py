"""Generates the Helm chart from the manifests of the operator.

- `settings` declares the values; `values` writes them as values.yaml, JSON schema and README.
- `operator`, `roles`, `network` and `agent` are the templates; `permissions` decides what each feature adds to a role.
- `gotemplate` writes objects as YAML with template expressions; `chart` lists all files.
"""
