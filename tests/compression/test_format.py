"""Golden bytes: the format of a delta does not change unnoticed."""

from __future__ import annotations

import numpy as np
import pytest

from p2pnode.compression.codec import VERSION, decode_delta, encode_delta
from p2pnode.compression.delta import SparseDelta
from tests.compression.dense import dense_delta


def sparse(size: int, indices: list[int], values: list[int]) -> SparseDelta:
    return SparseDelta(size, np.array(indices, np.uint32), np.array(values, np.int32))


DELTAS = {
    "empty": sparse(1000, [], []),
    "sparse": sparse(1000, [0, 3, 4, 200, 999], [7, -7, 7, 900, -900]),
    "plain": sparse(1 << 31, [5, 1 << 20, (1 << 31) - 1], [1 << 30, -(1 << 30), 3]),
    "dense": dense_delta(np.array([4, -4, 4, 4, -4, -9, 9, 9], np.int32)),
    "groups": sparse(100_000, [*range(700), 90_000], [5 if place % 3 else -11 for place in range(701)]),
    "wide": sparse(100_000, [n * n for n in range(300)], [(n + 1) * (1 if n % 2 else -1) for n in range(300)]),
    "scattered": sparse(1 << 20, [600 * n**3 for n in range(1, 12)], [(-1) ** n * 30 for n in range(11)]),
}
# fmt: off
PINNED = {
    "empty": (DELTAS["empty"], "0200e80700a2b35254"),
    "sparse": (DELTAS["sparse"], "0200e80705000700000160e80102001708010a00077d0c00840321a43e23"),
    "plain": (DELTAS["plain"], "0200808080800803001d0005fafe00ffff000fef007c010023011e0003fd00ff00ffc00f000ebf7bac5f"),
    "dense": (DELTAS["dense"], "020208080103002c0004ad70122f59"),
    "groups": (DELTAS["groups"], (
        "0201a08d06bd051428b52ffd60bd01550000180000ff0100b72a80051100d55b0101030035011428b52ffd60bd0155000018"
        "0300000100b7acdc10317a0d32"
    )),
    "wide": (DELTAS["wide"], (
        "0205a08d06ac02950128b52ffd602c005d040034080000020406080a0c0e10121416181a1c1e20222426282a2c2e30323436"
        "383a3c3e40424446484a4c4e50525456585a5c5e60626466686a6c6e70727476787a7c7e80828486888a8c8e90929496989a"
        "9c9ea0a2a4a6a8aaacaeb0b2b4b6b8babcbec0c2c4c6c8caccced0d2d4d6d8dadcdee0e2e4e6e8eaeceef0f2f4f6f8fafcfe"
        "ffff0100031305a4099b0128b52ffd20c1950400740801030507090b0d0f11131517191b1d1f21232527292b2d2f31333537"
        "393b3d3f41434547494b4d4f51535557595b5d5f61636567696b6d6f71737577797b7d7f81838587898b8d8f91939597999b"
        "9d9fa1a3a5a7a9abadafb1b3b5b7b9bbbdbfc1c3c5c7c9cbcdcfd1d3d5d7d9dbdddfe1e3e5e7e9ebedeff1f3f5f7f9fbfdff"
        "00ffffffffff0702007827000c4c2305a20228b52ffd60b003c508004410ff02fd04fb06f908f70af50cf30ef110ef12ed14"
        "eb16e918e71ae51ce31ee120df22dd24db26d928d72ad52cd32ed130cf32cd34cb36c938c73ac53cc33ec140bf42bd44bb46"
        "b948b74ab54cb34eb150af52ad54ab56a958a75aa55ca35ea1609f629d649b669968976a956c936e91708f728d748b768978"
        "877a857c837e81807f827d847b867988778a758c738e71906f926d946b966998679a659c639e61a05fa25da45ba659a857aa"
        "55ac53ae51b04fb24db44bb649b847ba45bc43be41c03fc23dc43bc639c837ca35cc33ce31d02fd22dd42bd629d827da25dc"
        "23de21e01fe21de41be619e817ea15ec13ee11f00ff20df40bf609f807fa05fc03fe0100ff0001fe050082400528a000c0c4"
        "fa9cc2001a30d7149ac4ddbb"
    )),
    "scattered": (
        DELTAS["scattered"],
        "02008080400b001000586787b7f747a7179727c702102c568ed5298cfc7b070300bf4a040005001e00aa02f4e7615b",
    ),
}
# fmt: on
COMPRESSED = {"groups", "wide"}  # another release of zstandard may write them otherwise


@pytest.mark.parametrize(("delta", "data"), PINNED.values(), ids=PINNED)
def test_pinned_bytes_are_decoded(delta: SparseDelta, data: str) -> None:
    assert decode_delta(bytes.fromhex(data), delta.size, len(delta)) == delta


@pytest.mark.parametrize("name", sorted(PINNED.keys() - COMPRESSED))
def test_encoding_is_pinned_to_the_byte(name: str) -> None:
    delta, data = PINNED[name]
    assert encode_delta(delta).hex() == data
    assert encode_delta(delta)[0] == VERSION
