"""`placement`: what to expect of a pipeline before anything is trained, and whether whole models would be faster."""

from __future__ import annotations

import time

from ..config.options import TrainOptions
from ..jobs.pipeline.measuring import measure_model
from ..jobs.pipeline.messages import MAX_TENSOR_BYTES
from ..jobs.pipeline.placement import BYTES_PER_PARAMETER, MachineFacts, ModelFacts, Placement, place
from ..tasks.find import load_task
from .reports import print_json


def place_and_print(
    options: TrainOptions, peers: int, rate: float, latency: float, memory: int, micro_batch: int, as_json: bool
) -> None:
    """Measure the task's model on this machine, and print the plan for `peers` such machines."""
    task = load_task(options.task or "gpt", options.task_options, None if options.data is None else str(options.data))
    model, seconds = measure_model(task, time.monotonic)
    machines = MachineFacts(peers, seconds, memory, rate, latency, MAX_TENSOR_BYTES)
    found = place(model, machines, micro_batch)
    if as_json:
        whole, faster = found.whole_samples_per_second, found.whole_is_faster
        print_json({**found._asdict(), "whole_samples_per_second": whole, "whole_is_faster": faster})
        return
    for line in lines(model, machines, found):
        print(line)


def lines(model: ModelFacts, machines: MachineFacts, found: Placement) -> list[str]:
    """The plan for people."""
    parameters = model.blocks * model.block_parameters + model.end_parameters
    shown = [
        f"model      {parameters / 1e6:,.1f} M parameters in {model.blocks} blocks; to train it takes about "
        f"{parameters * BYTES_PER_PARAMETER / 1e9:,.2f} GB",
        f"machine    {machines.seconds_per_sample * 1e3:,.1f} ms for a sample through all blocks, forward and backward",
    ]
    if found.samples_per_second:
        shown += [
            f"spans      {found.span} blocks at each server; {found.servers_needed} servers hold the model once",
            f"calls      micro-batches of {found.micro_batch}, {found.in_flight} in flight",
            f"pipeline   about {found.samples_per_second:,.1f} samples a second with {machines.machines} machines",
            f"links      they decide below {found.break_even_rate * 8 / 1e6:,.1f} Mbit/s"
            f" (given: {machines.rate * 8 / 1e6:,.1f})",
        ]
    whole = found.whole_samples_per_second
    if whole is None:
        shown.append("whole      the whole model does not fit one machine")
    else:
        shown.append(f"whole      about {whole:,.1f} samples a second with a whole model on each machine")
    if found.whole_is_faster:
        advice = f"whole models are faster: {found.reason}; leave out kind=pipeline"
    else:
        advice = found.reason if not found.samples_per_second else f"a pipeline: {found.reason}"
    return [*shown, f"advice     {advice}"]
