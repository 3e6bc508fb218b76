"""A bounded container keeps the latest items, and no more than there is room for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from p2pnode.wire.bounded import put_bounded


@given(st.lists(st.tuples(st.integers(0, 6), st.integers())), st.integers(1, 5))
def test_the_keys_put_last_stay_in_that_order_with_their_last_value(items: list[tuple[int, int]], most: int) -> None:
    kept: dict[int, int] = {}
    for key, value in items:
        put_bounded(kept, key, value, most)
    latest = list(dict.fromkeys(key for key, _ in reversed(items)))[:most]
    assert list(kept.items()) == [(key, dict(items)[key]) for key in reversed(latest)]
