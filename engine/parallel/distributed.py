"""Ranks that exchange through `torch.distributed`: NCCL between GPUs, else gloo, on this machine."""

from __future__ import annotations

import os
import socket
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from .group import Group
from .shares import Split

PATIENCE = timedelta(minutes=30)
"""Of gloo: whether a rank hangs is for the process to say that started them, and ends them."""

GPU_PATIENCE = timedelta(seconds=60)
"""Of NCCL, whose first exchange makes its connections."""


class Distributed(Group):
    """A rank in a process of its own."""

    def __init__(
        self, split: Split, rank: int, device: torch.device, port: int, listening: socket.socket | None
    ) -> None:
        """port: of the store where ranks find each other; the first one owns it, and listens already."""
        super().__init__(split, rank)
        self._number = rank
        self._device = device
        self._sending: list[tuple[dist.Work | None, Tensor]] = []
        # Not the interface that the host's name leads to, which there may be none of; and not what the
        # environment says for programs that span machines.
        loopback = "lo0" if sys.platform == "darwin" else "lo"
        os.environ |= {"GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": loopback}
        os.environ.pop("GLOO_DEVICE_TRANSPORT", None)
        gpu = device.type == "cuda"
        if gpu:
            torch.cuda.set_device(device)
        store = dist.TCPStore(  # type: ignore[attr-defined]
            "127.0.0.1",
            port,
            split.ranks,
            is_master=listening is not None,
            timeout=PATIENCE,
            wait_for_workers=False,
            master_listen_fd=None if listening is None else listening.detach(),
        )
        dist.init_process_group(
            "nccl" if gpu else "gloo",
            store=store,
            rank=rank,
            world_size=split.ranks,
            timeout=GPU_PATIENCE if gpu else PATIENCE,
            device_id=device if gpu else None,
        )
        self._stage_ranks = [
            dist.new_group([stage * split.tensor + i for i in range(split.tensor)])
            for stage in range(split.pipeline)
        ][self.stage]

    def gather(self, x: Tensor) -> list[Tensor]:
        """See `Group`, as the others."""
        if self.split.tensor == 1:
            return [x]
        parts = [torch.empty_like(x) for _ in range(self.split.tensor)]
        dist.all_gather(parts, x, group=self._stage_ranks)
        return parts

    def gather_at_first(self, x: Tensor) -> list[Tensor] | None:
        """Half the bytes of `gather`, and more: logits are what is largest."""
        parts = [torch.empty_like(x) for _ in range(self.split.tensor)] if self.rank == 0 else None
        dist.gather(x, parts, dst=self.stage * self.split.tensor, group=self._stage_ranks)
        return parts

    def send(self, x: Tensor) -> None:
        """To the rank of the same number in the next stage."""
        x = x.contiguous()
        self._sending.append((dist.isend(x, self._number + self.split.tensor), x))

    def receive(self, rows: int, columns: int) -> Tensor:
        """From the rank of the same number in the stage before."""
        x = torch.empty(rows, columns, device=self._device)
        dist.recv(x, self._number - self.split.tensor)
        return x

    def sent(self) -> None:
        """The buffers are let go of then."""
        for work, _ in self._sending:
            if work is not None:
                work.wait()
        self._sending.clear()
