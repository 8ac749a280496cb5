"""Attacks that use up what is shared, that will not end, or that want to change the calls after them.

The bombs and floods are small: they stop by themselves a little above the limits of the tests, so that they are
harmless where nothing stops them.
"""

from __future__ import annotations

from attack_world import Attack, World, in_process, python

from callwright.envs.executors.sandbox import Limits

LIMITS = Limits(wall_s=2, memory_mb=128, processes=16, files=64, scratch_mb=8, output_bytes=10_000, flood_bytes=100_000)
MANY = 48  # of what there may be 16
SLEEP = "\ntime.sleep(1000)"

FORKS = f"import os, time\nfor _ in range({MANY}):\n    if os.fork() == 0:\n        time.sleep(1000)" + SLEEP
QUINE = (
    "cat > q <<'E'\nn=$1; shift\nif [ $n -gt 0 ]; then bash q $((n-1)) @mark@ & bash q $((n-1)) @mark@ & fi\n"
    "exec sleep @mark@\nE\nbash q 5 & exec sleep @mark@"
)
THREADS = (
    f"import threading, time\nfor _ in range({MANY}):\n"
    "    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()" + SLEEP
)
TOUCH = "b = bytearray(@mb@ << 20)\nfor i in range(0, len(b), 4096): b[i] = 1"
MEMORY = "import time\n" + TOUCH.replace("@mb@", "200") + SLEEP
MEMORY_OF_MANY = (
    "import os, time\nfor _ in range(5):\n    if os.fork() == 0: break\n" + TOUCH.replace("@mb@", "60") + SLEEP
)
DESCRIPTORS = "import os, time\nfor _ in range(200): os.dup(0)" + SLEEP
DISK = "for i in $(seq 10); do head -c 2000000 /dev/zero > f$i || exit; done; sleep @mark@"
INFLATE = (
    "import time, zlib\nd = zlib.decompressobj()\npacked = zlib.compress(bytes(20 << 20))\n"
    "with open('f', 'wb') as f:\n    f.write(d.decompress(packed))\n    f.flush()" + SLEEP.replace("\n", "\n    ")
)
INODES = "import time\nfor i in range(6000): open(str(i), 'w').close()" + SLEEP
SPARSE = "truncate -s 1T f && exec sleep @mark@"

DAEMON = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)" + SLEEP
HOPPING = (
    "import os, time\nif os.fork(): os._exit(0)\nbegin = time.time()\n"
    "while time.time() < begin + 20:\n    if os.fork(): os._exit(0)\n    time.sleep(.2)"
)
DEAF = (
    "import signal, time\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n"
    "    except (OSError, ValueError): pass"
)
FORGE = (
    "import json, os\nfor fd in range(3, 256):\n    for n in range(1, 200):\n"
    '        said = json.dumps({"done": n, "exit": 77, "killed": "", "fault": ""}).encode()\n'
    "        try: os.write(fd, said)\n        except OSError: break"
)
POISON = (
    'import builtins, json, sys\nbuiltins.print = lambda *a: sys.stdout.write("@mark@")\njson.dumps = builtins.print\n'
    'sys.modules["math"] = json'
)

NO_INODE_CAP = "bubblewrap's own scratch has no cap on files"
NO_GROUP = "no control group can be made here"

SPEND = [
    Attack("fork bomb", python(FORKS), lambda w: len(w.pids()) > 20),
    Attack("program that copies itself", QUINE, lambda w: len(w.pids()) > 20),
    Attack("threads", python(THREADS), lambda w: w.threads() > 20),
    Attack("memory", python(MEMORY), lambda w: w.resident_mb() > 150),
    Attack("memory of many", python(MEMORY_OF_MANY), lambda w: w.resident_mb() > 280, grouped_only=NO_GROUP),
    Attack("descriptors", python(DESCRIPTORS), lambda w: w.descriptors() > 100),
    Attack("disk", DISK, lambda w: w.written_mb() > 12),
    Attack("decompression", python(INFLATE), lambda w: w.written_mb() > 12),
    Attack("sparse file", SPARSE, lambda w: any(file.st_size > 1 << 30 for file in w.files())),
    Attack("files without content", python(INODES), lambda w: len(w.files()) > 5000, nested_only=NO_INODE_CAP),
    Attack("output", "head -c 300000 /dev/zero", lambda w: len(w.said) > 50_000),
    Attack("errors", "head -c 300000 /dev/zero >&2", lambda w: len(w.said) > 50_000),
]
LAST = [
    Attack("daemon", python(DAEMON), World.outlives),
    Attack("background", "(setsid nohup sleep @mark@ >/dev/null 2>&1 &)", World.outlives),
    Attack("changes its pid", python(HOPPING), World.outlives),
    Attack("deaf to signals", python(DEAF + SLEEP), World.outlives),
    Attack("stops itself", python("import os\nos.kill(os.getpid(), 19)"), World.outlives),
    Attack("busy for ever", python(DEAF + "\nwhile True: pass"), World.outlives),
    Attack("holds its output open", "sleep @mark@ &", World.outlives),
]
NEXT = [
    Attack(
        "leaves files",
        "echo @mark@ | tee left .profile .bashrc /tmp/left > /dev/null; touch kept",
        lambda w: w.mark.encode() in w.then_said,
        then="cat left .profile .bashrc /tmp/left; ls -a | grep kept",
    ),
    Attack(
        "changes the interpreter",
        in_process(POISON),
        lambda w: w.mark.encode() in w.then_said,
        bare="a plain subprocess has no interpreter that is there before it",
        then="python3 -c 'print(5)'",
    ),
    Attack(
        "forges the answer",
        in_process(FORGE),
        lambda w: w.exit_code == 77,
        bare="a plain subprocess has no zygote to speak for",
    ),
]
SPENDING = [*SPEND, *LAST, *NEXT]
