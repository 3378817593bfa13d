"""The tutorial `docs/tutorials/machines.md`, command by command."""

import unittest

from suite import tutorial


class Machines(unittest.TestCase):
    """Three machines, of which one loses its power."""

    def test_three_machines(self):
        tutorial.follow("machines.md")


if __name__ == "__main__":
    unittest.main()
