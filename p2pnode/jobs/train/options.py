"""What a training job is set up with: the run's plan, this node's options, and its own rows of the data."""

from __future__ import annotations

from dataclasses import dataclass

from ...config.options import TrainOptions
from ...config.until import Until
from ...shards.rows import Rows
from ...similarity.partners import partner_settings
from ..model.job import SharingSetup
from .plan import TrainPlan


@dataclass(frozen=True)
class TrainSetup:
    """What a training job works by. `plan` is what all members agreed on, `options` what this node's user wants."""

    plan: TrainPlan
    options: TrainOptions = TrainOptions()  # noqa: RUF009  (frozen)
    rows: Rows | None = None  # of the data; None: this node's part of what every node has
    model_confirmed: bool = True  # the model here computes what the manifest says
    same_probe: bool = True  # the probe here has the run's inputs

    @property
    def genesis(self) -> bytes:
        """The hash of the run's first weights, which names its lineage."""
        return bytes.fromhex(self.plan.genesis)

    @property
    def sharing(self) -> SharingSetup:
        """How the job's model is shared."""
        plan, own = self.plan, self.options
        partners = partner_settings(plan.settings)
        return SharingSetup(self.genesis, plan.aim, partners, plan.round_seconds, own.circle, own.max_disk, self.until)

    @property
    def until(self) -> Until | None:
        """When this node leaves: as its user wants, or at the end of a run with a planned length."""
        return self.options.until or (Until("steps", self.plan.steps) if self.plan.steps else None)

    @property
    def stays_home(self) -> bool:
        """Whether this node brought data that are neither offered nor described to others."""
        return not self.options.share_data and self.rows is not None
