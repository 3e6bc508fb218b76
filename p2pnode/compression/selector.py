"""The contract of a selector: the rule that decides which coordinates of a residual an entry carries."""

from __future__ import annotations

MAX_HINT_BYTES = 256  # what a selector may publish along with an entry, for the selectors of other nodes
