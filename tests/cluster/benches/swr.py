import os, time
from benches import swarm
from benches.swarm import *
def tell(self):
    self.start()
    began = self.create("net")
    self.swarm.until_all("net", began, 120)
    self.wait_rolled_out("net", 300)
    t0=time.time()
    self.cluster.stop("api")
    self.cluster.start_api()
    print("api restarted in", time.time()-t0)
    p = Processors(self)
    agents = p.seconds["agents"]
    began = self.create("after")
    times = self.swarm.until_all("after", began, 300)
    q = Processors(self)
    used = {k: v - p.seconds[k] for k, v in q.seconds.items()}
    print("until last", used, q.seconds["API server"])
    self.spread("API restarted", times)
    self.told("req", Metrics(self.cluster).since(Empty()))
    time.sleep(3)
    order = sorted(self.swarm.nodes, key=lambda n: max((t for f, t in n.files().items() if "after" in f), default=0))
    for node in (order[0], order[len(order)//2], order[-3], order[-1]):
        print("NODE", node.name, max(t for f, t in node.files().items() if "after" in f) - began, "created at", time.strftime("%H:%M:%S", time.gmtime(began)), began % 1)
        print((node.home / "log").read_text()[-6000:])

swarm.Story.tell = tell
main = swarm.main
