"""The tutorial `docs/tutorials/node.md`, command by command."""

import unittest

from suite import tutorial


class Node(unittest.TestCase):
    """One machine."""

    def test_a_node_in_ten_minutes(self):
        tutorial.follow("node.md")


if __name__ == "__main__":
    unittest.main()
