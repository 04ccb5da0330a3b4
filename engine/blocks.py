"""The paged KV cache's bookkeeping: which physical block holds what, who uses it, and what may be reused.

Pure Python over block numbers; no memory of keys and values is touched here (PagedAttention, arXiv
2309.06180). A block is free, cached (its content is registered, nobody uses it) or referenced (in at least
one block table).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable

Key = tuple[int, bytes]
"""Identity of a full block: the chain node of the block before it, and its own tokens."""

ROOT = 0
"""Chain node before the first block."""


class BlockTable:
    """The blocks of one sequence by position, and the chain nodes of its registered leading ones.

    drafted: of how many leading tokens a draft model has its keys in the blocks, too. It computes them when
    it is to guess, not when the model does.
    """

    __slots__ = ("blocks", "chain", "drafted")

    def __init__(self) -> None:
        self.blocks = array("i")
        self.chain: list[int] = []
        self.drafted = 0

    @property
    def node(self) -> int:
        """Chain node of the last registered block."""
        return self.chain[-1] if self.chain else ROOT


class BlockPool:
    """All blocks of the cache: free list, reference counts, registered contents, LRU of unreferenced ones.

    A registered block gets a chain node, a number never used again, and is found by (node of the block before
    it, tokens). The lookup compares the tokens themselves and the node stands for the whole beginning, so two
    conversations can never be mixed by a hash collision.
    """

    def __init__(self, blocks: int, block_size: int, *, prefix_cache: bool = True) -> None:
        self.total = blocks
        self.block_size = block_size
        self.prefix_cache = prefix_cache
        self._free = list(range(blocks - 1, -1, -1))
        self._references = [0] * blocks
        self._keys: list[Key | None] = [None] * blocks
        self._nodes = [ROOT] * blocks
        self._drafted = bytearray(blocks)  # registered blocks that hold all keys of a draft model, too
        self._by_key: dict[Key, int] = {}
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._last_node = ROOT

    @property
    def free(self) -> int:
        """Blocks that hold nothing."""
        return len(self._free)

    @property
    def cached(self) -> int:
        """Blocks with registered content that nobody references; taken when free ones run out."""
        return len(self._cached)

    @property
    def available(self) -> int:
        """Blocks that `extend` can take."""
        return len(self._free) + len(self._cached)

    @property
    def used(self) -> int:
        """Blocks referenced by at least one table."""
        return self.total - self.available

    def blocks_for(self, tokens: int) -> int:
        """Number of blocks that hold this many tokens."""
        return -(-tokens // self.block_size)

    def shared(self, table: BlockTable) -> int:
        """How many of a table's blocks stand in another table as well: they are the first ones."""
        return bisect_left(table.blocks, True, key=lambda block: self._references[block] == 1)

    def match(self, tokens: array[int]) -> tuple[list[int], Key | None]:
        """The longest registered beginning of `tokens`: its blocks, and the key of the next full block."""
        found: list[int] = []
        if not self.prefix_cache:
            return found, None
        node = ROOT
        for start in range(0, len(tokens) - self.block_size + 1, self.block_size):
            key = (node, tokens[start : start + self.block_size].tobytes())
            block = self._by_key.get(key)
            if block is None:
                return found, key
            found.append(block)
            node = self._nodes[block]
        return found, None

    def idle(self, blocks: Iterable[int]) -> int:
        """How many of these blocks are unreferenced: taking them makes that many fewer available."""
        return sum(self._references[block] == 0 for block in blocks)

    def adopt(self, table: BlockTable, blocks: list[int]) -> None:
        """Begin an empty table with matched blocks, which it then shares."""
        assert not table.blocks, "only an empty table can adopt a beginning"
        for block in blocks:
            if self._references[block] == 0:
                del self._cached[block]
            self._references[block] += 1
            table.blocks.append(block)
            table.chain.append(self._nodes[block])
            if self._drafted[block] and table.drafted == (len(table.blocks) - 1) * self.block_size:
                table.drafted += self.block_size

    def extend(self, table: BlockTable, count: int) -> None:
        """Append `count` blocks to a table. The caller has checked `available`."""
        for _ in range(count):
            table.blocks.append(self._take())

    def needs_copy(self, table: BlockTable, index: int) -> bool:
        """Whether block `index` of a table is shared or registered, so that it may not be written."""
        block = table.blocks[index]
        return self._references[block] > 1 or self._keys[block] is not None

    def copy_on_write(self, table: BlockTable, index: int) -> tuple[int, int]:
        """Replace a table's block `index` by an available one; returns (source, target) to be copied."""
        block, copy = table.blocks[index], self._take()
        table.blocks[index] = copy
        del table.chain[index:]
        self._drop(block)
        return block, copy

    def register(self, table: BlockTable, tokens: array[int], computed: int) -> None:
        """After a committed step: make the table's full blocks below `computed` tokens findable.

        Where an equal block is registered already, the table moves over to it: equal content is stored once.
        A draft model's keys may come later; `table.drafted` may not be above `computed`.
        """
        if not self.prefix_cache:
            return
        for index in range(len(table.chain), computed // self.block_size):
            start = index * self.block_size
            key = (table.node, tokens[start : start + self.block_size].tobytes())
            block = table.blocks[index]
            known = self._by_key.get(key)
            if known is None:
                self._last_node += 1
                self._by_key[key] = block
                self._keys[block] = key
                self._nodes[block] = self._last_node
            elif known != block:
                if self._references[known] == 0:
                    del self._cached[known]
                self._references[known] += 1
                table.blocks[index] = known
                self._drop(block)
                if not self._drafted[known]:
                    table.drafted = min(table.drafted, start)
            table.chain.append(self._nodes[table.blocks[index]])
        self._share_drafted(table)

    def _share_drafted(self, table: BlockTable) -> None:
        """Note which registered blocks the draft model filled; go on behind what it filled for others."""
        size, blocks = self.block_size, table.blocks
        index = min(len(table.chain), table.drafted // size) - 1
        while index >= 0 and not self._drafted[blocks[index]]:
            self._drafted[blocks[index]] = True
            index -= 1
        while (index := table.drafted // size) < len(table.chain) and self._drafted[blocks[index]]:
            table.drafted = (index + 1) * size

    def release(self, table: BlockTable) -> None:
        """Give a table's blocks back; registered ones stay cached, the tail to be evicted first."""
        table.chain.clear()
        self.shrink(table, 0)

    def shrink(self, table: BlockTable, count: int) -> None:
        """Give back the blocks of a table behind the first `count`; none of its chain is among them."""
        assert len(table.chain) <= count, "a registered beginning is given back as a whole"
        while len(table.blocks) > count:
            self._drop(table.blocks.pop())
        table.drafted = min(table.drafted, count * self.block_size)

    def _take(self) -> int:
        """A block nobody uses: a free one, else the least recently used cached one."""
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            key = self._keys[block]
            assert key is not None, "a cached block is registered"
            del self._by_key[key]
            self._keys[block] = None
            self._nodes[block] = ROOT
            self._drafted[block] = False
        self._references[block] = 1
        return block

    def _drop(self, block: int) -> None:
        """One reference less."""
        self._references[block] -= 1
        assert self._references[block] >= 0, f"block {block} released twice"
        if self._references[block] == 0:
            if self._keys[block] is None:
                self._free.append(block)
            else:
                self._cached[block] = None

    def audit(self, tables: Iterable[BlockTable]) -> None:
        """Check every invariant against the tables that exist, for tests; AssertionError says what broke."""
        occurrences = [0] * self.total
        for table in tables:
            assert len(table.chain) <= len(table.blocks), "chain longer than the table"
            assert table.drafted <= len(table.blocks) * self.block_size, "drafted beyond the table"
            for block in table.blocks[: min(len(table.chain), table.drafted // self.block_size)]:
                assert self._drafted[block], f"block {block} lacks keys of the draft model"
            for block in table.blocks:
                occurrences[block] += 1
            shared = sum(self._references[block] > 1 for block in table.blocks)
            assert shared == self.shared(table), "a block is shared behind one that is not"
            for node, block in zip(table.chain, table.blocks, strict=False):
                assert self._nodes[block] == node, f"block {block} is not the one its chain names"
        assert occurrences == self._references, "reference counts differ from occurrences in tables"
        free, cached = set(self._free), set(self._cached)
        referenced = {block for block, count in enumerate(occurrences) if count}
        assert len(free) == len(self._free), "a block is free twice"
        assert free.isdisjoint(cached), "a block is free and cached"
        assert referenced.isdisjoint(free | cached), "a referenced block is free or cached"
        assert len(free) + len(cached) + len(referenced) == self.total, "a block is lost"
        assert all(self._keys[block] is None for block in free), "a free block is registered"
        drafted = [block for block, whole in enumerate(self._drafted) if whole]
        assert all(self._keys[block] is not None for block in drafted), "a drafted block is not registered"
        assert all(self._keys[block] is not None for block in cached), "a cached block is not registered"
        registered = {block: key for block, key in enumerate(self._keys) if key is not None}
        assert {key: block for block, key in registered.items()} == self._by_key, "registry out of step"
        nodes = [self._nodes[block] for block in registered]
        assert len({ROOT, *nodes}) == len(nodes) + 1, "two blocks with one chain node"
