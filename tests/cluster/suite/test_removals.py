"""Many removals at once: which of them are held."""

import time
import unittest

from kit.agent import grant
from kit.control_plane import ControlPlane
from kit.wait import never
from kit.wait import until
from suite.bare import SOON
from suite.bare import WORLD
from suite.bare import Story


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server for all, without any controller, and the agents' rights as they are packaged."""
    WORLD.cluster = unittest.enterModuleContext(ControlPlane())
    grant(WORLD.cluster)


class ManyRemovals(Story):
    """Many absences at once are held until a second list says the same."""

    def test_absences_are_held_and_deletions_are_not(self):
        agent = self.start_agent(removals_delay="5s")
        names = [f"many{number}" for number in range(6)]
        for name in names:
            self.put(self.daemon(name))
        first = {name: self.instance(agent, name) for name in names}
        self.settled(agent)
        agent.stop()
        for name in names[:5]:
            self.remove(name)
        agent.start()
        self.says(agent, "max-removals")
        began = time.monotonic()
        never(lambda: any(self.instances(agent, name) != [first[name]] for name in names), 3, "an absence was believed at once")
        for name in names[:5]:
            self.wait_gone(agent, name)
        print(f"          five absences: removed {time.monotonic() - began:.1f} s after they were held (removals-delay 5 s)")
        self.keeps(agent, first[names[5]], names[5], 1)

    def test_deletions_that_were_seen_are_not_held(self):
        agent = self.start_agent(removals_delay="600s")
        names = [f"few{number}" for number in range(4)]
        for name in names:
            self.put(self.daemon(name))
        for name in names:
            self.instance(agent, name)
        self.settled(agent)
        for name in names:
            self.remove(name)
        for name in names:
            self.wait_gone(agent, name)

    def test_what_comes_back_while_it_is_held_stays_as_it_was(self):
        agent = self.start_agent(removals_delay="600s")
        names = [f"back{number}" for number in range(6)]
        for name in names:
            self.put(self.daemon(name))
        first = {name: self.instance(agent, name) for name in names}
        self.settled(agent)
        agent.stop()
        for name in names:
            self.remove(name)
        agent.start()
        self.says(agent, "max-removals")
        self.put(self.daemon(names[0]))
        until(lambda: "max-removals" not in self.status(agent, names[0])["reason"], SOON, "it is back")
        never(lambda: any(self.instances(agent, name) != [first[name]] for name in names), 2, "something was removed or replaced")


if __name__ == "__main__":
    unittest.main()
