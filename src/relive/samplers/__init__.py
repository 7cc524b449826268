"""Which steps are drawn, and with which weight. A sampler says how; its state lies beside the steps."""

from relive.samplers.prioritized import Prioritized, RankPrioritized
from relive.samplers.uniform import Uniform

__all__ = ["Prioritized", "RankPrioritized", "Uniform"]
