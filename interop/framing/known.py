"""Rows that fail, and why they are allowed to for now. No leak stays here."""

WHY = {}
KNOWN = {name: why for why, names in WHY.items() for name in names.split()}
