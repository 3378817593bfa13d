"""The tutorial `docs/tutorials/kubelet.md`, command by command."""

import unittest

from suite import tutorial


class Node(unittest.TestCase):
    """One machine."""

    def test_a_node_with_a_kubelet(self):
        tutorial.follow("kubelet.md")


if __name__ == "__main__":
    unittest.main()
