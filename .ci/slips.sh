#!/usr/bin/env bash
# Put ten faults of one line into copies of the package, one at a time: the tests must notice each.
# Which ten depends on the commit. `tests/slips/run.py` without arguments tries all of them.
. "$(dirname "$0")/common.sh"
step "slips that the tests must notice"
.venv/bin/python tests/slips/run.py --sample 10 --seed "$seed"
