"""Train a small model with PyTorch DDP on CPUs, and go on from the last checkpoint when started again."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 200
SAVE_EVERY = 5
TELL_EVERY = 100


def main() -> None:
    """Meet the other ranks, take up the checkpoint if there is one, and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True, help="a file all ranks can reach")
    parser.add_argument("--steps", type=int, default=STEPS, help="when to stop")
    asked = parser.parse_args()

    dist.init_process_group("gloo")  # MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE are set by Trackside
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    truth = torch.randn(16, 1)
    step = load(asked.checkpoint, model, optimizer)
    print(f"start {os.environ['MA_PROC_START_CNT']}: rank {rank} goes on at step {step}", flush=True)

    torch.manual_seed(rank)
    while step < asked.steps:
        inputs = torch.randn(32, 16)
        loss = nn.functional.mse_loss(model(inputs), inputs @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % TELL_EVERY == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % SAVE_EVERY == 0:
            if rank == 0:
                save(asked.checkpoint, model, optimizer, step)
            dist.barrier()
    dist.destroy_process_group()
    print("done", flush=True)


def load(checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Take up a checkpoint; return the step it was made at."""
    if not checkpoint.exists():
        return 0
    state = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def save(checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Write a checkpoint so that a crash leaves either the old one or the new one."""
    half_made = checkpoint.with_suffix(".new")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, half_made)
    half_made.replace(checkpoint)


if __name__ == "__main__":
    main()
