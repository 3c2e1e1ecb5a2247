"""What others ask us over HTTP: the admission webhook with its certificates, and whether we are well."""
