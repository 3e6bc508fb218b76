"""Names for nodes and runs that were given none. They are made from the peer id, so they stay the same."""

from __future__ import annotations

from ..wire.ids import sha256
from ..wire.messages import MAX_NAME_CHARS

_ADJECTIVES = """
able agile amber ample apt azure bold brave bright brisk calm clear clever cosy crisp curious
daring dear deft eager early easy fair fast fine fleet fond frank fresh gentle glad golden
good grand green happy hardy honest jolly keen kind lively loyal lucky mellow merry mild neat
noble patient plucky polite proud quick quiet ready rosy silver sunny swift tidy warm wise witty
"""
_ANIMALS = """
ant badger bat bear beaver bee bison boar camel cat crane crow deer dingo dove duck
eagle elk falcon ferret finch fox frog gecko goat goose hare hawk hedgehog heron horse ibex
jay kiwi koala lark lemur lion lynx magpie marten mole moose mouse newt otter owl panda
puffin quail rabbit raven robin salmon seal sparrow squirrel stork swan tiger toad trout wolf wren
"""


def friendly_name(peer: str) -> str:
    """Two words and two digits such as `quiet-otter-07`, always the same for the same peer id."""
    digest = sha256(b"p2pnode name " + peer.encode())
    adjective, animal = _ADJECTIVES.split()[digest[0] % 64], _ANIMALS.split()[digest[1] % 64]
    return f"{adjective}-{animal}-{digest[2] % 100:02d}"


def run_name(founder: str) -> str:
    """The name of a run whose founder gave it none."""
    return f"run of {founder}"[:MAX_NAME_CHARS]
