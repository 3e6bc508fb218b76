"""The paths of a job: one option at each level, and which blocks each path is made of. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ...wire.errors import UsageError

MAX_LEVELS = MAX_OPTIONS = 8
MAX_PATHS = 64
ENDS = "ends"  # the block of embeddings, norms and output, which all paths share

Sharing = Literal["all", "options", "own"]  # one block for all paths, one for each option, or one for each path
SHARINGS: tuple[Sharing, ...] = ("all", "options", "own")


@dataclass(frozen=True)
class PathGrid:
    """Levels times options. Paths are numbered; the first level is the most significant digit."""

    levels: int
    options: int
    sharing: tuple[Sharing, ...]  # of each level

    @property
    def paths(self) -> int:
        return int(self.options**self.levels)

    def choices(self, path: int) -> tuple[int, ...]:
        """The option that a path takes at each level."""
        return tuple(path // self.options ** (self.levels - 1 - level) % self.options for level in range(self.levels))

    def name(self, path: int) -> str:
        """A path as people write it: its options with slashes between them."""
        return "/".join(map(str, self.choices(path)))

    def find(self, text: str) -> int:
        """The path of this name; UsageError when there is none."""
        for path in range(self.paths):
            if self.name(path) == text.strip():
                return path
        raise UsageError(f"there is no path {text[:60]!r}; paths go from {self.name(0)} to {self.name(self.paths - 1)}")

    def blocks(self, path: int) -> tuple[str, ...]:
        """The names of a path's blocks: the ends, then one for each level."""
        return (ENDS, *(self._block(level, path) for level in range(self.levels)))

    def _block(self, level: int, path: int) -> str:
        choices = self.choices(path)
        match self.sharing[level]:
            case "all":
                return f"level{level}"
            case "options":
                return f"level{level}.option{choices[level]}"
            case "own":
                return f"level{level}.path{'-'.join(map(str, choices))}"

    @cached_property
    def owners(self) -> dict[str, tuple[int, ...]]:
        """The paths that each block is a part of."""
        found: dict[str, list[int]] = {}
        for path in range(self.paths):
            for block in self.blocks(path):
                found.setdefault(block, []).append(path)
        return {block: tuple(paths) for block, paths in found.items()}


def read_grid(text: str, share: str) -> PathGrid:
    """The grid that a user wrote as LEVELSxOPTIONS, and what is shared; UsageError in one line."""
    found = re.fullmatch(r"\s*(\d{1,3})\s*[x×]\s*(\d{1,3})\s*", text)
    if found is None:
        raise UsageError(f"--paths {text[:60]!r}: write LEVELSxOPTIONS, such as 2x2")
    levels, options = int(found[1]), int(found[2])
    if not 1 <= levels <= MAX_LEVELS or not 2 <= options <= MAX_OPTIONS:
        raise UsageError(f"--paths {text}: 1 to {MAX_LEVELS} levels and 2 to {MAX_OPTIONS} options are possible")
    if options**levels > MAX_PATHS:
        raise UsageError(f"--paths {text} makes {options**levels:,} paths; at most {MAX_PATHS} are possible")
    return PathGrid(levels, options, read_sharing(share, levels))


def read_sharing(text: str, levels: int) -> tuple[Sharing, ...]:
    """What is shared at each level. `ends`: nothing but the ends. One word for all levels, or one for each."""
    words: Sequence[str] = re.split(r"[+,\s]+", text.strip())
    if list(words) == ["ends"]:
        words = ["own"]
    if len(words) == 1:
        words = list(words) * levels
    found = [sharing for word in words for sharing in SHARINGS if sharing == word]
    if len(found) != levels or len(words) != levels:
        raise UsageError(
            f"share={text[:60]}: write ends, options or all, or one of {', '.join(SHARINGS)} for each of the "
            f"{levels} levels, with + between them"
        )
    return tuple(found)
