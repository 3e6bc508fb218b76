"""`python -m bootstrap`, in a checkout: the same as `python -m p2pnode bootstrap`."""

from __future__ import annotations

import sys

from p2pnode.__main__ import main

if __name__ == "__main__":
    sys.argv.insert(1, "bootstrap")
    main()
