"""Obeys the commands on standard input. driver.go of package neighbours describes the lines."""

import queue
import sys
import threading

import redis

host, port = sys.argv[1].rsplit(":", 1)
client = redis.Redis(host=host, port=int(port))
output = threading.Lock()


def answer(text):
    with output:
        print(text, flush=True)


def run(locks, verb, name, ttl=0):
    ttl = int(ttl) / 1000
    if verb == "trylock":
        lock = locks.setdefault(name, client.lock(name, timeout=ttl))
        return "yes" if lock.acquire(blocking=False) else "no"
    if verb == "extend":
        locks[name].extend(ttl, replace_ttl=True)
        return "done"
    if verb == "unlock":
        locks[name].release()
        return "done"
    raise ValueError("no verb " + verb)


def serve(lines):
    locks = {}
    while True:
        number, verb, _, *args = lines.get()
        try:
            answer(f"{number} {run(locks, verb, *args)}")
        except Exception as e:
            answer(f"{number} error {type(e).__name__} {' '.join(str(e).split())}")


threads = {}
answer("0 ready")
for line in sys.stdin:
    number, who, *rest = line.split()
    if who not in threads:
        threads[who] = queue.Queue()
        threading.Thread(target=serve, args=(threads[who],), daemon=True).start()
    threads[who].put((number, *rest))
