"""What can go wrong on the made-up node, by name: the hardware, the training job, the traffic."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Faults(NamedTuple):
    """What is wrong with a job, or with the node. Shares are of the step as it then is; rails that
    are down, and checkpoints, count for nothing there.

    `paused` is the share of time in which the ports to the storage may not send (a storm of pause
    frames), `pausing` that in which they have others wait; what that costs the loader is `data`'s
    to say. `data` is waiting for the loader, `late` waiting in the collective for ranks of other
    nodes, `clock` a cap in megahertz on the job's GPUs, `straggler` one of the node's ranks, the
    work of which takes `slower` times as long. A checkpoint is written each `checkpoint_steps`.
    `notice` seconds after its beginning the cloud announces that it takes the node away, and
    `fate` what becomes of it then.

    `cut` is the rail whose cable is broken: its port is down at once, and the job waits for it from
    its next step on. `lost` is a GPU that has fallen off the bus, `held` are seconds for which the
    front end keeps each request before the large server's engine has it. `hot` is a rank whose GPU
    is not cooled any more as it should be: it slows itself down, and its products with it. `load`
    times as many requests as usual come to the large server, `agents` being the share of them with
    long prompts.
    """

    data: float = 0.0
    late: float = 0.0
    clock: int | None = None
    straggler: int | None = None
    slower: float = 1.2
    checkpoint_steps: int | None = None
    lost: int | None = None
    held: float = 0.0
    paused: float = 0.0
    pausing: float = 0.0
    notice: float | None = None
    cut: int | None = None
    fate: Literal["terminate", "stop"] = "terminate"
    hot: int | None = None
    load: float = 1.0
    agents: float | None = None
