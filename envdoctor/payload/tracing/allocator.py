"""What torch's caching allocator takes from the GPU for the tensors of a step, by replaying what is made and freed.

As c10/cuda/CUDACachingAllocator.cpp (torch 2.13) has it without settings: blocks come from segments, a freed block is
kept and joined with free neighbours, the smallest free block that is large enough is taken, and what it has too much is
split off. A block that fits nowhere makes a new segment; none is given back before the GPU is full.
"""

from __future__ import annotations

import bisect

_BLOCK = 512
_MIB = 1 << 20
#: Requests up to this size are small: they share segments of 2 MiB, split to the last block.
_SMALL = _MIB
#: Below this size they share segments of 20 MiB; above, a segment is as large as they are, in steps of 2 MiB.
_SHARED = 10 * _MIB


class Block:
    """A piece of a segment, between its neighbours."""

    def __init__(self, size: int, small: bool, number: int) -> None:
        self.size = size
        self.small = small
        self.number = number
        self.free = False
        self.before: Block | None = None
        self.after: Block | None = None


class Allocator:
    """``held`` are the bytes of all segments."""

    def __init__(self) -> None:
        self.held = 0
        self._made = 0
        self._places: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
        self._free: dict[int, Block] = {}

    def take(self, size: int) -> Block:
        """Return a block for so many bytes."""
        size = max(-(-size // _BLOCK), 1) * _BLOCK
        small = size <= _SMALL
        places = self._places[small]
        index = bisect.bisect_left(places, (size, 0))
        if index < len(places):
            block = self._free.pop(places.pop(index)[1])
        else:
            segment = 2 * _MIB if small else 20 * _MIB if size < _SHARED else -(-size // (2 * _MIB)) * 2 * _MIB
            self.held += segment
            block = self._new(segment, small)
        rest = block.size - size
        if rest >= _BLOCK if small else rest > _SMALL:
            left = self._new(rest, small)
            left.before, left.after, block.after, block.size = block, block.after, left, size
            if left.after is not None:
                left.after.before = left
            self._keep(left)
        block.free = False
        return block

    def give(self, block: Block) -> None:
        """Free the block, and join it with its free neighbours."""
        if block.after is not None and block.after.free:
            self._join(block, self._dropped(block.after))
        if block.before is not None and block.before.free:
            block = self._join(self._dropped(block.before), block)
        self._keep(block)

    def _new(self, size: int, small: bool) -> Block:
        self._made += 1
        return Block(size, small, self._made)

    def _keep(self, block: Block) -> None:
        block.free = True
        self._free[block.number] = block
        bisect.insort(self._places[block.small], (block.size, block.number))

    def _dropped(self, block: Block) -> Block:
        places = self._places[block.small]
        del places[bisect.bisect_left(places, (block.size, block.number))]
        return self._free.pop(block.number)

    def _join(self, first: Block, second: Block) -> Block:
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        return first
