"""Which steps are drawn, and with which weight. A sampler says how; its state lies beside the steps."""

from relive.samplers.prioritized import Prioritized, RankPrioritized
from relive.samplers.schedules import Constant, Linear
from relive.samplers.uniform import Uniform

__all__ = ["Constant", "Linear", "Prioritized", "RankPrioritized", "Uniform"]
