"""Figures: quantiles, and the line that a story prints for each.

Owns their form. Must not measure.
"""

import statistics


def quantile(values, share):
    """The value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(values):
    """The median."""
    return statistics.median(values)


def show(what, figure, goal="", met=None):
    """Prints one line for the table; `met`: whether the goal is, None where there is none."""
    verdict = "" if met is None else "met" if met else "MISSED"
    print(f"bench: {what} | {figure} | {goal} | {verdict}", flush=True)


def spread(what, seconds, median_goal=None, p99_goal=None):
    """Prints median and 99th percentile of times in milliseconds, each beside its goal."""
    half, most = 1e3 * median(seconds), 1e3 * quantile(seconds, 0.99)
    goals = [f"{goal} ms" for goal in (median_goal, p99_goal) if goal]
    met = None if not goals else half <= median_goal and most <= p99_goal
    show(what, f"median {half:.2f} ms, p99 {most:.2f} ms, {len(seconds)} times", "≤ " + " / ".join(goals) if goals else "", met)
