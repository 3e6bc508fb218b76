"""What a paths job works with: the plan, the model and its parts, and routed data. Nodes of a simulation share it."""

from __future__ import annotations

from dataclasses import dataclass

from ...compression.weights import Floats
from ...training.host import ModelHost
from ..blocks.layout import ModelParts
from .plan import PathsPlan
from .routing import RoutedSamples


@dataclass(frozen=True, eq=False)
class PathsSetup:
    """All of it is read-only, but for the model, which trainers use in turn."""

    plan: PathsPlan
    host: ModelHost
    parts: ModelParts
    genesis: Floats  # the first weights of a path
    train: RoutedSamples
    test: RoutedSamples
