"""The showcase's first act as a test: baked machines, a rolling update, a bad one, and power lost while the API is cut off."""

import unittest

import acts
from kit import networks
from suite.story import Story


class Showcase(Story):
    """Three machines with the .deb and the file of the repository's own CNI."""

    def test_the_first_act_comes_to_its_end_in_time(self):
        with acts.ExitStack() as stack:
            times = acts.Daemonlet(stack, networks.example()).play()
        print("          " + ", ".join(f"{key} {seconds:.1f} s" for key, seconds in times.items()))
        self.assertEqual(set(times), {"ready", "container", "node", "network", "update", "bad", "cold", "back"})
        # The flannel story holds it to ten seconds; here packaging and three boots share the machine.
        self.assertLess(times["back"], 20, "the network soon after the API's return")


if __name__ == "__main__":
    unittest.main()
