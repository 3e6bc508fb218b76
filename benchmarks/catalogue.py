"""Every benchmark there is: what it answers, and which figures of a run are baselines of which.

`HELPERS` are modules that benchmarks start as processes of their own. tests/test_benchmarks.py checks that every module
with a main function is listed here.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Benchmark:
    """One `python -m benchmarks.NAME`. `baselines`: names of figures, each with the name of its baseline's figure."""

    name: str
    question: str
    baselines: dict[str, str] = field(default_factory=dict)
    part_of: str = ""  # another benchmark that measures the same with more; `make bench` runs only that one

    @property
    def module(self) -> str:
        return f"benchmarks.{self.name}"


def of_hivemind(*suffixes: str) -> dict[str, str]:
    """The pairs of benchmarks.swarm, for each of its cases."""
    pairs = {"p2pnode_s": "hivemind_s", "p2pnode_mb": "hivemind_mb", "utilisation": "hivemind_utilisation"}
    return {f"{ours}{suffix}": f"{theirs}{suffix}" for suffix in suffixes for ours, theirs in pairs.items()}


BENCHMARKS = (
    Benchmark(
        "network",
        "How fast are streams, calls, joining and recovery, compared with hivemind's raw streams and calls and TCP?",
        {
            "stream_mb_per_s": "raw_mb_per_s",
            "stream_mb_per_s_10mb": "raw_mb_per_s_10mb",
            "call_p50_ms": "raw_call_p50_ms",
            "import_s": "hivemind_import_s",
        },
    ),
    Benchmark(
        "swarm",
        "How fast do four peers behind slow links learn, compared with hivemind.Optimizer?",
        of_hivemind("", "_fashion_mnist", "_text"),
    ),
    Benchmark(
        "ownloop",
        "What does p2pnode.join cost a training loop, and how fast do loops learn, compared with hivemind.Optimizer?",
        {
            "steps_per_s": "bare_steps_per_s",
            "lines_changed": "hivemind_lines_changed",
            **{
                f"{name}_{peers}": f"hivemind_{name}_{peers}"
                for name in ("seconds_to_accuracy", "mb", "reached")
                for peers in (2, 4)
            },
        },
    ),
    Benchmark(
        "pipeline",
        "How near does a model divided among machines come to the sum of their speeds, and what do deaths cost?",
        {
            "samples_per_s": "fixed_chain_samples_per_s",
            "loss_pipeline": "loss_one_machine",
        },
    ),
    Benchmark(
        "queues",
        "How fast do several models with queues reach their targets, compared with turns and with separate runs?",
        {"seconds_to_all": "round_robin_s"},
    ),
    Benchmark(
        "paths",
        "How good are paths through one model, compared with one model, separate models, and one of the total size?",
        {"loss_paths": "loss_one", "mb_per_node": "one_mb_per_node"},
    ),
    Benchmark(
        "actors",
        "What is a critic worth that four laptops share, and shared rollouts, compared with critics of their own?",
        {"env_steps_per_s": "cleanrl_env_steps_per_s"},
    ),
    Benchmark("frontier", "How accurate is training for how many bytes, compared with averaging, all-reduce, DiLoCo?"),
    Benchmark("language", "How good do language models get for how many bytes, compared with dense averaging?"),
    Benchmark(
        "deltaset",
        "How fast, small and quiet is the delta set of one node, and does its event loop keep up while it trains?",
        {
            "entries_per_s": "signatures_alone_per_s",
            "snapshot_mb_per_s": "snapshot_raw_mb_per_s",
            "loop_lag_p99_ms": "loop_lag_p99_ms_idle",
            "call_p99_ms_while_training": "call_p99_ms_idle",
        },
    ),
    Benchmark(
        "codec",
        "How small and how fast are encoded deltas, compared with hivemind's codecs and torch.topk?",
        {"encode_vs_memcpy": "torch_topk_vs_memcpy"},
    ),
    Benchmark("gpt_step", "How fast is a training step of a language model, compared with a plain loop of PyTorch?"),
    Benchmark(
        "data_kinds",
        "What does it cost to read samples by index or from a stream, and how do 100 GB start?",
        {"found_s_100gb": "found_s_10mb", "train_s_100gb": "train_s_10mb", "memory_mb_100gb": "memory_mb_10mb"},
    ),
    Benchmark("importance", "Which rule chooses best what to send, at the same bytes?"),
    Benchmark("partners", "Which partners should a peer choose?"),
    Benchmark("fingerprint", "How well do 260 bytes predict the similarity (CKA) of two models?"),
    Benchmark("shards", "What is passing shards of data worth, against no data at equal bytes?"),
    Benchmark("handoff", "Is a shard ever lost or held twice while it is handed over, and how fast is that?"),
    Benchmark("confidence", "What does it cost to record how confident a model is of each sample?"),
    Benchmark("limits", "How well does a node keep to its limits, and how soon does it pause and resume?"),
    Benchmark("watching", "What does watching a node cost, and how fast is its page?"),
    Benchmark("directory", "Does the directory of 100,000 peers stay bounded, and is every peer found?"),
    Benchmark("storm", "Does anything that must hold in a swarm break under any mixture of faults?"),
    Benchmark(
        "kills",
        "Do real nodes agree and learn as much when they and their daemons are killed all the time?",
        {"accuracy": "accuracy_undisturbed"},
    ),
    Benchmark("hostile", "What can hostile members of a run do to the honest ones?"),
    Benchmark("simspeed", "How much faster than real time does a simulated swarm run?"),
    Benchmark("directory_load", "What does a node read of a directory larger than its table?", part_of="directory"),
    Benchmark("neighbours", "How many of the ten most similar peers does a node know?", part_of="directory"),
    Benchmark("deltaset_memory", "How many bytes per parameter does a training node keep?", part_of="deltaset"),
)
HELPERS = frozenset(
    {
        "deltaset_peer",
        "handoff_peer",
        "network_peer",
        "ownloop_peer",
        "probed_node",
        "swarm_hivemind",
        "swarm_relay",
        "watched_node",
    }
)
