"""The tutorial `docs/tutorials/rollout.md`, command by command."""

import unittest

from suite import tutorial


class Rollout(unittest.TestCase):
    """Three machines and a coordinator."""

    def test_the_first_rollout(self):
        tutorial.follow("rollout.md")


if __name__ == "__main__":
    unittest.main()
