"""The names of what tenants sent, in the state directory. One rule: nothing is imported for them, since every scheduler starts with it."""

from __future__ import annotations

# `sent/TENANT/contents`, `sent/TENANT/trees`.
SENT = "sent"
TREES = "trees"
