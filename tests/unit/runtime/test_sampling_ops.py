"""The sampling operation's own traffic between host and accelerator."""

from dataclasses import replace

import torch
from tests.support.engines import tiny_model

from tandem.engine.warm_up import run_largest_step
from tandem.memory.page import KVPageSpec
from tandem.runtime.assemble import MachineSizes, build_machine
from tandem.runtime.inline import InlineExecutor
