"""`haulout gather`: what is collected, how secrets are redacted, and how it is packed."""
