from array import array

import pytest

from engine.blocks import BlockPool, BlockTable

SIZE = 16


def filled(pool: BlockPool, tokens: list[int]) -> tuple[BlockTable, array]:
    """A table whose full blocks are computed and registered."""
    table, ids = BlockTable(), array("i", tokens)
    found, _ = pool.match(ids)
    pool.adopt(table, found)
    pool.extend(table, pool.blocks_for(len(ids)) - len(found))
    pool.register(table, ids, len(ids))
    return table, ids


def test_equal_beginnings_share_blocks_and_different_ones_do_not() -> None:
    pool = BlockPool(16, SIZE)
    first, _ = filled(pool, list(range(40)))
    second, _ = filled(pool, list(range(32)) + [7] * 8)
    other, _ = filled(pool, [9] * 16 + list(range(16, 40)))
    assert list(first.blocks[:2]) == list(second.blocks[:2])
    assert first.blocks[2] != second.blocks[2]
    assert not set(other.blocks) & set(first.blocks), (
        "the same second block after another first one is another block"
    )
    assert pool.shared(first) == 2
    assert pool.used == 7
    pool.audit([first, second, other])


def test_a_block_is_found_only_after_its_step_was_committed() -> None:
    pool = BlockPool(8, SIZE)
    table, ids = BlockTable(), array("i", range(32))
    pool.extend(table, 2)
    assert pool.match(ids)[0] == []
    pool.register(table, ids, 31)
    assert pool.match(ids)[0] == [table.blocks[0]], "the second block is not full yet"
    pool.register(table, ids, 32)
    assert pool.match(ids)[0] == list(table.blocks)


def test_match_names_the_next_full_block() -> None:
    pool = BlockPool(8, SIZE)
    table, _ = filled(pool, list(range(16)))
    ids = array("i", range(40))
    found, key = pool.match(ids)
    assert found == list(table.blocks)
    assert key == (table.node, ids[16:32].tobytes())
    assert pool.match(array("i", range(20)))[1] is None, "a partial block has no key"


def test_released_blocks_stay_cached_and_the_tail_of_a_chain_is_evicted_first() -> None:
    pool = BlockPool(4, SIZE)
    table, ids = filled(pool, list(range(64)))
    blocks = list(table.blocks)
    pool.release(table)
    assert (pool.free, pool.cached, pool.used) == (0, 4, 0)
    taker = BlockTable()
    pool.extend(taker, 2)
    assert pool.match(ids)[0] == blocks[:2], "the head of the chain survives"
    assert set(taker.blocks) == set(blocks[2:])
    pool.audit([table, taker])


def test_least_recently_used_chain_goes_first() -> None:
    pool = BlockPool(4, SIZE)
    old, old_ids = filled(pool, [1] * 32)
    new, new_ids = filled(pool, [2] * 32)
    pool.release(old)
    pool.release(new)
    again = BlockTable()
    pool.adopt(again, pool.match(old_ids)[0])
    pool.release(again)
    pool.extend(again, 2)
    assert pool.match(old_ids)[0], "used again a moment ago"
    assert pool.match(new_ids)[0] == []


def test_a_shared_or_registered_block_is_copied_before_a_write() -> None:
    pool = BlockPool(8, SIZE)
    first, ids = filled(pool, list(range(32)))
    second = BlockTable()
    pool.adopt(second, pool.match(ids)[0])
    assert pool.needs_copy(second, 1)
    source, target = pool.copy_on_write(second, 1)
    assert (source, target) == (first.blocks[1], second.blocks[1])
    assert source != target
    assert not pool.needs_copy(second, 1)
    pool.audit([first, second])
    pool.register(second, ids, 32)
    assert list(second.blocks) == list(first.blocks), "computed again, equal content is stored once"
    pool.audit([first, second])


def test_two_sequences_that_compute_the_same_end_up_sharing() -> None:
    pool = BlockPool(8, SIZE)
    ids = array("i", range(48))
    tables = [BlockTable(), BlockTable()]
    for table in tables:
        pool.extend(table, 3)
    for table in tables:
        pool.register(table, ids, 48)
    assert list(tables[0].blocks) == list(tables[1].blocks)
    assert pool.used == 3
    pool.audit(tables)


def test_without_prefix_cache_nothing_is_kept() -> None:
    pool = BlockPool(4, SIZE, prefix_cache=False)
    table, ids = filled(pool, list(range(32)))
    pool.release(table)
    assert pool.match(ids) == ([], None)
    assert pool.free == 4


def test_audit_finds_a_lost_block() -> None:
    pool = BlockPool(4, SIZE)
    table, _ = filled(pool, list(range(32)))
    with pytest.raises(AssertionError, match="reference counts"):
        pool.audit([])
    pool.audit([table])


def tables_of(pool: BlockPool, tokens: array, count: int) -> list[BlockTable]:
    """Tables that have each computed these tokens."""
    tables = [BlockTable() for _ in range(count)]
    for table in tables:
        pool.extend(table, pool.blocks_for(len(tokens)))
    return tables


def test_blocks_that_a_draft_model_has_filled_are_found_so() -> None:
    pool, tokens = BlockPool(8, 16), array("i", range(48))
    (first,) = tables_of(pool, tokens, 1)
    first.drafted = 33
    pool.register(first, tokens, 48)
    second = BlockTable()
    pool.adopt(second, pool.match(tokens)[0])
    assert second.drafted == 32
    first.drafted = 48  # it catches up
    pool.register(first, tokens, 48)
    pool.register(second, tokens, 48)
    assert second.drafted == 48
    pool.release(first)
    pool.release(second)
    assert (first.drafted, second.drafted) == (0, 0)
    pool.audit([])
    (third,) = tables_of(pool, array("i", range(100, 228)), 1)  # takes all blocks
    pool.register(third, array("i", range(100, 228)), 128)
    pool.audit([third])
    fourth = BlockTable()
    pool.release(third)
    pool.adopt(fourth, pool.match(array("i", range(100, 228)))[0])
    assert fourth.drafted == 0


def test_a_table_that_moves_to_an_equal_block_loses_what_the_draft_model_had_in_its_own() -> None:
    pool, tokens = BlockPool(8, 16), array("i", range(48))
    first, second = tables_of(pool, tokens, 2)
    pool.register(first, tokens, 48)
    second.drafted = 40
    pool.register(second, tokens, 16)
    assert (second.drafted, second.blocks[0]) == (0, first.blocks[0])
    pool.audit([first, second])
