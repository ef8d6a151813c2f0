# SPDX-License-Identifier: Apache-2.0
"""scripts/bench staging: sets of packets between device buffers, on the stand-in GPU or the machine's own."""
import statistics

from bench import turns
from harness import gpu
from harness import mpi as jobs

AIM = 1.3  # on the stand-in
PACKETS = 16
LONE_CHUNKS = 16  # 16 MiB in chunks of 1 MiB


def overlap(sample):
    """The set's time over that of the longest of its three ways and two packets' copies."""
    longest = max(sample["down"], sample["wire"], sample["up"])
    return sample["set"] / (longest + (sample["down"] + sample["up"]) / PACKETS)


def alone(sample):
    """The same of one large message that goes in chunks."""
    longest = max(sample["lone_down"], sample["lone_wire"], sample["lone_up"])
    return sample["lone"] / (longest + (sample["lone_down"] + sample["lone_up"]) / LONE_CHUNKS)


def staging(options):
    """The ratio of a set's time to what it would take with its three ways wholly at the same time."""
    program = turns.compiled(options.mpi, "staging")
    settings = f"down={options.speed},up={options.speed},latency={options.latency}"
    # Both ranks are on this node: copies from device to device would take the place of what is to be measured.
    env = {"RESIL_STAGE": "on", "RESIL_LOG": "quiet", "RESIL_STAGE_PEER": "0"}
    if options.speed:
        env = gpu.environment(settings, env)
    samples = []
    for _ in range(options.runs):
        result = jobs.run(options.mpi, 2, [program, str(options.packet)], env=env, timeout=300, cwd=jobs.scratch())
        if result.returncode != 0:
            raise SystemExit(f"bench: failed\n{result.text()}")
        samples.append({name: value for name, (value, _) in turns.measured(result.stdout.decode()).items()})
    median = {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}

    ratios = sorted(overlap(sample) for sample in samples)
    lone_sum = sum(median["lone_" + name] for name in ("down", "wire", "up"))
    lone = alone(median)
    where = f"stand-in GPU, {settings}" if options.speed else "the machine's GPU"
    lines = [f"{options.mpi}, {options.runs} runs, 2 ranks; {turns.machine()}; {where}", "",
             f"{PACKETS} packets of {options.packet} bytes each way at the same time, best of each run, medians over the runs:", "",
             "| memcpy | down | wire | up | sum of the three | staged set | set / (longest + two packets) |",
             "|---:|---:|---:|---:|---:|---:|---:|",
             "| " + " | ".join(f"{median[name]:.2f} ms" for name in ("memcpy", "down", "wire", "up"))
             + f" | {median['down'] + median['wire'] + median['up']:.2f} ms | {median['set']:.2f} ms | "
             + f"{statistics.median(ratios):.2f} [{ratios[0]:.2f} .. {ratios[-1]:.2f}] (aim {AIM}) |", "",
             "One message of 16 MiB, alone, in chunks:", "",
             "| down | wire | up | sum of the three | staged | staged / (longest + two chunks) |",
             "|---:|---:|---:|---:|---:|---:|",
             "| " + " | ".join(f"{median['lone_' + name]:.2f} ms" for name in ("down", "wire", "up"))
             + f" | {lone_sum:.2f} ms | {median['lone']:.2f} ms | {lone:.2f} (aim {AIM}) |", "",
             "| one way, bytes | host | device |", "|---|---:|---:|"]
    for name in median:
        if name.startswith("host_"):
            size = name[len("host_"):]
            lines.append(f"| {size} | {median[name] / 1e3:.1f} us | {median['device_' + size] / 1e3:.1f} us |")
    if options.speed and 10 * median["memcpy"] > median["down"]:
        lines += ["", "The stand-in's copies are more than a tenth as fast as memcpy: they cannot overlap. Set --speed lower."]
    return lines


def add(commands):
    """The command's options."""
    command = commands.add_parser("staging")
    command.set_defaults(function=staging)
    command.add_argument("--mpi", choices=jobs.MPIS, default="openmpi")
    command.add_argument("--markdown", metavar="FILE", help="append the table to FILE")
    command.add_argument("--runs", type=int, default=5, help="at least 1 (default 5)")
    command.add_argument("--packet", type=int, default=1 << 20, help="bytes (default 1 MiB); on a busy machine fewer: more "
                         "rounds, of which the best was not disturbed")
    command.add_argument("--speed", type=float, default=0.3, help="GB/s of the stand-in's copies (default 0.3); 0: "
                         "the machine's own driver")
    command.add_argument("--latency", type=int, default=10, help="of the stand-in's copies, us (default 10)")
