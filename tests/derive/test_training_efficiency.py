"""TGS, MFU and their kin: as published, by hand, and withheld where they would rest on a guess."""

from __future__ import annotations

import pytest

from exporter import catalogue as c
from exporter.derive.training import Baseline, Stated
from exporter.training import Facts, Moment, Profile, Step
from tests.derive.training_lab import BF16, WALL, Lab, given_work, h100s

LLAMA = Facts(run="a", model="meta-llama/Llama-3.1-8B", sequence_length=8192)


def titan(lab: Lab, *, fp8: bool = True) -> None:
    """Tell the lines of a torchtitan log: pytorch/ao's tutorial of 2025-06-04, 8 H100."""
    lab.tell("log", LLAMA, Facts(run="a", precision="float8" if fp8 else "bfloat16"))
    for number, at, tgs, tflops, mfu in (
        (1, 0.0, 375, 21.73, 2.20),
        (10, 10.5, 7034, 407.35, 41.19),
        (20, 22.2, 7034, 407.35, 41.19),
    ):
        lab.now = 1000 + at
        step = Step(
            run="a", step=number, steps=1 if number == 1 else 10, wall=WALL + lab.now, tgs=tgs,
            flops=tflops * 1e12, mfu=mfu / 100,
        )  # fmt: skip
        lab.tell("log", step)
        lab.look(*h100s(8, lab.now))


def test_a_torchtitan_log_gives_the_published_mfu() -> None:
    """7,034 tokens/s of Llama 3 8B at 8192 are 407.35 TFLOP/s and 41.19 % of 989 by torchtitan."""
    lab = Lab()
    titan(lab)
    assert lab.get(c.TRAIN_TOKENS_PER_SECOND_PER_GPU, "a") == pytest.approx(7034)
    full = lab.get(c.TRAIN_MODEL_FLOPS_PER_SECOND_PER_GPU, "a", "full")
    assert full == pytest.approx(407.35e12, rel=1e-3)
    mfu = lab.get(c.TRAIN_MFU_RATIO, "a", "full", "bf16")
    assert mfu == pytest.approx(0.4119, rel=1e-3)
    assert lab.get(c.TRAIN_MFU_RATIO, "a", "full", "fp8") == pytest.approx(0.4119 / 2, rel=1e-3)
    causal = lab.get(c.TRAIN_MFU_RATIO, "a", "causal", "bf16")
    assert causal == pytest.approx(7034 * 51.4704e9 / 989.4e12, rel=1e-4)
    assert not lab.rows(c.TRAIN_MFU_WITHHELD)


def test_the_framework_s_own_figures_are_told_beside_ours_with_the_difference() -> None:
    """torchtitan counts full attention: against that convention of ours nothing is left."""
    lab = Lab()
    titan(lab)
    reported = lab.get(c.TRAIN_REPORTED_MODEL_FLOPS_PER_SECOND_PER_GPU, "a", "log")
    assert reported == pytest.approx(407.35e12)
    assert lab.get(c.TRAIN_REPORTED_MFU_RATIO, "a", "log") == pytest.approx(0.4119)
    for quantity in ("flops", "mfu"):
        mismatch = lab.get(c.TRAIN_REPORT_MISMATCH_RATIO, "a", "log", quantity)
        assert mismatch == pytest.approx(0, abs=2e-3)
    # Its TGS is the only one there is: nothing to compare it with.
    assert lab.get(c.TRAIN_REPORT_MISMATCH_RATIO, "a", "log", "tokens") is None


def test_tokens_a_framework_overstates_are_seen() -> None:
    """Axolotl printed the tokens of all GPUs as those of each (axolotl 3362)."""
    lab = Lab(work=given_work(50e9))
    lab.tell("log", Facts(run="a", world_size=8))
    lab.run([Step(run="a", step=n, seconds=2.0, tokens=160_000, tgs=80_000) for n in range(1, 20)])
    assert lab.get(c.TRAIN_TOKENS_PER_SECOND_PER_GPU, "a") == pytest.approx(10_000)
    assert lab.get(c.TRAIN_REPORT_MISMATCH_RATIO, "a", "log", "tokens") == pytest.approx(7.0)


def test_the_first_step_compiles_and_counts_for_nothing_in_gauges() -> None:
    """The job's first line says 375 tokens a second; nothing is told until the second."""
    lab = Lab()
    lab.tell("log", LLAMA, Step(run="a", step=1, tgs=375, seconds=40, wall=WALL + lab.now))
    lab.look(*h100s(8, lab.now))
    assert lab.get(c.TRAIN_STEP, "a") == 1
    assert lab.get(c.TRAIN_TOKENS_PER_SECOND_PER_GPU, "a") is None
    assert not lab.rows(c.TRAIN_MFU_WITHHELD)


def test_a_time_that_no_step_can_take_does_not_raise_mfu() -> None:
    """MaxText prints 0.002 s and 917442 TFLOP/s for a step that it did not wait for."""
    lab = Lab(work=given_work(50e9))
    lab.tell("log", Facts(run="a", world_size=1))
    seconds = [11.7, 11.6, 0.002, 11.7, 11.6] * 4
    lab.run(Step(run="a", step=n, seconds=s, tokens=49152) for n, s in enumerate(seconds, 5))
    assert lab.get(c.TRAIN_TOKENS_PER_SECOND_PER_GPU, "a") == pytest.approx(49152 / 11.65, rel=1e-3)
    assert lab.get(c.TRAIN_STEP_MEDIAN_SECONDS, "a") == pytest.approx(11.6)


def test_megatron_s_line_needs_the_sequence_length_and_the_world_size() -> None:
    """DeepSeek-V3's step of 15.8 s and 2048 samples: a line tells neither; without, no TGS."""
    line = [Step(run="a", step=n, seconds=15.8, wall=None) for n in range(5, 12)]
    lab = Lab(work=given_work(250e9))
    lab.tell("log", Facts(run="a", global_batch=2048))
    lab.run(line)
    assert lab.get(c.TRAIN_SAMPLES_PER_SECOND, "a") == pytest.approx(129.62, abs=0.01)
    assert lab.rows(c.TRAIN_MFU_WITHHELD).keys() >= {("a", "unknown_tokens")}
    assert lab.get(c.TRAIN_TOKENS_PER_SECOND, "a") is None

    stated = Stated(facts=Facts(run="*", sequence_length=4096, world_size=256))
    lab = Lab(stated, work=given_work(250e9))
    lab.tell("log", Facts(run="a", global_batch=2048))
    lab.run(line)
    # 2048 x 4096 / 15.8 = 530,925 tokens a second; over 256 GPUs 2,073.9.
    assert lab.get(c.TRAIN_TOKENS_PER_SECOND, "a") == pytest.approx(530_925, rel=1e-5)
    assert lab.get(c.TRAIN_TOKENS_PER_SECOND_PER_GPU, "a") == pytest.approx(2073.9, rel=1e-4)
    assert lab.get(c.TRAIN_TOKENS_TOTAL, "a") == pytest.approx(7 * 8_388_608)


# ---------------------------------------------------------------- what others got wrong


def test_mfu_of_156_percent_is_withheld_not_clamped() -> None:
    """NVIDIA-NeMo/RL 1015: tokens of all ranks of a context group were added up."""
    lab = Lab(work=given_work(50e9))
    lab.tell("push", Facts(run="a", world_size=8, precision="bf16"))
    # Each of eight ranks says that it trained on 25,000 tokens in 1 s: 1.26 of the peak of each.
    for n in range(1, 15):
        lab.now += 1.0
        for rank in range(8):
            lab.tell("push", Step(run="a", step=n, rank=rank, scope="rank", seconds=1.0,
                                  tokens=25_000))  # fmt: skip
        lab.look(*h100s(8, lab.now))
    assert lab.rows(c.TRAIN_MFU_WITHHELD) == {("a", "above_one"): 1}
    assert not lab.rows(c.TRAIN_MFU_RATIO)
    assert not lab.rows(c.TRAIN_MFU_LOSS_RATIO)


def test_hfu_above_1_is_withheld_too_and_said() -> None:
    """MFU of 95 % with full recomputation: more was computed than the peak allows."""
    lab = Lab(work=given_work(150e9, again=200e9))
    for n in range(1, 31):
        lab.now += 2
        lab.tell("log", Facts(run="a", world_size=8), Step(run="a", step=n, seconds=2, tokens=1e5))
        lab.look(*h100s(8, lab.now))
    assert lab.rows(c.TRAIN_MFU_WITHHELD) == {("a", "above_one"): 1}
    assert not {*lab.rows(c.TRAIN_MFU_RATIO), *lab.rows(c.TRAIN_MFU_LOSS_RATIO)}


def test_ranks_of_a_context_group_share_their_tokens() -> None:
    """The same job, and it says that context parallelism spreads each sequence over all eight."""
    lab = Lab(work=given_work(50e9))
    lab.tell("push", Facts(run="a", world_size=8, context_parallel=8, precision="bf16"))
    for n in range(1, 15):
        lab.now += 1.0
        for rank in range(8):
            lab.tell("push", Step(run="a", step=n, rank=rank, scope="rank", seconds=1.0,
                                  tokens=25_000))  # fmt: skip
        lab.look(*h100s(8, lab.now))
    assert lab.get(c.TRAIN_TOKENS_PER_SECOND_PER_GPU, "a") == pytest.approx(3125)
    assert lab.get(c.TRAIN_MFU_RATIO, "a", "causal", "bf16") == pytest.approx(0.15793, rel=1e-4)


def test_an_unknown_device_has_no_mfu() -> None:
    """radixark/miles PR 2353: an unknown device was given another one's peak, with sparsity."""
    lab = Lab(work=given_work(50e9))
    lab.tell("log", Facts(run="a", world_size=8))
    steps = [Step(run="a", step=n, seconds=2.0, tokens=128_000) for n in range(1, 20)]
    lab.run(steps, board=lambda t: h100s(8, t, name="NVIDIA Q900", peaks={}))
    assert lab.rows(c.TRAIN_MFU_WITHHELD) == {("a", "unknown_accelerator"): 1}
    assert not lab.rows(c.TRAIN_MFU_RATIO)
    assert lab.get(c.TRAIN_TOKENS_PER_SECOND_PER_GPU, "a") == pytest.approx(8000)


def test_the_peak_is_dense() -> None:
    """miles PR 2353: 1979 TFLOP/s of an H100's data sheet are with sparsity, twice the dense."""
    lab = Lab(work=given_work(50e9))
    lab.tell("log", Facts(run="a", world_size=1, precision="bf16"))
    steps = [Step(run="a", step=n, seconds=1.0, tokens=9894) for n in range(1, 20)]
    lab.run(steps, board=lambda t: h100s(1, t))
    assert lab.rows(c.TRAIN_PEAK_FLOPS_PER_GPU) == {("a", "bf16"): BF16}
    assert lab.get(c.TRAIN_MFU_RATIO, "a", "causal", "bf16") == pytest.approx(0.5)


def test_accumulated_gradients_count() -> None:
    """NVIDIA/bionemo-framework PR 1548: MFU fell by as much as gradients were accumulated."""
    lab = Lab(work=given_work(50e9))
    parts = {"micro_batch": 2, "data_parallel": 4, "sequence_length": 4096, "world_size": 4}
    lab.tell("log", Facts(run="a", **parts))
    lab.run(Step(run="a", step=n, seconds=4.0) for n in range(1, 20))
    # How many micro-batches a step has is not known: it is not taken for one.
    assert lab.get(c.TRAIN_TOKENS_PER_SECOND, "a") is None
    assert ("a", "unknown_tokens") in lab.rows(c.TRAIN_MFU_WITHHELD)

    lab = Lab(work=given_work(50e9))
    lab.tell("log", Facts(run="a", **parts, micro_batches=8))
    lab.run(Step(run="a", step=n, seconds=4.0) for n in range(1, 20))
    # 2 x 8 x 4 samples of 4096 tokens in 4 s.
    assert lab.get(c.TRAIN_TOKENS_PER_SECOND, "a") == pytest.approx(65_536)
    assert lab.get(c.TRAIN_TOKENS_PER_SECOND_PER_GPU, "a") == pytest.approx(16_384)


def test_tensor_parallel_ranks_do_not_divide_the_rate_again() -> None:
    """pytorch/torchtitan 1989: its tps is per GPU already, whatever the tensor parallelism."""
    lab = Lab()
    facts = Facts(run="a", world_size=8, tensor_parallel=8, data_parallel=1)
    lab.tell("log", LLAMA, facts)
    for n in range(1, 20):
        lab.now += 2.0
        lab.tell("log", Step(run="a", step=n, tgs=7034, wall=WALL + lab.now))
        lab.look(*h100s(8, lab.now))
    assert lab.get(c.TRAIN_TOKENS_PER_SECOND_PER_GPU, "a") == pytest.approx(7034)
    assert lab.get(c.TRAIN_TOKENS_PER_SECOND, "a") == pytest.approx(8 * 7034)
    assert lab.get(c.TRAIN_MFU_RATIO, "a", "full", "bf16") == pytest.approx(0.4117, rel=1e-3)


def test_ranks_of_a_tensor_group_see_the_same_tokens() -> None:
    """Two ranks of each group of four: what each says it has seen is added up once."""
    lab = Lab(work=given_work(50e9))
    lab.tell("push", Facts(run="a", world_size=8, tensor_parallel=4))
    for n in range(1, 15):
        lab.now += 1.0
        for rank in range(8):
            lab.tell("push", Step(run="a", step=n, rank=rank, scope="rank", seconds=1.0,
                                  tokens=4096))  # fmt: skip
        lab.look()
    assert lab.get(c.TRAIN_TOKENS_PER_SECOND, "a") == pytest.approx(2 * 4096)
    assert lab.get(c.TRAIN_TOKENS_TOTAL, "a") == pytest.approx(14 * 2 * 4096)


# ---------------------------------------------------------------- accelerators


def test_accelerators_of_two_kinds_have_no_common_mfu() -> None:
    """A run over an H100 and something slower."""
    lab = Lab(work=given_work(50e9))
    lab.tell("log", Facts(run="a", world_size=2))

    def board(t: float) -> list:
        return [
            *h100s(1, t),
            *[s for s in h100s(2, t, peaks={"bf16": 312e12}) if s.labels[0] == "1"],
        ]

    lab.run([Step(run="a", step=n, seconds=2.0, tokens=16_000) for n in range(1, 20)], board=board)
    assert lab.rows(c.TRAIN_MFU_WITHHELD) == {("a", "mixed_accelerators"): 1}


def test_a_gpu_that_is_split_has_no_peak_of_its_own() -> None:
    """Which instance a run has is not known, so neither is its peak."""
    lab = Lab(work=given_work(50e9))
    lab.tell("log", Facts(run="a", world_size=1))
    lab.run(
        [Step(run="a", step=n, seconds=2.0, tokens=16_000) for n in range(1, 20)],
        board=lambda t: [*h100s(1, t), c.GPU_MIG_MODE(1, "0", "GPU-0")],
    )
    assert lab.rows(c.TRAIN_MFU_WITHHELD) == {("a", "unknown_accelerator"): 1}


def test_a_machine_without_gpus_takes_the_operator_s_accelerator() -> None:
    """A run on CPUs, and `accelerators:` says what a rank could do at most."""
    steps = [Step(run="a", step=n, seconds=2.0, tokens=16_000) for n in range(1, 20)]
    lab = Lab(work=given_work(1e6), own={"cpu": {"bf16": 1e11}})
    lab.tell("log", Facts(run="a", world_size=2))
    lab.run(steps)
    # 4,000 tokens a second and rank, a million FLOPs each.
    assert lab.get(c.TRAIN_MFU_RATIO, "a", "causal", "bf16") == pytest.approx(0.04)

    lab = Lab(work=given_work(1e6))
    lab.tell("log", Facts(run="a", world_size=2))
    lab.run(steps)
    assert not lab.rows(c.TRAIN_MFU_RATIO)
    assert lab.rows(c.TRAIN_MFU_WITHHELD) == {("a", "unknown_accelerator"): 1}


def test_of_two_accelerators_of_the_operator_s_one_must_be_named() -> None:
    """Which of them a run works on would be a guess."""
    steps = [Step(run="a", step=n, seconds=2.0, tokens=16_000) for n in range(1, 20)]
    own = {"small": {"bf16": 1e11}, "large": {"bf16": 2e11}}
    lab = Lab(work=given_work(1e6), own=own)
    lab.tell("log", Facts(run="a", world_size=2))
    lab.run(steps)
    assert lab.rows(c.TRAIN_MFU_WITHHELD) == {("a", "unknown_accelerator"): 1}
    lab = Lab(Stated(accelerator="large"), work=given_work(1e6), own=own)
    lab.tell("log", Facts(run="a", world_size=2))
    lab.run(steps)
    assert lab.get(c.TRAIN_MFU_RATIO, "a", "causal", "bf16") == pytest.approx(0.02)


def test_a_model_that_cannot_be_counted_is_a_reason() -> None:
    """TGS needs no model."""
    lab = Lab()
    lab.tell("log", Facts(run="a", world_size=1, model="in-house-7b"))
    steps = [Step(run="a", step=n, seconds=2.0, tokens=16_000) for n in range(1, 20)]
    lab.run(steps, board=lambda t: h100s(1, t))
    assert lab.rows(c.TRAIN_MFU_WITHHELD) == {("a", "unknown_model"): 1}
    assert lab.get(c.TRAIN_TOKENS_PER_SECOND_PER_GPU, "a") == pytest.approx(8000)


def test_a_run_in_fp8_may_exceed_the_peak_of_bf16() -> None:
    """That one is not told, and the one at its own peak is; nothing is wrong."""
    lab = Lab(work=given_work(1e11))
    lab.tell("log", Facts(run="a", world_size=1, precision="fp8"))
    steps = [Step(run="a", step=n, seconds=1.0, tokens=9894 * 1.2) for n in range(1, 20)]
    lab.run(steps, board=lambda t: h100s(1, t))
    assert set(lab.rows(c.TRAIN_MFU_RATIO)) == {("a", "causal", "fp8")}
    assert lab.get(c.TRAIN_MFU_RATIO, "a", "causal", "fp8") == pytest.approx(0.6, rel=1e-3)
    assert not lab.rows(c.TRAIN_MFU_WITHHELD)


# ---------------------------------------------------------------- the rest, by hand


def test_bubble_by_theory_is_a_share_of_the_step() -> None:
    """16 stages and 64 micro-batches: 15/79, not the 15/64 that relates it to the work."""
    lab = Lab(work=given_work(50e9))
    lab.tell("log", Facts(run="a", pipeline_parallel=16, micro_batches=64, schedule="1F1B"))
    lab.run(Step(run="a", step=n, seconds=2.0) for n in range(1, 20))
    found = lab.get(c.TRAIN_PIPELINE_BUBBLE_RATIO, "a", "theoretical")
    assert found == pytest.approx(0.189873, abs=1e-6)
    assert lab.get(c.TRAIN_PIPELINE_BUBBLE_RATIO, "a", "measured") is None


def test_virtual_stages_shrink_the_bubble() -> None:
    """4 stages of 2 pieces each, 8 micro-batches: 3/19; and DeepSeek-V3's step by measurement."""
    lab = Lab(work=given_work(50e9))
    lab.tell("log", Facts(run="a", pipeline_parallel=4, virtual_stages=2, micro_batches=8))
    lab.run(Step(run="a", step=n, seconds=19.926, phases={"bubble": 2.06}) for n in range(1, 20))
    theory = lab.get(c.TRAIN_PIPELINE_BUBBLE_RATIO, "a", "theoretical")
    assert theory == pytest.approx(0.157895, abs=1e-6)
    measured = lab.get(c.TRAIN_PIPELINE_BUBBLE_RATIO, "a", "measured")
    assert measured == pytest.approx(0.10338, abs=1e-5)


def test_scaling_is_measured_against_the_stated_baseline() -> None:
    """Megatron-style weak scaling: 900 tokens a second and GPU where one node had 1000."""
    lab = Lab(Stated(baseline=Baseline(1000, 8, "weak")), work=given_work(50e9))
    lab.tell("log", Facts(run="a", world_size=64))
    lab.run(Step(run="a", step=n, seconds=2.0, tokens=115_200) for n in range(1, 20))
    assert lab.get(c.TRAIN_SCALING_EFFICIENCY_RATIO, "a", "weak") == pytest.approx(0.9)


def test_shares_of_time_are_those_that_the_job_measured() -> None:
    """0.3 s of 2 s for data, 0.5 s of waiting in 0.8 s of communication."""
    lab = Lab(work=given_work(50e9))
    lab.run(
        Step(run="a", step=n, seconds=2.0, phases={"data": 0.3, "communication": 0.5},
             communication=0.8)
        for n in range(1, 20)
    )  # fmt: skip
    assert lab.get(c.TRAIN_DATA_LOADING_RATIO, "a") == pytest.approx(0.15)
    ratio = c.TRAIN_COMMUNICATION_RATIO
    assert lab.get(ratio, "a", "exposed", "measured") == pytest.approx(0.25)
    assert lab.get(ratio, "a", "total", "measured") == pytest.approx(0.4)
    overlap = lab.get(c.TRAIN_COMMUNICATION_OVERLAP_RATIO, "a", "measured")
    assert overlap == pytest.approx(0.375)


def test_a_profile_tells_of_communication_too_while_it_is_young() -> None:
    """0.12 of 10 s exposed of 0.43 s in all: 72 % are hidden."""
    lab = Lab(work=given_work(50e9))
    profile = Profile(
        run="a", rank=0, wall=WALL + 1000, seconds=10, matmul=7, memory_bound=2, copies=0.1,
        exposed_communication=0.12, idle=0.78, communication=0.43, launches=842,
    )  # fmt: skip
    lab.tell("trace", profile)
    lab.run(Step(run="a", step=n, seconds=2.0) for n in range(1, 20))
    overlap = lab.get(c.TRAIN_COMMUNICATION_OVERLAP_RATIO, "a", "profiled")
    assert overlap == pytest.approx(0.72, abs=0.002)
    lab.run(Step(run="a", step=n, seconds=200.0) for n in range(20, 50))
    assert lab.get(c.TRAIN_COMMUNICATION_OVERLAP_RATIO, "a", "profiled") is None


def test_energy_of_a_token_is_that_of_the_gpus() -> None:
    """650 W for each GPU that does 8,000 tokens a second."""
    lab = Lab(work=given_work(50e9))
    lab.tell("log", Facts(run="a", world_size=16))
    steps = [Step(run="a", step=n, seconds=2.0, tokens=256_000, energy=5) for n in range(1, 60)]
    lab.run(steps, board=lambda t: h100s(8, t))
    assert lab.get(c.TRAIN_ENERGY_JOULES_PER_TOKEN, "a") == pytest.approx(0.08125, rel=1e-6)


def test_energy_that_the_framework_tells_serves_where_no_gpu_does() -> None:
    """Megatron's 1,300 J for each GPU and step: 16 GPUs, 256,000 tokens."""
    lab = Lab(work=given_work(50e9))
    lab.tell("log", Facts(run="a", world_size=16))
    lab.run([Step(run="a", step=n, seconds=2.0, tokens=256_000, energy=1300) for n in range(1, 30)])
    assert lab.get(c.TRAIN_ENERGY_JOULES_PER_TOKEN, "a") == pytest.approx(0.08125)


def test_the_gpus_of_a_run_are_those_that_its_ranks_have() -> None:
    """Two runs on a node: each is told the bandwidth of its own GPUs."""
    lab = Lab(work=given_work(50e9))
    lab.tell("push", Facts(run="a", world_size=1, local_ranks={0: 0}))
    lab.tell("push", Facts(run="b", world_size=1))

    def board(t: float) -> list:
        quiet = [s for s in h100s(2, t, dram=0.1) if s.labels[0] == "1"]
        return [*h100s(1, t, dram=0.7), *quiet]

    for n in range(1, 30):
        lab.now += 2
        for run in ("a", "b"):
            lab.tell("push", Step(run=run, step=n, seconds=2.0, tokens=100))
        lab.look(*board(lab.now))
    assert lab.get(c.TRAIN_HBM_BANDWIDTH_UTILIZATION_RATIO, "a") == pytest.approx(0.7)
    assert lab.get(c.TRAIN_HBM_BANDWIDTH_UTILIZATION_RATIO, "b") is None
    # The peak is the same for all GPUs of the node, so whichever they are it is known.
    assert lab.get(c.TRAIN_PEAK_FLOPS_PER_GPU, "b", "bf16") == BF16


def test_two_runs_of_a_node_do_not_both_have_all_of_its_gpus() -> None:
    """Nobody tells which GPUs they have: what these do is told of neither."""
    lab = Lab(work=given_work(50e9))
    for n in range(1, 31):
        lab.now += 2
        for run in ("a", "b"):
            lab.tell("log", Facts(run=run, world_size=8))
            lab.tell("log", Step(run=run, step=n, seconds=2, tokens=1e4))
        lab.look(*h100s(8, lab.now))
    assert set(lab.rows(c.TRAIN_MFU_RATIO)) == {("a", "causal", "bf16"), ("b", "causal", "bf16")}
    for metric in (c.TRAIN_RUN_GPU, c.TRAIN_ENERGY_JOULES_PER_TOKEN, c.TRAIN_GPU_ACTIVE_RATIO):
        assert not lab.rows(metric)
    causes = {(cause, evidence) for _, cause, evidence in lab.rows(c.TRAIN_MFU_LOSS_RATIO)}
    assert causes == {("unexplained", "remainder")}


def test_parameters_are_counted() -> None:
    """Llama 3.1 8B has 8,030,261,248."""
    lab = Lab()
    lab.tell("log", LLAMA, Step(run="a", step=1, wall=WALL + lab.now))
    lab.look()
    assert lab.get(c.TRAIN_PARAMETERS, "a", "total") == 8_030_261_248


def test_a_run_that_has_ended_has_no_gauges() -> None:
    """Its counters stay a while, to be scraped once more."""
    lab = Lab(work=given_work(50e9))
    lab.run(Step(run="a", step=n, seconds=2.0, tokens=100) for n in range(1, 20))
    assert lab.get(c.TRAIN_STEPS_PER_SECOND, "a") == pytest.approx(0.5)
    lab.tell("log", Moment(run="a", kind="ended", wall=WALL + lab.now))
    lab.look()
    assert lab.get(c.TRAIN_STEPS_PER_SECOND, "a") is None
    assert lab.get(c.TRAIN_STEPS_TOTAL, "a") == 19
    lab.now += 400
    assert not lab.look()
