"""Return estimators on time-major arrays."""

from relive.returns.masked import RealSteps
from relive.returns.seed import seed_gae

__all__ = ["RealSteps", "seed_gae"]
