"""Admission: validating webhooks."""
