"""Dialects of Go and of the SAP maintenance-controller: templates, expressions, YAML, quoting, flags."""
