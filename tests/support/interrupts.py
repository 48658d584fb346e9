"""Send Ctrl-C to a loader with worker processes, at random moments; run by hand.

``python tests/support/interrupts.py 100`` starts as many processes, which iterate over short epochs
and so fork most of the time. A Ctrl-C is lost if its process still runs after 15 seconds.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

from loading import script

EPOCHS = """
print("begun", flush=True)
try:
    while True:
        for batch in Loader(loading.Images(count=8), 4, workers=2):
            pass
except KeyboardInterrupt:
    sys.exit(3)
"""


def main(tries: int) -> None:
    """Run the tries, and print how many Ctrl-C were lost."""
    lost = 0
    for number in range(tries):
        with script(EPOCHS) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(random.uniform(0, 1))
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
            lost += process.wait() != 3
            print(f"{number + 1} tries, {lost} lost", end="\r", flush=True)
    print()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
