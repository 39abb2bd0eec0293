"""t2t-trainer as a module, for torchrun: python -m t2t_torch.bin.trainer."""

import sys

from t2t_torch.bin.commands import COMMANDS

main = COMMANDS["t2t-trainer"].main

if __name__ == "__main__":
    sys.exit(main())
