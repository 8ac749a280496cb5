"""Run a program under FSDP2 without a GPU: ``callwright WORDS``, or a file and its words.

accelerate shards on accelerators alone, although torch shards anywhere. What it takes for its kind of distribution is
changed here, once it is set up; everything else is its own path, with the settings of scripts/deploy/fsdp2.yaml.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any

import yaml
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

FILE = Path(__file__).parents[2] / "scripts" / "deploy" / "fsdp2.yaml"


def main(program: str, *words: str) -> None:
    settings = yaml.safe_load(FILE.read_text())["fsdp_config"]
    os.environ |= {name.upper(): str(value).lower() for name, value in settings.items()}
    for name in ("fsdp_auto_wrap_policy", "fsdp_state_dict_type"):
        os.environ[name.upper()] = settings[name]
    os.environ |= {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
    }  # that needs a GPU to go to
    begin = Accelerator.__init__

    def begin_sharded(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        self.state.distributed_type = DistributedType.FSDP
        self.state.fsdp_plugin = FullyShardedDataParallelPlugin()
        PartialState._shared_state["distributed_type"] = DistributedType.FSDP  # a later state is made from it

    Accelerator.__init__ = begin_sharded
    sys.argv = [program, *words]
    if program == "callwright":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(program).parent))
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
