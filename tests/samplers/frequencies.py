"""Do draws come as often as they should?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping

from scipy import stats


def pvalue(drawn: Iterable[Hashable], expected: Mapping[Hashable, float]) -> float:
    """Of a chi-square test; 0 where something came that has no share at all.

    Args:
        drawn: what came.
        expected: its probabilities, which are scaled to a sum of one.
    """
    counts = Counter(drawn)
    total = sum(expected.values())
    possible = [item for item, share in expected.items() if share > 0]
    if not set(counts) <= set(possible):
        return 0.0
    draws = sum(counts.values())
    shares = [draws * expected[item] / total for item in possible]
    assert min(shares) >= 5, "draw more, or the test says nothing"
    return float(stats.chisquare([counts[item] for item in possible], shares).pvalue) if len(possible) > 1 else 1.0


def fits(drawn: Iterable[Hashable], expected: Mapping[Hashable, float]) -> bool:
    """With a fixed seed a test is passed for ever, or never."""
    return pvalue(drawn, expected) > 1e-4


def are_equal(drawn: Iterable[Hashable], possible: Iterable[Hashable]) -> bool:
    return fits(drawn, dict.fromkeys(possible, 1.0))
