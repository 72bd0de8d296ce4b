"""A tiny run of the real Trainer of Lightning: address, folder of the client, output."""

import sys
import time
from typing import Any

import lightning.pytorch as pl
import torch

sys.path.insert(0, sys.argv[2])
from flopwatch_client.lightning import FlopwatchCallback


class Data(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, n: int) -> Any:
        time.sleep(0.01)
        return torch.randn(8)


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch: Any, index: int) -> Any:
        return self.layer(batch).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


trainer = pl.Trainer(
    max_epochs=1,
    accelerator="cpu",
    accumulate_grad_batches=2,
    logger=False,
    enable_progress_bar=False,
    default_root_dir=sys.argv[3],
    callbacks=[FlopwatchCallback(url=sys.argv[1], name="lit", tokens=lambda batch: batch.numel())],
)
trainer.fit(Model(), torch.utils.data.DataLoader(Data(), batch_size=4))
