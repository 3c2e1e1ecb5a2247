"""Makes the Helm chart."""
