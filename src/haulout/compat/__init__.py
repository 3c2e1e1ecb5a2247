"""Go dialects in the configuration of the SAP maintenance-controller: templates, expressions, YAML, quoting, flags."""
