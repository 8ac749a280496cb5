"""A program as the two processes of one trainer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PATIENCE_S = 600.0
FSDP2 = str(Path(__file__).with_name("fsdp2_on_cpu.py"))  # in front of a program: its model is sharded


def two_processes(*command: str, folder: Path) -> None:
    """``command`` twice, as torchrun starts it, to a good end. The port is any that is free."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d"]
    rendezvous = ["--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    with (folder / "log").open("w+") as output:
        started = subprocess.Popen([*launcher, *rendezvous, *command], stdout=output, stderr=output, cwd=folder)
        try:
            code = started.wait(PATIENCE_S)
        finally:
            started.terminate()  # it ends its two, which a kill would leave behind
            started.wait(PATIENCE_S)
        assert code == 0, (folder / "log").read_text()[-3000:]
