"""Return estimators on time-major arrays."""

from relive.returns.seed import seed_gae

__all__ = ["seed_gae"]
