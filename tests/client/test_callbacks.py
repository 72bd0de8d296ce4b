"""The callbacks: in the order of calls that the frameworks document, and within the real ones.

The real ones need their libraries: `FLOPWATCH_TRANSFORMERS_PYTHON` and `FLOPWATCH_LIGHTNING_PYTHON`
name interpreters that have `transformers`, `accelerate` and `torch`, or `lightning` and `torch`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from exporter.training import Facts, Moment, Step
from tests.client.test_client import CLIENT, Hand, Listener, folder, hand, listener, nowhere

__all__ = ["folder", "hand", "listener", "nowhere"]


class Bag(types.SimpleNamespace):
    """Arguments, states, models: anything with attributes."""


def without(*names: str) -> None:
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def huggingface(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The callback over a stand-in for `transformers`: only its base class is needed."""
    stand_in = types.ModuleType("transformers")
    stand_in.TrainerCallback = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", stand_in)
    without("exporter.client.huggingface")
    from exporter.client import huggingface

    yield huggingface
    without("exporter.client.huggingface")


@pytest.fixture
def lightning(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The callback over a stand-in for `lightning`."""
    for name in ("lightning", "lightning.pytorch", "lightning.pytorch.callbacks"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["lightning.pytorch.callbacks"].Callback = object  # type: ignore[attr-defined]
    without("exporter.client.lightning")
    from exporter.client import lightning

    yield lightning
    without("exporter.client.lightning")


ARGUMENTS = Bag(
    world_size=2, process_index=0, run_name=None, output_dir="/x/tiny", train_batch_size=4,
    gradient_accumulation_steps=8, bf16=True, fp16=False, gradient_checkpointing=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("given", "environment", "name"),
    [
        (None, "", "tiny"),
        ("llama", "", "llama"),
        ("./out/tiny", "", "tiny"),
        ("llama", "llama-70b", "llama-70b"),
    ],
)
def test_a_trainers_run_is_called_as_its_files_and_its_ranks_are(
    huggingface: Any, given: str | None, environment: str, name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Transformers before 5 gives it its folder's whole path; FLOPWATCH_RUN goes before all."""
    monkeypatch.setenv("FLOPWATCH_RUN", environment)
    arguments = Bag(run_name=given, output_dir="./out/tiny")
    assert huggingface._name(arguments) == name


def test_the_trainer_of_hugging_face(
    huggingface: Any, listener: Listener, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step ends, is logged, evaluated, saved: each time is in one place only."""
    monkeypatch.setattr(huggingface, "_clock", hand)
    parameter = Bag(requires_grad=True, numel=lambda: 10)
    frozen = Bag(requires_grad=False, numel=lambda: 90)
    config = Bag(name_or_path="tiny", to_dict=lambda: {"hidden_size": 8})
    model = Bag(config=config, parameters=lambda: iter((parameter, frozen)))
    state = Bag(global_step=100, max_steps=102, num_input_tokens_seen=1000)
    callback = huggingface.FlopwatchCallback(url=listener.url)

    def tell(event: str, **more: Any) -> None:
        getattr(callback, event)(ARGUMENTS, state, Bag(), model=model, **more)

    tell("on_train_begin")
    for step in (101, 102):
        hand.spend(0.03)
        tell("on_step_begin")
        hand.spend(0.05)
        state.global_step, state.num_input_tokens_seen = step, 1000 * (step - 99)
        tell("on_step_end")
        if step == 101:
            tell("on_log", logs={"loss": 0.5, "grad_norm": 2.0, "learning_rate": 1e-4})
            hand.spend(0.1)
            tell("on_evaluate", metrics={})
            tell("on_log", logs={"eval_loss": 0.7})
            hand.spend(0.06)
            tell("on_save")
    tell("on_train_end")
    assert callback._run._sender is not None
    callback._run._sender.flush(10)

    first, second = listener.of(Step)
    assert (first.step, first.rank, first.tokens, first.loss) == (101, 0, 1000, 0.5)
    assert (first.gradient_norm, first.learning_rate) == (2.0, 1e-4)
    assert (second.step, second.tokens, second.loss) == (102, 1000, None)
    for one in (first, second):
        assert one.phases["data"] == pytest.approx(0.03)
        assert one.seconds == pytest.approx(0.08)
    assert first.wall <= second.wall
    facts = listener.of(Facts)[-1]
    assert (facts.run, facts.world_size, facts.global_batch) == ("tiny", 2, 64)
    assert (facts.precision, facts.recompute, facts.last_step) == ("bf16", "full", 102)
    assert (facts.trainable, facts.adapter_parameters) == ("adapters", 10)
    moments = {one.kind: one for one in listener.of(Moment)}
    assert set(moments) == {
        "started", "checkpoint_loaded", "first_step", "checkpoint_saved", "ended",
    }  # fmt: skip
    assert moments["checkpoint_loaded"].step == 100
    assert moments["checkpoint_saved"].seconds == pytest.approx(0.06)


def test_the_trainer_of_lightning(
    lightning: Any, listener: Listener, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two batches are one step; validation is no waiting for data."""
    monkeypatch.setattr(lightning, "_clock", hand)
    trainer = Bag(
        world_size=2, global_rank=1, global_step=0, precision="bf16-mixed", max_steps=-1,
        accumulate_grad_batches=2,
    )  # fmt: skip
    callback = lightning.FlopwatchCallback(url=listener.url, name="lit", tokens=len)
    callback.on_train_start(trainer, None)
    for batch in range(4):
        hand.spend(0.02)
        callback.on_train_batch_start(trainer, None, "abc", batch)
        hand.spend(0.03)
        trainer.global_step = (batch + 1) // 2
        callback.on_train_batch_end(trainer, None, None, "abc", batch)
        if batch == 1:
            callback.on_validation_start(trainer, None)
            hand.spend(0.2)
    callback.on_exception(trainer, None, ValueError("secret"))
    assert callback._run._sender is not None
    callback._run._sender.flush(10)

    first, second = listener.of(Step)
    assert (first.rank, first.scope, first.tokens) == (1, "rank", 6)
    assert first.seconds == pytest.approx(0.1)
    assert first.phases["data"] == pytest.approx(0.04)
    assert second.seconds == pytest.approx(0.08)
    assert second.phases["data"] == pytest.approx(0.02)
    assert [(one.kind, one.detail) for one in listener.of(Moment)] == [("failed", "ValueError")]


def run_real(variable: str, script: str, listener: Listener, folder: Path) -> None:
    python = os.environ.get(variable, "")
    if not python:
        pytest.skip(f"{variable} is not set")
    shutil.copytree(CLIENT, folder / "flopwatch_client")
    made = Path(__file__).with_name(script)
    ended = subprocess.run(
        [python, str(made), listener.url, str(folder), str(folder / "out")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    print(ended.stdout)


@pytest.mark.real
def test_a_real_trainer_of_hugging_face(listener: Listener, folder: Path) -> None:
    """8 steps of 2 x 2 rows of 32 tokens, logged each 2 and saved each 4; a row takes 10 ms."""
    run_real("FLOPWATCH_TRANSFORMERS_PYTHON", "real_huggingface.py", listener, folder)
    steps = listener.of(Step)
    assert [one.step for one in steps] == list(range(1, 9))
    assert {one.tokens for one in steps} == {128}
    assert [one.step for one in steps if one.loss is not None] == [2, 4, 6, 8]
    assert all(0.03 < one.phases["data"] < one.seconds for one in steps)
    kinds = [one.kind for one in listener.of(Moment)]
    assert sorted(kinds) == ["checkpoint_saved"] * 2 + ["ended", "first_step", "started"]
    (facts,) = listener.of(Facts)
    assert (facts.framework, facts.global_batch) == ("transformers", 4)
    assert facts.config["hidden_size"] == 32


@pytest.mark.real
def test_a_real_trainer_of_lightning(listener: Listener, folder: Path) -> None:
    """10 batches of 4 rows of 8 numbers make 5 steps; a row takes 10 ms."""
    run_real("FLOPWATCH_LIGHTNING_PYTHON", "real_lightning.py", listener, folder)
    steps = listener.of(Step)
    assert [one.step for one in steps] == [1, 2, 3, 4, 5]
    assert {one.tokens for one in steps} == {64}
    assert all(0.06 < one.phases["data"] < one.seconds for one in steps)
    kinds = [one.kind for one in listener.of(Moment)]
    assert sorted(kinds) == ["checkpoint_saved", "ended", "first_step", "started"]
