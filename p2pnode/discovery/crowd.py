"""When a swarm is a crowd: larger than one node follows.

In a small swarm everybody is news: it is greeted and pinged, and the directory is read again at once. In a crowd there
is always somebody this node does not know, or has forgotten to make room; to follow that up would never end. So there
nobody is news, and a sample of the directory is read now and then, whatever the size of the swarm.
"""

from __future__ import annotations

ENOUGH = 8  # of a directory of several keys, this part of the table will do


def in_a_crowd(known: int, most: int, whole: bool) -> bool:
    """Whether a node that knows so many peers, and can know `most`, need not follow up news of others.

    `whole`: its own key is the whole directory. Then it wants everybody, as far as the table holds them.
    """
    return known >= (most if whole else max(1, most // ENOUGH))
